#include "passes/keep_checks.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "graph/raises.h"
#include "graph/random.h"
#include "passes/builder.h"
#include "passes/symbols.h"

namespace braze::passes {
namespace {

using graph::IndexCheck;
using graph::OpClass;

// How much of a value the forward half computes for its readers.
enum class Read : uint8_t { None, Part, All };

class Keeper {
 public:
  Keeper(const Graph& g, size_t results, const std::vector<uint32_t>& tangents)
      : g_(g),
        read_(g.values().size(), Read::None),
        later_(g.values().size()),
        used_later_(g.values().size()),
        keep_(g.nodes().size()),
        split_(g.nodes().size()) {
    for (uint32_t t : tangents) later_[g.inputs[t].value.index] = true;
    for (size_t k = 0; k < g.outputs.size(); ++k)
      if (ValueId v = g.outputs[k]; v.valid() && k < results)
        read(v, Read::All);
      else if (v.valid())
        used_later_[v.index] = true;
    for (const graph::Writeback& w : g.writebacks) read(w.value, Read::All);
  }

  Graph run() {
    for (const Node& n : g_.nodes()) {
      bool after = false;
      Graph::for_each_operand(n, [&](ValueId v) { after = after || later_[v.index]; });
      for (ValueId v : n.outputs)
        if (v.valid()) later_[v.index] = after;
    }
    const auto defined = symbol_definitions(g_);
    std::vector<bool> defines(g_.nodes().size());
    for (const auto& [symbol, node] : defined) defines[node] = true;
    for (size_t i = g_.nodes().size(); i-- > 0;) visit(i, defines[i]);
    return rewritten();
  }

 private:
  void read(ValueId v, Read how) { read_[v.index] = std::max(read_[v.index], how); }
  // Where no result is left that would say so, too. While `asked` has elements, if that one is given.
  bool may_be_empty(const Node& n, ValueId asked = {}) const {
    auto v = std::find_if(n.outputs.begin(), n.outputs.end(), [](ValueId o) { return o.valid(); });
    if (v == n.outputs.end()) return true;
    const std::vector<Expr>& sizes = g_.type(*v).sizes;
    const std::vector<Expr> own = asked.valid() ? g_.type(asked).sizes : std::vector<Expr>();
    return std::any_of(sizes.begin(), sizes.end(), [&](Expr s) {
      return g_.arena().range(s).lo < 1 && std::find(own.begin(), own.end(), s) == own.end();
    });
  }

  void visit(size_t i, bool forced) {
    const Node& n = g_.node(NodeId(i));
    forced = forced || graph::traits_of(n) & graph::kEffect;
    bool after = false, any_later = false;
    Graph::for_each_operand(n, [&](ValueId v) { after = after || later_[v.index]; });
    Read least = Read::All, most = Read::None;
    for (ValueId v : n.outputs) {
      Read how = v.valid() ? read_[v.index] : Read::None;
      least = std::min(least, how), most = std::max(most, how);
      any_later = any_later || (v.valid() && used_later_[v.index]);
    }
    auto used_by_backward = [&] { Graph::for_each_operand(n, [&](ValueId v) { used_later_[v.index] = true; }); };
    if (after) {  // what eager's backward asks was asked by its forward
      keep_[i] = forced || any_later;
      if (keep_[i]) used_by_backward();
      return;
    }
    if (graph::may_raise(g_, n) && !forced &&
        !(most != Read::None && (least == Read::All || !graph::asks_by_element(n)))) {
      split_[i] = can_be_split(n);
      if (!split_[i]) forced = true;
      for (const IndexCheck& c : graph::index_checks(g_, n))
        if (split_[i]) read(c.values, Read::All);
      if (Arg divisor = graph::possible_zero(g_, n); split_[i] && std::holds_alternative<ValueId>(divisor))
        read(std::get<ValueId>(divisor), Read::All);
    }
    keep_[i] = forced || most != Read::None || any_later;
    if (forced || most != Read::None)
      read_operands(n, forced ? Read::All : std::max(least, Read::Part));
    else if (any_later)
      used_by_backward();
  }

