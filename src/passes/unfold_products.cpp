#include "passes/unfold_products.h"

#include <unordered_map>

#include "graph/narrow_product.h"
#include "passes/builder.h"

namespace braze::passes {

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
    if (!thin || !rewrite(r, n, g, unfolded)) r.copy(n);
  }
  return r.finish();
}

}  // namespace braze::passes
