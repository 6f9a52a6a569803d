#include "passes/decompose.h"

#include <unordered_map>

#include "passes/builder.h"

namespace braze::passes {
namespace {

DecomposeRule rule_of(Op op) {
  for (auto family : {softmax_rule, norm_rule, norm_backward_rule, loss_rule, misc_rule, quantize_rule, distance_rule,
                      bag_rule, search_rule})
    if (DecomposeRule rule = family(op)) return rule;
  return nullptr;
}

DecomposeRule rule_named(std::string_view name) {
  static const auto* rules = [] {
    auto* all = new std::unordered_map<std::string_view, DecomposeRule>;
    for (auto family : {copy_rules, search_rules, few_rules, loss_rules, polynomial_rules, quantize_rules,
                        factory_rules, distance_rules})
      for (const NamedRule& r : family()) all->emplace(r.name, r.rule);
    return all;
  }();
  auto it = rules->find(name);
  return it == rules->end() ? nullptr : it->second;
}

}  // namespace

Graph decompose(const Graph& g) {
  Rewriter r(g);
  for (const Node& n : g.nodes()) {
    if (g.leaves_float8(n)) {
      r.copy(n);
      continue;
    }
    DecomposeRule rule = n.op == Op::Extern ? rule_named(n.extern_name) : rule_of(n.op);
    bool foreach = n.op == Op::Extern && n.extern_name.starts_with("aten::_foreach_");
    bool done = rule ? rewrite(r, n, g, rule) : foreach && rewrite(r, n, g, decompose_foreach);
    if (!done) r.copy(n);
  }
  return r.finish();
}

}  // namespace braze::passes
