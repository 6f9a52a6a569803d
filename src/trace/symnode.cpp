#include "trace/symnode.h"

#include <torch/csrc/Exceptions.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "trace/graph_break.h"

namespace braze::trace {

using sym::Expr;
using sym::ExprArena;

c10::SymNode SizeNode::make(Type type, Expr e) const { return c10::make_intrusive<SizeNode>(env_, type, e); }

Expr SizeNode::operand(const c10::SymNode& other) const {
  if (auto* node = dynamic_cast<SizeNode*>(other.get())) return node->expr();
  if (auto value = other->constant_int()) return arena().constant(*value);
  if (auto value = other->constant_bool()) return arena().constant(*value ? 1 : 0);
  throw InternalError("a symbolic size meets a symbol of another compiler");
}

// A graph break where the value is not known before the run.
bool SizeNode::decide(Expr condition) const {
  try {
    return env_->decide(condition);
  } catch (const sym::Undecidable& e) {
    throw_graph_break(Reason::UnbackedDecision, env_->explain(e.condition));
  }
}

int64_t SizeNode::fixed(Expr e) const {
  if (auto value = arena().as_const(e)) return *value;
  int64_t value = 0;
  try {
    value = env_->hint(e);
  } catch (const sym::Undecidable&) {
    if (auto assumed = env_->assumed_value(e)) return *assumed;
    throw_graph_break(Reason::UnbackedDecision, "the value of " + env_->explain(e));
  }
  decide(arena().eq(e, arena().constant(value)));
  env_->pin(e);
  return value;
}

double SizeNode::real(const c10::SymNode& other) const {
  if (auto* node = dynamic_cast<SizeNode*>(other.get()))
    return node->type_ == Type::Float ? node->number_ : static_cast<double>(fixed(node->expr()));
  if (auto value = other->constant_int()) return static_cast<double>(*value);
  throw InternalError("a symbolic size meets a symbol of another compiler");
}

c10::SymNode SizeNode::binary(Type type, Binary op, const c10::SymNode& other) const {
  auto* node = dynamic_cast<SizeNode*>(other.get());
  if (type_ == Type::Float || (node && node->type_ == Type::Float)) {
    double a = type_ == Type::Float ? number_ : static_cast<double>(fixed(expr())), b = real(other);
    auto number = [&](double v) -> c10::SymNode { return c10::make_intrusive<SizeNode>(env_, v); };
    auto truth = [&](bool v) { return make(Type::Bool, arena().constant(v)); };
    if (op == &ExprArena::add) return number(a + b);
    if (op == &ExprArena::sub) return number(a - b);
    if (op == &ExprArena::mul) return number(a * b);
    if (op == &ExprArena::min) return number(std::min(a, b));
    if (op == &ExprArena::max) return number(std::max(a, b));
    if (op == &ExprArena::eq) return truth(a == b);
    if (op == &ExprArena::ne) return truth(a != b);
    if (op == &ExprArena::lt) return truth(a < b);
    if (op == &ExprArena::le) return truth(a <= b);
    throw_graph_break(Reason::UnsupportedFeature, "an operator on symbolic floats");
  }
  return make(type, (arena().*op)(expr(), operand(other)));
}

c10::SymNode SizeNode::truediv(const c10::SymNode& o) {
  double a = type_ == Type::Float ? number_ : static_cast<double>(fixed(expr())), b = real(o);
  if (b == 0) throw_graph_break(Reason::RaisedException, "division by zero");
  return c10::make_intrusive<SizeNode>(env_, a / b);
}
c10::SymNode SizeNode::pow(const c10::SymNode& o) {
  double a = type_ == Type::Float ? number_ : static_cast<double>(fixed(expr()));
  return c10::make_intrusive<SizeNode>(env_, std::pow(a, real(o)));
}
c10::SymNode SizeNode::pow_by_natural(const c10::SymNode& o) {
  int64_t n = fixed(operand(o));
  if (n < 0 || n > 8) throw_graph_break(Reason::UnsupportedFeature, "a large power of a symbolic size");
  Expr r = arena().constant(1);
  for (int64_t i = 0; i < n; ++i) r = arena().mul(r, expr());
  return make(Type::Int, r);
}
c10::SymNode SizeNode::floor() {
  if (type_ != Type::Float) return clone();
  return make(Type::Int, arena().constant(static_cast<int64_t>(std::floor(number_))));
}
c10::SymNode SizeNode::ceil() {
  if (type_ != Type::Float) return clone();
  return make(Type::Int, arena().constant(static_cast<int64_t>(std::ceil(number_))));
}
c10::SymNode SizeNode::sym_float() {
  return c10::make_intrusive<SizeNode>(env_, type_ == Type::Float ? number_ : static_cast<double>(fixed(expr())));
}
c10::SymNode SizeNode::wrap_float(double value) { return c10::make_intrusive<SizeNode>(env_, value); }
double SizeNode::guard_float(const char*, int64_t) {
  return type_ == Type::Float ? number_ : static_cast<double>(fixed(expr()));
}

c10::SymNode SizeNode::add(const c10::SymNode& o) { return binary(Type::Int, &ExprArena::add, o); }
c10::SymNode SizeNode::sub(const c10::SymNode& o) { return binary(Type::Int, &ExprArena::sub, o); }
c10::SymNode SizeNode::mul(const c10::SymNode& o) { return binary(Type::Int, &ExprArena::mul, o); }
c10::SymNode SizeNode::floordiv(const c10::SymNode& o) { return binary(Type::Int, &ExprArena::floordiv, o); }
c10::SymNode SizeNode::mod(const c10::SymNode& o) { return binary(Type::Int, &ExprArena::mod, o); }
c10::SymNode SizeNode::sym_min(const c10::SymNode& o) { return binary(Type::Int, &ExprArena::min, o); }
c10::SymNode SizeNode::sym_max(const c10::SymNode& o) { return binary(Type::Int, &ExprArena::max, o); }
// What messages of PyTorch's own functions say of a size is the size that the recorded call has.
std::string SizeNode::str() {
  if (type_ == Type::Float) return std::to_string(number_);
  if (!env_->has_hint(expr())) return arena().print(expr());
  return type_ == Type::Bool ? (hint() ? "True" : "False") : std::to_string(hint());
}

// Whoever asks whether a size is 1, which it is here, drops or broadcasts the dimension: it is to be a 1 that is seen.
void SizeNode::note_one(const c10::SymNode& o) const {
  if (type_ != Type::Int) return;
  if (auto* node = dynamic_cast<SizeNode*>(o.get()); node && node->type_ != Type::Int) return;
  const Expr a = expr(), b = operand(o);
  for (auto [size, one] : {std::pair(a, b), std::pair(b, a)})
    if (arena().is_const(one, 1) && !arena().as_const(size) && env_->has_hint(size) && env_->hint(size) == 1) {
      env_->decide(arena().eq(size, one));
      env_->pin(size);
    }
}

c10::SymNode SizeNode::eq(const c10::SymNode& o) {
  note_one(o);
  return binary(Type::Bool, &ExprArena::eq, o);
}
c10::SymNode SizeNode::ne(const c10::SymNode& o) {
  note_one(o);
  return binary(Type::Bool, &ExprArena::ne, o);
}
c10::SymNode SizeNode::lt(const c10::SymNode& o) { return binary(Type::Bool, &ExprArena::lt, o); }
c10::SymNode SizeNode::le(const c10::SymNode& o) { return binary(Type::Bool, &ExprArena::le, o); }
c10::SymNode SizeNode::gt(const c10::SymNode& o) {
  auto* node = dynamic_cast<SizeNode*>(o.get());
  if (type_ == Type::Float || (node && node->is_float())) return le(o)->sym_not();
  return make(Type::Bool, arena().lt(operand(o), expr()));
}
c10::SymNode SizeNode::ge(const c10::SymNode& o) {
  auto* node = dynamic_cast<SizeNode*>(o.get());
  if (type_ == Type::Float || (node && node->is_float())) return lt(o)->sym_not();
  return make(Type::Bool, arena().le(operand(o), expr()));
}
c10::SymNode SizeNode::sym_or(const c10::SymNode& o) { return binary(Type::Bool, &ExprArena::logical_or, o); }
c10::SymNode SizeNode::sym_and(const c10::SymNode& o) { return binary(Type::Bool, &ExprArena::logical_and, o); }
c10::SymNode SizeNode::sym_not() { return make(Type::Bool, arena().logical_not(expr())); }
c10::SymNode SizeNode::neg() {
  if (type_ == Type::Float) return c10::make_intrusive<SizeNode>(env_, -number_);
  return make(Type::Int, arena().neg(expr()));
}
c10::SymNode SizeNode::clone() {
  if (type_ == Type::Float) return c10::make_intrusive<SizeNode>(env_, number_);
  return make(type_, expr());
}
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
  bool hinted =
      std::all_of(strides.begin(), strides.end(), [&](const c10::SymNode& s) { return env_->has_hint(operand(s)); });
  auto longer = [&](size_t a, size_t b) {
    Expr x = operand(strides[a]), y = operand(strides[b]);
    return hinted ? env_->hint(x) > env_->hint(y) : env_->usually(arena().lt(y, x)) == true;
  };
  for (size_t i = 1; i < order.size(); ++i)
    for (size_t k = i; k > 0 && longer(order[k], order[k - 1]); --k) std::swap(order[k], order[k - 1]);
  return dense_in_order(sizes, strides, order);
}

