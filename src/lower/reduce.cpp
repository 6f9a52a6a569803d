// Reductions: one nest, kept dimensions outside, reduced ones in the first stage, the result's formula and store in the
// second.
#include <cmath>
#include <limits>

#include "base/check.h"
#include "lower/rules.h"

namespace braze::lower {

using graph::Op;

namespace {

struct Shape {
  std::vector<bool> reduced;  // per operand dimension
  bool keepdim = false;
};

Shape shape_of(const graph::Graph& g, const graph::Node& node, size_t rank) {
  Shape s;
  s.reduced.assign(rank, false);
  auto flag = [&](size_t i) {
    return i < node.args.size() && std::holds_alternative<bool>(node.args[i]) && std::get<bool>(node.args[i]);
  };
  auto dims = [&](size_t i) {
    auto mark = [&](Expr e) {
      int64_t d = *g.arena().as_const(e);
      if (rank) s.reduced[d < 0 ? d + rank : d] = true;
    };
    if (auto* list = std::get_if<graph::IntList>(&node.args[i]); list && !list->v.empty())
      for (Expr e : list->v) mark(e);
    else if (auto* one = std::get_if<Expr>(&node.args[i]))
      mark(*one);
    else
      s.reduced.assign(rank, true);
  };
  const graph::ResultRule& rule = graph::op_row(node.op).result;
  if (rule.dims)
    dims(rule.dims);
  else
    s.reduced.assign(rank, true);
  s.keepdim = rule.keepdim && flag(rule.keepdim);
  return s;
}

double number_or(const graph::Graph& g, const graph::Arg& a, double none) {
  if (auto* d = std::get_if<double>(&a)) return *d;
  if (auto* b = std::get_if<bool>(&a)) return *b;
  if (auto* e = std::get_if<Expr>(&a)) return static_cast<double>(*g.arena().as_const(*e));
  return none;
}

// What a rule sees: the element in the first stage, and reductions of values made from it.
struct Reducer {
  Lowering& low;
  Body& body;
  const graph::Node& node;
  Val x;
  bool trivial;  // a single element: no loop
  Expr count;    // number of elements reduced
  DType out;     // compute dtype of the first result
  size_t next = 0;

