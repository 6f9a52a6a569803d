#include "passes/decompose.h"

#include "passes/builder.h"

namespace braze::passes {
namespace {

DecomposeRule rule_of(Op op) {
  for (auto family : {softmax_rule, norm_rule, norm_backward_rule, loss_rule, misc_rule})
    if (DecomposeRule rule = family(op)) return rule;
  return nullptr;
}

}  // namespace

Graph decompose(const Graph& g) {
  Rewriter r(g);
  for (const Node& n : g.nodes()) {
    if (g.leaves_float8(n)) {
      r.copy(n);
      continue;
    }
    DecomposeRule rule = n.op == Op::Extern ? nullptr : rule_of(n.op);
    bool foreach = n.op == Op::Extern && n.extern_name.starts_with("aten::_foreach_");
    bool done = rule ? rewrite(r, n, g, rule) : foreach && rewrite(r, n, g, decompose_foreach);
    if (!done) r.copy(n);
  }
  return r.finish();
}

}  // namespace braze::passes
