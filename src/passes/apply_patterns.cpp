#include "passes/apply_patterns.h"

#include <iterator>
#include <unordered_map>

#include "passes/term.h"

namespace braze::passes {
namespace {

enum class PatternIf : uint8_t { Always, Signed, Integral, Exact };

struct PatternRow {
  std::string_view from, to;
  PatternIf asks;
};
constexpr PatternRow kPatternRows[] = {
#define BRAZE_PATTERN(name, from, to, asks) {from, to, PatternIf::asks},
#include "passes/patterns.def"
#undef BRAZE_PATTERN
};

constexpr std::string_view kPatternNames[] = {
#define BRAZE_PATTERN(name, from, to, asks) #name,
#include "passes/patterns.def"
#undef BRAZE_PATTERN
};

struct Rewriting {
  Term from, to;
  PatternIf asks;
};

// By the operator that they end with, whatever its overload.
const std::unordered_map<std::string, std::vector<Rewriting>>& rewritings() {
  static const auto all = [] {
    std::unordered_map<std::string, std::vector<Rewriting>> out;
    for (const PatternRow& row : kPatternRows) {
      Rewriting p{parse_term(row.from), parse_term(row.to), row.asks};
      std::string root = p.from.name.substr(0, p.from.name.find('.'));
      out[std::move(root)].push_back(std::move(p));
    }
    return out;
  }();
  return all;
}

bool same_device_and_sizes(const TensorType& a, const TensorType& b) {
  return a.device == b.device && a.sizes == b.sizes;
}

bool is_met(const Graph& g, const Rewriting& p, const Node& n, const Bindings& names) {
  const TensorType& out = g.type(n.outputs[0]);
  switch (p.asks) {
    case PatternIf::Always: return true;
    case PatternIf::Signed: return out.dtype != DType::U8;
    case PatternIf::Integral: return !is_floating(out.dtype) && !is_complex(out.dtype);
    case PatternIf::Exact: {
      const TensorType& x = g.type(names.tensor("x"));
      const TensorType& between = g.type(std::get<ValueId>(n.args[0]));
      return x.dtype == out.dtype && holds_all_of(between.dtype, x.dtype) && same_device_and_sizes(x, between);
    }
  }
  return false;
}

}  // namespace

std::span<const std::string_view> pattern_names() { return kPatternNames; }

Graph apply_patterns(const Graph& g) {
  const std::vector<bool> leaves = escaping(g);
  const Matcher matcher(g);
  Rewriter r(g);
  auto apply = [&](const Rewriting& p, const Node& n) {
    Bindings names;
    std::vector<NodeId> below;
    if (!matcher.matches(p.from, n, names, below) || !is_met(g, p, n, names)) return false;
    const ValueId out = n.outputs[0];
    const TensorType& type = g.type(out);
    if (p.to.kind == Term::Kind::Tensor) {  // what leaves the graph is memory of its own
      const ValueId x = names.tensor(p.to.name);
      const TensorType& t = g.type(x);
      const bool same = t.dtype == type.dtype && same_device_and_sizes(t, type) && t.strides == type.strides;
      if (same && !leaves[out.index]) r.replace(out, r.map(x));
      return same && !leaves[out.index];
    }
    return rewrite(r, n, g, [&](Builder& b) {
      Arg now = write(b, p.to, [&](std::string_view name) {
        const Arg& a = *names.find(name);
        auto* v = std::get_if<ValueId>(&a);
        return v ? Arg(r.map(*v)) : a;
      });
      const TensorType& t = b.type(std::get<ValueId>(now));
      if (t.dtype != type.dtype || !same_device_and_sizes(t, type)) return false;
      b.set(0, std::get<ValueId>(now));
      return true;
    });
  };
  for (const Node& n : g.nodes()) {
    bool done = false;
    if (n.op != Op::Extern && !g.leaves_float8(n) && n.outputs.size() == 1 && n.outputs[0].valid()) {
      const std::string_view name = graph::op_name(n.op);
      const auto found = rewritings().find(std::string(name.substr(0, name.find('.'))));
      if (found != rewritings().end())
        for (const Rewriting& p : found->second)
          if ((done = apply(p, n))) break;
    }
    if (!done) r.copy(n);
  }
  return r.finish();
}

}  // namespace braze::passes
