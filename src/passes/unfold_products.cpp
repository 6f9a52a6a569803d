#include "passes/unfold_products.h"

#include <optional>
#include <unordered_map>

#include "graph/narrow_product.h"
#include "passes/builder.h"

namespace braze::passes {
namespace {

// A product of which one factor is a vector, or one for each matrix of a batch, by the positions of its arguments.
struct VectorProduct {
  size_t matrix, vector;
  bool vector_first;  // rows of one element each: [.., 1, k] times [.., k, n]; else [.., n, k] times [.., k] or [.., k,
                      // 1]
  bool biased;
};

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
  for (size_t i = 0; i < 2u + biased; ++i) {
    auto* v = std::get_if<ValueId>(&n.args[i]);
    if (!v || !v->valid() || g.type(*v).dtype != out.dtype || g.type(*v).device != out.device) return std::nullopt;
  }
  const sym::ExprArena& a = g.arena();
  VectorProduct p{biased, biased + 1u, false, biased};
  if (n.op != Op::mv && n.op != Op::addmv && !a.is_const(out.sizes.back(), 1)) {
    if (!a.is_const(out.sizes[out.dim() - 2], 1)) return std::nullopt;
    p = {biased + 1u, biased, true, biased};
  }
  const TensorType& m = g.type(std::get<ValueId>(n.args[p.matrix]));
  const size_t k = m.dim() - (p.vector_first ? 2 : 1), rows = m.dim() - (p.vector_first ? 1 : 2);
  constexpr int64_t kFewestSums = 4, kSmall = 8192;  // elements of a matrix
  const auto n_rows = a.as_const(m.sizes[rows]), n_k = a.as_const(m.sizes[k]);
  const bool small = n_rows && n_k && *n_rows <= kSmall && *n_k <= kSmall && *n_rows * *n_k <= kSmall;
  const bool along = a.is_const(m.strides[k], 1) && !a.is_const(m.strides[rows], 1);
  if ((!along && !small) || a.range(m.sizes[rows]).lo < kFewestSums) return std::nullopt;
  return p;
}

void unfold(Builder& b, const VectorProduct& p) {
  ValueId matrix = b.tensor(p.matrix), vector = b.tensor(p.vector);
  if (p.vector_first) matrix = b.call(Op::transpose_int, {matrix, b.k(-2), b.k(-1)});
  if (!p.vector_first && b.rank(vector) > 1) vector = b.call(Op::transpose_int, {vector, b.k(-2), b.k(-1)});
  ValueId sum = b.sum(b.mul(matrix, vector), {static_cast<int64_t>(b.rank(matrix)) - 1}, false);
  sum = b.view(sum, b.result(0).sizes);
  b.set(0, p.biased ? b.add(sum, b.tensor(0)) : sum);
}

}  // namespace

Graph unfold_products(const Graph& g, const Targets& targets) {
  Rewriter r(g);
  std::unordered_map<uint32_t, ValueId> rows;  // in the type that is computed in: of several products of one row
  for (const Node& n : g.nodes()) {
    const bool biased = n.op == Op::addmm;
    const bool thin = graph::is_thin_product(g, n, targets);
    auto unfolded = [&](Builder& b) {
      ValueId& row = rows[b.tensor(biased).index];
      if (!row.valid()) row = b.compute(b.tensor(biased));
      ValueId matrix = b.compute(b.tensor(biased + 1));
      ValueId columns = b.call(Op::transpose_int, {matrix, b.k(0), b.k(1)});
      ValueId sum = b.view(b.sum(b.mul(columns, row), {1}, false), b.result(0).sizes);
      b.set(0, biased ? b.add(sum, b.compute(b.tensor(0))) : sum);
    };
    if (thin && rewrite(r, n, g, unfolded)) continue;
    const auto p = thin ? std::nullopt : vector_product(g, n, targets);
    if (!p || !rewrite(r, n, g, [&](Builder& b) { unfold(b, *p); })) r.copy(n);
  }
  return r.finish();
}

}  // namespace braze::passes