  Val reduce(ReduceKind kind, Val v) {
    bool index = is_index(kind);
    if (trivial) {
      switch (loop::reduce_row(kind).alone) {
        case loop::ReduceAlone::Itself: return v;
        case loop::ReduceAlone::Zero: return {&body, body.constant(int64_t{0}, DType::I64)};
        case loop::ReduceAlone::Deviation: return v - v;
        case loop::ReduceAlone::Unit: return exp(v - v);
      }
    }
    return {&body, body.reduce(kind, index ? DType::I64 : v.dtype(), v.id)};
  }
};

// First stage: the reductions that the results need. Second: the results from them.
struct Rule {
  std::vector<Val> (*first)(Reducer&);
  std::vector<Val> (*second)(Reducer&, const std::vector<Val>&);
};

std::vector<Val> same(Reducer&, const std::vector<Val>& v) { return v; }

Val arithmetic(Val x) { return x.boolean() ? x.to(DType::U8) : x; }  // 0 and 1 for order

template <ReduceKind kind>
std::vector<Val> simple(Reducer& r) {
  return {r.reduce(kind, r.x.to(r.out))};
}
template <ReduceKind kind>
std::vector<Val> extreme(Reducer& r) {
  return {r.reduce(kind, arithmetic(r.x))};
}
template <ReduceKind kind>
std::vector<Val> logical(Reducer& r) {
  return {r.reduce(kind, truth(r.x))};
}
template <ReduceKind value, ReduceKind index>
std::vector<Val> both(Reducer& r) {
  return {r.reduce(value, arithmetic(r.x)), r.reduce(index, arithmetic(r.x))};
}
template <ReduceKind a, ReduceKind b>
std::vector<Val> two(Reducer& r) {
  return {r.reduce(a, arithmetic(r.x)), r.reduce(b, arithmetic(r.x))};
}

std::vector<Val> nansum(Reducer& r) {
  Val x = r.x.to(r.out);
  return {r.reduce(ReduceKind::Sum, x.floating() ? where(isnan(x), 0.0, x) : x)};
}
std::vector<Val> count_nonzero(Reducer& r) { return {r.reduce(ReduceKind::Sum, truth(r.x).to(DType::I64))}; }

std::vector<Val> mean(Reducer& r, const std::vector<Val>& v) {
  return {v[0] / Val{&r.body, r.body.index(r.count, v[0].dtype())}};
}

std::vector<Val> welford(Reducer& r) {
  return {r.reduce(ReduceKind::WelfordM2, r.x), r.reduce(ReduceKind::WelfordMean, r.x)};
}
Val variance(Reducer& r, const std::vector<Val>& v) {
  Val n{&r.body, r.body.index(r.count, v[0].dtype())};
  double correction = number_or(r.low.source, r.node.args[2], 1);
  // What rounding leaves of a sum of squares may be -0, of which the root is -0, or less.
  Val squares = where(v[0] <= 0.0, 0.0, v[0]);
  return squares / (correction == 0 ? n : max(n - correction, 0.0));
}
Val welford_mean(Reducer& r, Val mean) {  // NaN of no elements
  if (r.low.arena.range(r.count).lo > 0) return mean;
  Val n{&r.body, r.body.index(r.count, mean.dtype())};
  return where(n == 0.0, std::numeric_limits<double>::quiet_NaN(), mean);
}
std::vector<Val> var(Reducer& r, const std::vector<Val>& v) { return {variance(r, v), welford_mean(r, v[1])}; }
std::vector<Val> std_dev(Reducer& r, const std::vector<Val>& v) {
  return {sqrt(variance(r, v)), welford_mean(r, v[1])};
}

double order_of(Reducer& r) { return number_or(r.low.source, r.node.args[1], 2); }
std::vector<Val> norm_terms(Reducer& r) {
  Val x = r.x.to(r.out);
  double p = order_of(r);
  if (r.trivial && p != 0) return {abs(x)};  // as eager has it: a power may be out of range, where its root is not
  if (std::isinf(p)) return {r.reduce(p > 0 ? ReduceKind::Max : ReduceKind::Min, abs(x))};
  if (p == 0) return {r.reduce(ReduceKind::Sum, (x != 0.0).to(r.out))};
  if (p == 1) return {r.reduce(ReduceKind::Sum, abs(x))};
  if (p == 2) return {r.reduce(ReduceKind::Sum, x * x)};
  return {r.reduce(ReduceKind::Sum, pow(abs(x), x.same(p)))};
}
std::vector<Val> norm_root(Reducer& r, const std::vector<Val>& v) {
  double p = order_of(r);
  if (r.trivial || std::isinf(p) || p == 0 || p == 1) return v;
  return {p == 2 ? sqrt(v[0]) : pow(v[0], v[0].same(1 / p))};
}

Rule rule_of(Op op) {
  using K = ReduceKind;
  switch (op) {
    case Op::sum:
    case Op::sum_dim_IntList: return {simple<K::Sum>, same};
    case Op::mean:
    case Op::mean_dim: return {simple<K::Sum>, mean};
    case Op::nansum: return {nansum, same};
    case Op::amax:
    case Op::max: return {extreme<K::Max>, same};
    case Op::amin:
    case Op::min: return {extreme<K::Min>, same};
    case Op::aminmax: return {two<K::Min, K::Max>, same};
    case Op::max_dim: return {both<K::Max, K::ArgMax>, same};
    case Op::min_dim: return {both<K::Min, K::ArgMin>, same};
    case Op::argmax: return {extreme<K::ArgMax>, same};
    case Op::argmin: return {extreme<K::ArgMin>, same};
    case Op::prod:
    case Op::prod_dim_int: return {simple<K::Prod>, same};
    case Op::any:
    case Op::any_dim:
    case Op::any_dims: return {logical<K::Any>, same};
    case Op::all:
    case Op::all_dim:
    case Op::all_dims: return {logical<K::All>, same};
    case Op::var_correction:
    case Op::var_mean_correction: return {welford, var};
    case Op::std_correction:
    case Op::std_mean_correction: return {welford, std_dev};
    case Op::linalg_vector_norm:
    case Op::norm_ScalarOpt_dim:
    case Op::norm_Scalar: return {norm_terms, norm_root};
    case Op::count_nonzero_dim_IntList: return {count_nonzero, same};
    default: return {nullptr, nullptr};
  }
}

}  // namespace

bool takes_reduction(const graph::Graph& g, const graph::Node& node) {
  const TensorType& operand = g.type(std::get<graph::ValueId>(node.args[0]));
  if (!rule_of(node.op).first || !graph::accepts(node.op, operand.dtype)) return false;
  if (graph::op_traits(node.op) & graph::kNotEmpty)
    for (Expr s : operand.sizes)
      if (g.arena().is_const(s, 0)) return false;
  auto constant = [&](size_t i) {
    auto* e = std::get_if<Expr>(&node.args[i]);
    return !e || g.arena().as_const(*e).has_value();
  };
  switch (node.op) {
    case Op::var_correction:
    case Op::var_mean_correction:
    case Op::std_correction:
    case Op::std_mean_correction: return constant(2);
    case Op::linalg_vector_norm:
    case Op::norm_ScalarOpt_dim:
    case Op::norm_Scalar: return constant(1);
    default: return true;
  }
}

bool lower_reduction(Lowering& low, graph::NodeId n) {
  const graph::Node& node = low.source.node(n);
  const graph::ValueId operand = std::get<graph::ValueId>(node.args[0]);
  const TensorType& from = low.source.type(operand);
  const size_t rank = from.sizes.size();
  Rule rule = rule_of(node.op);
  Shape shape = shape_of(low.source, node, rank);

  // The targets' strides, seen along the operand's kept dimensions.
  std::vector<Expr> index(rank, low.arena.constant(0));
  std::vector<int> kept, reduced, result_dim(rank, -1);
  Expr count = low.arena.constant(1);
  for (size_t d = 0, k = 0; d < rank; ++d) {
    if (shape.reduced[d]) count = low.arena.mul(count, from.sizes[d]);
    if (!shape.reduced[d] || shape.keepdim) result_dim[d] = static_cast<int>(k++);
    (shape.reduced[d] ? reduced : kept).push_back(static_cast<int>(d));
  }
  std::vector<View> targets;
  for (graph::ValueId v : node.outputs) targets.push_back(v.valid() && !low.unused(v) ? low.allocate(v) : View{});
  const View* shaped = nullptr;
  for (const View& t : targets)
    if (t.buffer.valid() && !shaped) shaped = &t;
  BRAZE_CHECK(shaped, "reduction without a used result");
  auto pick = [&](const std::vector<int>& dims, std::span<const Expr> values, bool through_result) {
    std::vector<Expr> out;
    for (int d : dims) out.push_back(values[through_result ? result_dim[d] : d]);
    return out;
  };
  std::vector<Expr> kept_index;
  auto outer = low.axes(pick(kept, from.sizes, false), pick(kept, shaped->strides, true), kept_index);
  for (size_t k = 0; k < kept.size(); ++k) index[kept[k]] = kept_index[k];

  // An index of the flattened operand counts in logical order; other reductions follow the operand's memory.
  std::vector<int> order;
  bool flat = node.op == Op::argmax || node.op == Op::argmin;
  for (int k : low.indexing.by_stride(pick(reduced, from.sizes, false), pick(reduced, from.strides, false)))
    order.push_back(reduced[k]);
  std::vector<loop::Axis> inner;
  for (int d : flat ? reduced : order) {
    if (low.indexing.is_one(from.sizes[d])) continue;
    Expr var = low.symbols.loop_var('r', static_cast<int>(inner.size()), from.sizes[d]);
    index[d] = var;
    inner.push_back({var, from.sizes[d]});
  }

  Body body = low.body();
  bool trivial = inner.empty();
  body.begin_stage(std::move(inner));
  const TensorType& out = low.source.type(node.outputs[0]);
  Reducer r{low, body, node, {&body, low.emit(body, operand, index)}, trivial, count, compute_dtype(out.dtype)};
  std::vector<Val> values = rule.first(r);
  if (!trivial) body.begin_stage({});
  values = rule.second(r, values);
  for (size_t i = 0; i < targets.size(); ++i) {
    const View& t = targets[i];
    if (!t.buffer.valid()) continue;
    std::vector<Expr> at(t.sizes.size(), low.arena.constant(0));
    for (size_t d = 0; d < rank; ++d)
      if (!shape.reduced[d]) at[result_dim[d]] = index[d];
    body.store(t.buffer, low.indexing.dot(at, t.strides, t.offset), values[i].id);
  }
  std::vector<graph::LocId> locs = low.locs_of(operand);
  if (node.loc.valid()) locs.push_back(node.loc);
  low.add(body.finish(low.nest_name(node), std::move(outer)), std::move(locs));
  return true;
}

}  // namespace braze::lower
