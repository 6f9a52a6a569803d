#include "trace/symnode.h"

#include <algorithm>

#include "base/check.h"

namespace braze::trace {

using sym::Expr;
using sym::ExprArena;

Expr SizeEnv::add_symbol(const std::string& name, sym::Range range, int64_t hint) {
  Expr symbol = arena_->symbol(name, sym::SymbolKind::Size, range);
  hints_.emplace_back(symbol, hint);
  return symbol;
}

int64_t SizeEnv::hint(Expr e) const {
  return arena_->evaluate(e, [&](Expr symbol) {
    for (const auto& [s, value] : hints_)
      if (s == symbol) return value;
    throw InternalError("a symbol without a hint: " + arena_->print(symbol));
  });
}

bool SizeEnv::decide(Expr condition) {
  if (auto known = arena_->known(condition)) return *known;
  bool holds = hint(condition) != 0;
  Expr fact = holds ? condition : arena_->logical_not(condition);
  if (std::find(guards_.begin(), guards_.end(), fact) == guards_.end()) guards_.push_back(fact);
  return holds;
}

c10::SymNode SizeNode::make(Type type, Expr e) const { return c10::make_intrusive<SizeNode>(env_, type, e); }

Expr SizeNode::operand(const c10::SymNode& other) const {
  if (auto* node = dynamic_cast<SizeNode*>(other.get())) return node->expr_;
  if (auto value = other->constant_int()) return arena().constant(*value);
  if (auto value = other->constant_bool()) return arena().constant(*value ? 1 : 0);
  throw InternalError("a symbolic size meets a symbol of another compiler");
}

c10::SymNode SizeNode::binary(Type type, Binary op, const c10::SymNode& other) const {
  return make(type, (arena().*op)(expr_, operand(other)));
}

c10::SymNode SizeNode::add(const c10::SymNode& o) { return binary(Type::Int, &ExprArena::add, o); }
c10::SymNode SizeNode::sub(const c10::SymNode& o) { return binary(Type::Int, &ExprArena::sub, o); }
c10::SymNode SizeNode::mul(const c10::SymNode& o) { return binary(Type::Int, &ExprArena::mul, o); }
c10::SymNode SizeNode::floordiv(const c10::SymNode& o) { return binary(Type::Int, &ExprArena::floordiv, o); }
c10::SymNode SizeNode::mod(const c10::SymNode& o) { return binary(Type::Int, &ExprArena::mod, o); }
c10::SymNode SizeNode::sym_min(const c10::SymNode& o) { return binary(Type::Int, &ExprArena::min, o); }
c10::SymNode SizeNode::sym_max(const c10::SymNode& o) { return binary(Type::Int, &ExprArena::max, o); }
c10::SymNode SizeNode::eq(const c10::SymNode& o) { return binary(Type::Bool, &ExprArena::eq, o); }
c10::SymNode SizeNode::ne(const c10::SymNode& o) { return binary(Type::Bool, &ExprArena::ne, o); }
c10::SymNode SizeNode::lt(const c10::SymNode& o) { return binary(Type::Bool, &ExprArena::lt, o); }
c10::SymNode SizeNode::le(const c10::SymNode& o) { return binary(Type::Bool, &ExprArena::le, o); }
c10::SymNode SizeNode::gt(const c10::SymNode& o) { return make(Type::Bool, arena().lt(operand(o), expr_)); }
c10::SymNode SizeNode::ge(const c10::SymNode& o) { return make(Type::Bool, arena().le(operand(o), expr_)); }
c10::SymNode SizeNode::sym_or(const c10::SymNode& o) { return binary(Type::Bool, &ExprArena::logical_or, o); }
c10::SymNode SizeNode::sym_and(const c10::SymNode& o) { return binary(Type::Bool, &ExprArena::logical_and, o); }
c10::SymNode SizeNode::sym_not() { return make(Type::Bool, arena().logical_not(expr_)); }
c10::SymNode SizeNode::neg() { return make(Type::Int, arena().neg(expr_)); }
c10::SymNode SizeNode::clone() { return make(type_, expr_); }
c10::SymNode SizeNode::wrap_int(int64_t value) { return make(Type::Int, arena().constant(value)); }
c10::SymNode SizeNode::wrap_bool(bool value) { return make(Type::Bool, arena().constant(value ? 1 : 0)); }

c10::SymNode SizeNode::dense_in_order(c10::ArrayRef<c10::SymNode> sizes, c10::ArrayRef<c10::SymNode> strides,
                                      const std::vector<size_t>& order) const {
  ExprArena& a = arena();
  Expr expected = a.constant(1), result = a.constant(1), empty = a.constant(0);
  for (size_t i = order.size(); i-- > 0;) {
    Expr size = operand(sizes[order[i]]), stride = operand(strides[order[i]]);
    result = a.logical_and(result, a.logical_or(a.eq(size, a.constant(1)), a.eq(stride, expected)));
    empty = a.logical_or(empty, a.eq(size, a.constant(0)));
    expected = a.mul(expected, size);
  }
  return make(Type::Bool, a.logical_or(empty, result));
}

c10::SymNode SizeNode::is_contiguous(c10::ArrayRef<c10::SymNode> sizes, c10::ArrayRef<c10::SymNode> strides) {
  std::vector<size_t> order(sizes.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  return dense_in_order(sizes, strides, order);
}

c10::SymNode SizeNode::is_channels_last_contiguous_2d(c10::ArrayRef<c10::SymNode> sizes,
                                                      c10::ArrayRef<c10::SymNode> strides) {
  return sizes.size() == 4 ? dense_in_order(sizes, strides, {0, 2, 3, 1}) : wrap_bool(false);
}
c10::SymNode SizeNode::is_channels_last_contiguous_3d(c10::ArrayRef<c10::SymNode> sizes,
                                                      c10::ArrayRef<c10::SymNode> strides) {
  return sizes.size() == 5 ? dense_in_order(sizes, strides, {0, 2, 3, 4, 1}) : wrap_bool(false);
}
// The 'strides like' queries choose a result's layout where a tensor is both or neither; dense row-major tensors answer
// no.
c10::SymNode SizeNode::is_channels_last_strides_2d(c10::ArrayRef<c10::SymNode> sizes,
                                                   c10::ArrayRef<c10::SymNode> strides) {
  if (sizes.size() != 4) return wrap_bool(false);
  return is_channels_last_contiguous_2d(sizes, strides)->sym_and(is_contiguous(sizes, strides)->sym_not());
}
c10::SymNode SizeNode::is_channels_last_strides_3d(c10::ArrayRef<c10::SymNode> sizes,
                                                   c10::ArrayRef<c10::SymNode> strides) {
  if (sizes.size() != 5) return wrap_bool(false);
  return is_channels_last_contiguous_3d(sizes, strides)->sym_and(is_contiguous(sizes, strides)->sym_not());
}

c10::SymNode SizeNode::is_non_overlapping_and_dense(c10::ArrayRef<c10::SymNode> sizes,
                                                    c10::ArrayRef<c10::SymNode> strides) {
  // The order of the dimensions by their strides under the hints; that this order is dense is then the condition.
  std::vector<size_t> order(sizes.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return env_->hint(operand(strides[a])) > env_->hint(operand(strides[b]));
  });
  return dense_in_order(sizes, strides, order);
}

int64_t SizeNode::guard_int(const char*, int64_t) {
  if (auto value = constant_int()) return *value;
  int64_t value = env_->hint(expr_);
  env_->decide(arena().eq(expr_, arena().constant(value)));
  return value;
}
bool SizeNode::guard_bool(const char*, int64_t) { return env_->decide(expr_); }
bool SizeNode::statically_known_true(const char*, int64_t) { return arena().known(expr_).value_or(false); }

std::optional<int64_t> SizeNode::constant_int() { return type_ == Type::Int ? arena().as_const(expr_) : std::nullopt; }
std::optional<bool> SizeNode::constant_bool() {
  if (type_ != Type::Bool) return std::nullopt;
  if (auto value = arena().as_const(expr_)) return *value != 0;
  return std::nullopt;
}

c10::SymInt sym_int(const std::shared_ptr<SizeEnv>& env, Expr e) {
  if (auto value = env->arena().as_const(e)) return c10::SymInt(*value);
  return c10::SymInt(c10::SymNode(c10::make_intrusive<SizeNode>(env, SizeNode::Type::Int, e)));
}

}  // namespace braze::trace
