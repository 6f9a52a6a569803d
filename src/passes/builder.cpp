#include "passes/builder.h"

namespace braze::passes {

ValueId Builder::tensor(size_t i) const {
  ValueId v = optional_tensor(i);
  if (!v.valid()) throw NoRule{};
  return v;
}

ValueId Builder::optional_tensor(size_t i) const {
  auto* v = i < args.size() ? std::get_if<ValueId>(&args[i]) : nullptr;
  return v ? *v : ValueId();
}

bool Builder::flag(size_t i) const {
  auto* b = i < args.size() ? std::get_if<bool>(&args[i]) : nullptr;
  return b && *b;
}

int64_t Builder::integer(size_t i) const {
  auto* e = i < args.size() ? std::get_if<Expr>(&args[i]) : nullptr;
  auto c = e ? arena().as_const(*e) : std::nullopt;
  if (!c) throw NoRule{};
  return *c;
}

double Builder::number(size_t i) const {
  if (i >= args.size()) throw NoRule{};
  if (auto* d = std::get_if<double>(&args[i])) return *d;
  if (auto* b = std::get_if<bool>(&args[i])) return *b;
  return static_cast<double>(integer(i));
}

const std::vector<Expr>& Builder::ints(size_t i) const {
  auto* l = i < args.size() ? std::get_if<IntList>(&args[i]) : nullptr;
  if (!l) throw NoRule{};
  return l->v;
}

bool Builder::mask(size_t i, size_t k) const {
  auto* l = i < args.size() ? std::get_if<graph::BoolList>(&args[i]) : nullptr;
  if (!l || k >= l->v.size()) throw NoRule{};
  return l->v[k];
}

size_t Builder::dim(size_t i, size_t rank) const {
  int64_t d = integer(i);
  if (d < 0) d += static_cast<int64_t>(rank);
  if (d < 0 || d >= static_cast<int64_t>(rank)) throw NoRule{};
  return static_cast<size_t>(d);
}

std::vector<ValueId> Builder::calls(Op op, std::vector<Arg> call_args) {
  auto lookup = [&](ValueId v) { return graph::Operand{&g_.type(v), false}; };
  graph::ShapeContext context{lookup, arena()};
  auto types = graph::infer(op, call_args, context);
  if (!types) throw NoRule{};
  return g_.node(g_.add_node(op, std::move(call_args), std::move(*types), node.origin().step())).outputs;
}

void Builder::check(ValueId v, std::string fault) {
  if (type(v).device.type != DeviceType::CPU) return;
  g_.add_node(Op::check, {v, std::move(fault), NoneArg{}, false, NoneArg{}}, {}, {node.loc, {}});
}

void Builder::check_index(ValueId v, std::string fault, Expr size) {
  if (type(v).device.type != DeviceType::CPU) return;
  g_.add_node(Op::check, {v, std::move(fault), size, false, k(0)}, {}, {node.loc, {}});
}

ValueId Builder::cast(ValueId v, DType dtype) {
  if (!v.valid() || type(v).dtype == dtype) return v;
  return call(Op::_to_copy, {v, dtype, NoneArg{}, NoneArg{}, NoneArg{}, false, NoneArg{}});
}

IntList Builder::list(const std::vector<int64_t>& dims) const {
  IntList l;
  for (int64_t d : dims) l.v.push_back(k(d));
  return l;
}

ValueId Builder::sum(ValueId v, const std::vector<int64_t>& dims, bool keep) {
  return call(Op::sum_dim_IntList, {v, list(dims), keep, NoneArg{}});
}

ValueId Builder::mean(ValueId v, const std::vector<int64_t>& dims, bool keep) {
  return call(Op::mean_dim, {v, list(dims), keep, NoneArg{}});
}

ValueId Builder::amax(ValueId v, const std::vector<int64_t>& dims, bool keep) {
  return call(Op::amax, {v, list(dims), keep});
}

ValueId Builder::vector_norm(ValueId v, Arg order, Arg dims, bool keep, const Arg& dtype) {
  if (!is_floating(type(v).dtype)) throw NoRule{};
  if (auto* wide = std::get_if<DType>(&dtype)) {
    if (!is_floating(*wide) || size_of(*wide) < size_of(type(v).dtype)) throw NoRule{};
    v = cast(v, *wide);
  }
  if (std::holds_alternative<NoneArg>(order)) order = k(2);
  return call(Op::linalg_vector_norm, {v, std::move(order), std::move(dims), keep, NoneArg{}});
}

ValueId Builder::power_sum(ValueId v, double order, const Arg& dims, bool keep) {
  if ((order != 1 && order != 2) || (type(v).dtype != DType::F32 && type(v).dtype != DType::F64)) throw NoRule{};
  ValueId each = order == 1 ? unary(Op::abs, v) : mul(v, v);
  if (std::holds_alternative<NoneArg>(dims) && !keep) return call(Op::sum, {each, NoneArg{}});
  return call(Op::sum_dim_IntList, {each, dims, keep, NoneArg{}});
}

std::pair<ValueId, ValueId> Builder::var_mean(ValueId v, const std::vector<int64_t>& dims) {
  auto r = calls(Op::var_mean_correction, {v, list(dims), k(0), true});
  return {r[0], r[1]};
}

ValueId Builder::view(ValueId v, std::vector<Expr> sizes) {
  if (type(v).sizes == sizes) return v;
  return call(Op::view, {v, IntList{std::move(sizes)}});
}

ValueId Builder::per_channel(ValueId v, size_t rank) {
  if (!v.valid()) return v;
  std::vector<Expr> sizes(rank, k(1));
  sizes[1] = type(v).sizes.at(0);
  return view(v, std::move(sizes));
}

Expr Builder::count(ValueId v, const std::vector<int64_t>& dims) const {
  Expr n = k(1);
  for (int64_t d : dims) n = arena().mul(n, type(v).sizes.at(static_cast<size_t>(d)));
  return n;
}

ValueId Builder::full(std::vector<Expr> sizes, Arg value, DType dtype, Device device) {
  return call(Op::full, {IntList{std::move(sizes)}, std::move(value), dtype, NoneArg{}, device, NoneArg{}});
}

void Builder::set(size_t output, ValueId v) {
  ValueId old = node.outputs.at(output);
  if (!old.valid()) return;
  const TensorType& promised = from.type(old);
  if (type(v).dim() != promised.dim()) throw NoRule{};
  for (size_t d = 0; d < promised.dim(); ++d)
    if (!arena().known_equal(type(v).sizes[d], promised.sizes[d])) throw NoRule{};
  v = cast(v, promised.dtype);
  bool own = g_.value(v).node.valid() && graph::op_class(g_.node(g_.value(v).node).op) != graph::OpClass::View;
  for (const Arg& a : args)
    if (auto* operand = std::get_if<ValueId>(&a)) own = own && *operand != v;
  for (const auto& [was, now] : results) own = own && now != v;
  if (!own) v = call(Op::clone, {v, graph::MemoryFormatArg{0}});
  g_.value(v).type = promised;
  g_.node(g_.value(v).node).checkpoint = node.checkpoint;
  results.emplace_back(old, v);
}

}  // namespace braze::passes