namespace {
thread_local bool refuses_numbers = false;
}

NumbersRefused::NumbersRefused(bool on) : before_(refuses_numbers) { refuses_numbers = on; }
NumbersRefused::~NumbersRefused() { refuses_numbers = before_; }

int64_t SizeNode::guard_int(const char*, int64_t) {
  TORCH_CHECK(!refuses_numbers || arena().as_const(expr()), "the number of a size is asked for");
  return fixed(expr());
}
bool SizeNode::guard_bool(const char*, int64_t) { return decide(expr()); }
bool SizeNode::statically_known_true(const char*, int64_t) { return env_->known(expr()).value_or(false); }
bool SizeNode::guard_size_oblivious(const char*, int64_t) {
  if (env_->has_hint(expr())) return decide(expr());
  if (auto truth = env_->usually(expr())) return *truth;
  return decide(expr());
}
bool SizeNode::guard_or_false(const char*, int64_t) {
  return env_->has_hint(expr()) ? decide(expr()) : env_->known(expr()).value_or(false);
}
bool SizeNode::guard_or_true(const char*, int64_t) {
  return env_->has_hint(expr()) ? decide(expr()) : env_->known(expr()).value_or(true);
}
bool SizeNode::expect_true(const char*, int64_t) {
  if (env_->has_hint(expr())) return decide(expr());
  try {
    env_->assume(expr(), {});
  } catch (const sym::Undecidable&) {
    return decide(expr());
  }
  return true;
}

std::optional<int64_t> SizeNode::constant_int() { return type_ == Type::Int ? arena().as_const(expr()) : std::nullopt; }
std::optional<bool> SizeNode::constant_bool() {
  if (type_ != Type::Bool) return std::nullopt;
  if (auto value = arena().as_const(expr())) return *value != 0;
  return std::nullopt;
}

c10::SymInt sym_int(const std::shared_ptr<SizeEnv>& env, Expr e) {
  if (auto value = env->arena().as_const(e)) return c10::SymInt(*value);
  return c10::SymInt(c10::SymNode(c10::make_intrusive<SizeNode>(env, SizeNode::Type::Int, e)));
}

std::optional<int64_t> hint_of(const c10::SymInt& s) {
  if (!s.is_heap_allocated()) return s.as_int_unchecked();
  auto node = s.toSymNode();
  return node->has_hint() ? std::optional(dynamic_cast<SizeNode&>(*node).hint()) : std::nullopt;
}

}  // namespace braze::trace
