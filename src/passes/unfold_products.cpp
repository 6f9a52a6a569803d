#include "passes/unfold_products.h"

#include <unordered_map>

#include "graph/narrow_product.h"
#include "passes/builder.h"

namespace braze::passes {
namespace {

// Fewer elements of the result than these leave most of the device without work, where a library splits the sums.
constexpr int64_t kFewestColumns = 256;

bool is_float(DType d) { return d == DType::F32 || d == DType::F16 || d == DType::BF16; }

// mm(row, matrix), or addmm(bias, row, matrix) with `first` 1.
bool is_thin(const Graph& g, const Targets& targets, const Node& n, size_t first) {
  if (n.outputs.size() != 1 || !n.outputs[0].valid() || n.args.size() < first + 2) return false;
  auto *row = std::get_if<ValueId>(&n.args[first]), *matrix = std::get_if<ValueId>(&n.args[first + 1]);
  if (!row || !matrix || !row->valid() || !matrix->valid()) return false;
  const TensorType &out = g.type(n.outputs[0]), &m = g.type(*matrix), &x = g.type(*row);
  const sym::ExprArena& a = g.arena();
  // Neighbouring threads read neighbouring elements of one column.
  return targets.of(out.device).slow_thin_products && is_float(out.dtype) && x.dtype == out.dtype &&
         m.dtype == out.dtype && out.dim() == 2 && a.is_const(out.sizes[0], 1) &&
         a.range(out.sizes[1]).lo >= kFewestColumns && a.is_const(m.strides[0], 1) && !a.is_const(m.strides[1], 1);
}

}  // namespace

Graph unfold_products(const Graph& g, const Targets& targets) {
  Rewriter r(g);
  std::unordered_map<uint32_t, ValueId> rows;  // in the type that is computed in: of several products of one row
  for (const Node& n : g.nodes()) {
    bool biased = n.op == Op::addmm && is_one_or_absent(g, n, 3) && is_one_or_absent(g, n, 4);
    bool thin =
        (n.op == Op::mm && n.args.size() == 2 && is_thin(g, targets, n, 0)) || (biased && is_thin(g, targets, n, 1));
    thin = thin && !graph::is_narrow_product(g, n, targets);
    auto unfolded = [&](Builder& b) {
      ValueId& row = rows[b.tensor(biased).index];
      if (!row.valid()) row = b.compute(b.tensor(biased));
      ValueId matrix = b.compute(b.tensor(biased + 1));
      ValueId columns = b.call(Op::transpose_int, {matrix, b.k(0), b.k(1)});
      ValueId sum = b.view(b.sum(b.mul(columns, row), {1}, false), b.result(0).sizes);
      b.set(0, biased ? b.add(sum, b.compute(b.tensor(0))) : sum);
    };
    if (!thin || !rewrite(r, n, g, unfolded)) r.copy(n);
  }
  return r.finish();
}

}  // namespace braze::passes