  // Where nothing is gathered, or no place is there, eager asks other things.
  bool can_be_split(const Node& n) const {
    if (graph::op_row(n.op).raises == graph::Raises::ZeroDivisor) return true;
    auto checks = graph::index_checks(g_, n);
    return !checks.empty() && std::none_of(checks.begin(), checks.end(),
                                           [&](const IndexCheck& c) { return g_.arena().range(c.size).lo < 1; });
  }

  void read_operands(const Node& n, Read of_result) {
    auto all = [&](Read how) { Graph::for_each_operand(n, [&](ValueId v) { read(v, how); }); };
    if (n.op == Op::Extern) return all(Read::All);
    // Nothing is computed for a result of no elements.
    const Read by_element = !n.outputs.empty() && may_be_empty(n) ? std::min(of_result, Read::Part) : of_result;
    switch (graph::op_class(n.op)) {
      case OpClass::View: return all(graph::shows_all(g_, n) ? of_result : Read::Part);
      case OpClass::Factory:
      case OpClass::Pointwise:
        for (size_t i = 0; i < n.args.size(); ++i)
          if (auto* v = std::get_if<ValueId>(&n.args[i]); v && graph::lends_type_alone(n, i))
            used_later_[v->index] = true;  // it stays in the graph, but is not computed
          else if (v)
            read(*v, by_element);
        return;
      case OpClass::Random: return all(Read::Part);
      case OpClass::Index:
        all(writes(n) ? Read::All : Read::Part);
        if (graph::asks_by_element(n))
          for (const IndexCheck& c : graph::index_checks(g_, n)) read(c.values, by_element);
        return;
      default: return all(Read::All);
    }
  }

  // Copies all that it is given.
  bool writes(const Node& n) const {
    return n.op == Op::cat || n.op == Op::stack || (!graph::asks_by_element(n) && !graph::index_checks(g_, n).empty());
  }

  Graph rewritten() {
    Rewriter r(g_);
    std::set<std::tuple<uint32_t, uint32_t, std::string_view, bool, uint8_t>> asked;
    for (size_t i = 0; i < g_.nodes().size(); ++i) {
      const Node& n = g_.node(NodeId(i));
      if (split_[i])
        for (const IndexCheck& c : graph::index_checks(g_, n)) {
          if (!graph::asks_of_empty(n) && may_be_empty(n, c.values)) continue;
          if (!asked.emplace(c.values.index, c.size.id, c.fault, c.wrap, c.dim).second) continue;
          add(r, n, {r.map(c.values), std::string(c.fault), c.size, c.wrap, g_.arena().constant(c.dim)});
        }
      if (split_[i]) check_divisor(r, n);
      if (keep_[i]) r.copy(n);
    }
    return r.finish();
  }

  static void add(Rewriter& r, const Node& n, std::vector<Arg> args) {
    r.out().add_node(Op::check, std::move(args), {}, {n.loc, {}});
  }

  void check_divisor(Rewriter& r, const Node& n) {
    Arg divisor = graph::possible_zero(g_, n);
    if (std::holds_alternative<NoneArg>(divisor) || may_be_empty(n)) return;
    ValueId v;
    if (auto* tensor = std::get_if<ValueId>(&divisor)) {
      v = r.map(*tensor);
    } else {
      Builder b(r.out(), n, {}, g_);
      v = b.full({}, divisor, DType::I64, Device{});
    }
    add(r, n, {v, std::string("Division"), NoneArg{}, false, NoneArg{}});
  }

  const Graph& g_;
  std::vector<Read> read_;                // per value
  std::vector<bool> later_, used_later_;  // per value: computed, named in the backward half
  std::vector<bool> keep_, split_;        // per node: it stays; what it asks is asked by itself
};

}  // namespace

Graph keep_checks(const Graph& g, size_t results, const std::vector<uint32_t>& tangents) {
  bool any = std::any_of(g.nodes().begin(), g.nodes().end(), [&](const Node& n) { return graph::may_raise(g, n); });
  return any ? Keeper(g, results, tangents).run() : g;
}

}  // namespace braze::passes
