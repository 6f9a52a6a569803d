#include "passes/ask_less.h"

#include <algorithm>

#include "passes/rewrite.h"

namespace braze::passes {
namespace {

struct Rule {
  std::string_view name;
  size_t values;  // the result that is computed in any case
  int flag;       // the argument that asks for the others; -1: `alone` does without them
  std::string_view alone;
};
constexpr Rule kRules[] = {
    {"aten::_linalg_svd", 1, 2, {}},
    {"aten::_linalg_eigh", 0, 2, {}},
    {"aten::linalg_eig", 0, -1, "aten::_linalg_eigvals"},
};

// The rule by which the node's other results can be left out.
const Rule* rule_for(const Node& n, const std::vector<uint32_t>& uses) {
  if (n.op != Op::Extern) return nullptr;
  auto rule =
      std::find_if(std::begin(kRules), std::end(kRules), [&](const Rule& r) { return r.name == n.extern_name; });
  if (rule == std::end(kRules)) return nullptr;
  for (size_t i = 0; i < n.outputs.size(); ++i)
    if (i != rule->values && n.outputs[i].valid() && uses[n.outputs[i].index]) return nullptr;
  return rule;
}

}  // namespace

Graph ask_less(Graph g) {
  std::vector<uint32_t> uses = use_counts(g);
  bool any = false;
  for (const Node& n : g.nodes()) any |= rule_for(n, uses) != nullptr;
  if (!any) return g;
  Rewriter r(g);
  for (const Node& n : g.nodes()) {
    const Rule* rule = rule_for(n, uses);
    if (!rule) {
      r.copy(n);
    } else if (rule->flag < 0) {
      ValueId values = n.outputs[rule->values];
      NodeId now =
          r.out().add_node(Op::Extern, r.map_args(n), {g.type(values)}, n.origin(), std::string(rule->alone), {-1});
      r.replace(values, r.out().node(now).outputs[0]);
    } else {
      std::vector<Arg> args = r.map_args(n);
      args.at(rule->flag) = false;
      NodeId now = r.copy(n, std::move(args));
      for (size_t i = 0; i < n.outputs.size(); ++i) {  // the others are empty now
        if (i == rule->values || !n.outputs[i].valid()) continue;
        TensorType& type = r.out().value(r.out().node(now).outputs[i]).type;
        type.sizes = {g.arena().constant(0)};
        type.strides = {g.arena().constant(1)};
      }
    }
  }
  return r.finish();
}

}  // namespace braze::passes
