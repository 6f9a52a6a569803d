#include "passes/unfold_products.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "graph/narrow_product.h"
#include "passes/builder.h"

namespace braze::passes {
namespace {

// A product of which one factor is a vector, or one for each matrix of a batch, and where its arguments are.
struct VectorProduct {
  bool biased;
  bool vector_first;  // a row, [.., 1, k] times [.., k, n]; else [.., n, k] times [.., k, 1], or [k]
  size_t matrix() const { return biased + size_t{vector_first}; }
  size_t vector() const { return biased + size_t{!vector_first}; }
};

// Whether the first `tensors` arguments have the result's dtype and device.
bool are_like_result(const Graph& g, const Node& n, size_t tensors) {
  const TensorType& out = g.type(n.outputs[0]);
  return std::all_of(n.args.begin(), n.args.begin() + static_cast<ptrdiff_t>(tensors), [&](const graph::Arg& a) {
    auto* v = std::get_if<ValueId>(&a);
    return v && v->valid() && g.type(*v).dtype == out.dtype && g.type(*v).device == out.device;
  });
}

// Of float32 and float64, on a CPU whose library is slow at it: where the sums run along the memory of the matrix, and
// of small matrices.
std::optional<VectorProduct> vector_product(const Graph& g, const Node& n, const Targets& targets) {
  const bool biased = n.op == Op::addmm || n.op == Op::addmv;
  if (n.op != Op::mm && n.op != Op::bmm && n.op != Op::mv && !biased) return std::nullopt;
  if (n.outputs.size() != 1 || !n.outputs[0].valid() || n.args.size() != (biased ? 5u : 2u)) return std::nullopt;
  if (biased && !(is_one(g, n.args[3]) && is_one(g, n.args[4]))) return std::nullopt;
  const TensorType& out = g.type(n.outputs[0]);
  const Target& target = targets.of(out.device);
  if (target.is_gpu() || !target.slow_thin_products || (out.dtype != DType::F32 && out.dtype != DType::F64))
    return std::nullopt;
  if (!are_like_result(g, n, 2u + biased)) return std::nullopt;
  const sym::ExprArena& a = g.arena();
  const VectorProduct p{biased, n.op != Op::mv && n.op != Op::addmv && !a.is_const(out.sizes.back(), 1)};
  if (p.vector_first && !a.is_const(out.sizes[out.dim() - 2], 1)) return std::nullopt;
  const TensorType& m = g.type(std::get<ValueId>(n.args[p.matrix()]));
  const size_t k = m.dim() - (p.vector_first ? 2 : 1), rows = m.dim() - (p.vector_first ? 1 : 2);
  constexpr int64_t kFewestSums = 4, kSmall = 8192;  // elements of a matrix
  const auto n_rows = a.as_const(m.sizes[rows]), n_k = a.as_const(m.sizes[k]);
  const bool small = n_rows && n_k && *n_rows <= kSmall && *n_k <= kSmall && *n_rows * *n_k <= kSmall;
  const bool along = a.is_const(m.strides[k], 1) && !a.is_const(m.strides[rows], 1);
  if ((!along && !small) || a.range(m.sizes[rows]).lo < kFewestSums) return std::nullopt;
  return p;
}

// Of columns with rows: nothing is added up.
bool is_outer_product(const Graph& g, const Node& n) {
  if ((n.op != Op::mm && n.op != Op::bmm) || n.args.size() != 2 || n.outputs.size() != 1) return false;
  const DType dtype = g.type(n.outputs[0]).dtype;
  return is_floating(dtype) && size_of(dtype) > 1 && are_like_result(g, n, 2) &&
         g.arena().is_const(g.type(std::get<ValueId>(n.args[0])).sizes.back(), 1);
}

}  // namespace

Graph unfold_products(const Graph& g, const Targets& targets) {
  Rewriter r(g);
  std::unordered_map<uint32_t, ValueId> vectors;  // in the type that is computed in: of several products of one vector
  for (const Node& n : g.nodes()) {
    const bool outer = is_outer_product(g, n);
    const auto p = outer                                   ? std::nullopt
                   : graph::is_thin_product(g, n, targets) ? std::optional(VectorProduct{n.op == Op::addmm, true})
                                                           : vector_product(g, n, targets);
    auto unfolded = [&](Builder& b) {
      ValueId& vector = vectors[b.tensor(p->vector()).index];
      if (!vector.valid()) vector = b.compute(b.tensor(p->vector()));
      auto turned = [&](ValueId v) { return b.call(Op::transpose_int, {v, b.k(-2), b.k(-1)}); };
      ValueId matrix = b.compute(b.tensor(p->matrix())), row = vector;
      if (p->vector_first)
        matrix = turned(matrix);
      else if (b.rank(row) > 1)
        row = turned(row);
      const auto last = static_cast<int64_t>(b.rank(matrix)) - 1;
      ValueId sum = b.view(b.sum(b.mul(matrix, row), {last}, false), b.result(0).sizes);
      b.set(0, p->biased ? b.add(sum, b.compute(b.tensor(0))) : sum);
    };
    auto multiplied = [&](Builder& b) { b.set(0, b.mul(b.compute(b.tensor(0)), b.compute(b.tensor(1)))); };
    const bool done = outer ? rewrite(r, n, g, multiplied) : p && rewrite(r, n, g, unfolded);
    if (!done) r.copy(n);
  }
  return r.finish();
}

}  // namespace braze::passes
