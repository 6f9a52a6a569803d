#include "autodiff/partition.h"

#include <algorithm>
#include <cstdio>

#include "autodiff/copier.h"
#include "autodiff/cost.h"
#include "autodiff/cut.h"
#include "autodiff/dependence.h"
#include "autodiff/late_sums.h"
#include "autodiff/max_flow.h"
#include "base/check.h"
#include "graph/raises.h"
#include "graph/random.h"
#include "passes/symbols.h"
#include "symbolic/given_symbol.h"

namespace braze::autodiff {

using graph::Graph;
using graph::InputKind;
using graph::Node;
using graph::NodeId;
using graph::OpClass;
using graph::ValueId;

namespace {

class Partitioner {
 public:
  Partitioner(const Joint& joint, double budget)
      : g_(joint.graph),
        outputs_(joint.outputs),
        tangents_(joint.tangents),
        reads_(joint.reads),
        budget_(budget),
        is_tangent_(g_.inputs.size()) {
    for (uint32_t t : tangents_) is_tangent_[t] = true;
  }

  Partition run() {
    classify();
    find_repeats();
    late_sums_ = late_sums(g_, after_, root_, repeats_);
    keep_what_is_compared();
    keep_what_is_to_be_saved();
    weigh();
    choose();
    Partition out;
    out.forward = Graph(g_.shared_arena());
    out.backward = Graph(g_.shared_arena());
    make_forward(out);
    make_backward(out);
    find_reads(out);
    describe(out);
    return out;
  }

 private:
  static constexpr int64_t kInfinite = FlowNetwork::kInfinite;
  static constexpr int64_t kAliveAnyway = 1;  // the cost of a parameter

  bool is_view(const Node& n) const {
    return graph::op_class(n.op) == OpClass::View && !n.args.empty() && std::holds_alternative<ValueId>(n.args[0]);
  }
  bool primal(ValueId v) const { return tangents_of_[v.index].empty(); }
  const Node* producer(ValueId v) const {
    NodeId n = g_.value(v).node;
    return n.valid() ? &g_.node(n) : nullptr;
  }

  void classify() {
    size_t count = g_.values().size();
    tangents_of_ = tangents_of(g_, tangents_);
    root_.resize(count);
    for (size_t i = 0; i < count; ++i) root_[i] = ValueId(i);
    after_.resize(g_.nodes().size());
    for (size_t i = 0; i < g_.nodes().size(); ++i) {
      const Node& n = g_.node(NodeId(i));
      Graph::for_each_operand(n, [&](ValueId v) { after_[i] = after_[i] || !primal(v); });
      if (is_view(n))
        for (ValueId v : n.outputs)
          if (v.valid()) root_[v.index] = root_[std::get<ValueId>(n.args[0]).index];
    }
    binds_.resize(g_.nodes().size());
    for (const auto& [symbol, node] : passes::symbol_definitions(g_)) {
      binds_[node] = true;
      if (after_[node]) throw Unsupported(Reason::DynamicOutput, "a size that depends on the data of a gradient");
      bound_.push_back({symbol, node});
    }
    std::sort(bound_.begin(), bound_.end());
    // What the backward half reads of the forward half.
    read_.assign(count, false);
    for (size_t i = 0; i < g_.nodes().size(); ++i)
      if (after_[i])
        Graph::for_each_operand(g_.node(NodeId(i)), [&](ValueId v) {
          if (primal(v)) read_[v.index] = true;
        });
    for (size_t k = outputs_; k < g_.outputs.size(); ++k)
      if (ValueId v = g_.outputs[k]; v.valid() && primal(v)) read_[v.index] = true;
    // What it needs of it, directly or to do work again.
    needed_ = read_;
    for (size_t i = g_.nodes().size(); i-- > 0;) {
      if (after_[i]) continue;
      const Node& n = g_.node(NodeId(i));
      bool any =
          std::any_of(n.outputs.begin(), n.outputs.end(), [&](ValueId v) { return v.valid() && needed_[v.index]; });
      if (any) Graph::for_each_operand(n, [&](ValueId v) { needed_[v.index] = true; });
    }
    find_memory_that_is_read();
  }

  // Values that own memory which the captured backward reads.
  void find_memory_that_is_read() {
    read_memory_.assign(g_.values().size(), false);
    if (reads_) {
      for (uint32_t i : reads_->inputs) read_memory_[g_.inputs[i].value.index] = true;
      for (uint32_t k : reads_->outputs)
        if (ValueId v = g_.outputs[k]; v.valid()) read_memory_[root_[v.index].index] = true;
      return;
    }
    for (size_t i = 0; i < read_.size(); ++i)
      if (read_[i]) read_memory_[root_[i].index] = true;
  }

  void find_repeats() {
    repeats_.resize(g_.nodes().size());
    for (size_t i = 0; i < repeats_.size(); ++i)
      repeats_[i] = binds_[i] ? Repeat::Never : repeat(g_, g_.node(NodeId(i)));
  }

  // Costs of keeping values, and which may not be computed again.
  void weigh() {
    size_t count = g_.values().size();
    std::vector<bool> in_memory(count, false), read_root(count, false), visible(count, false);
    dear_read_.assign(count, false);
    copied_.assign(count, false);
    for (size_t k = 0; k < outputs_; ++k)
      if (g_.outputs[k].valid())
        in_memory[root_[g_.outputs[k].index].index] = visible[root_[g_.outputs[k].index].index] = true;
    for (size_t i = 0; i < count; ++i)
      if (read_[i]) read_root[root_[i].index] = true;
    for (size_t i = 0; i < g_.nodes().size(); ++i) {
      const Node& n = g_.node(NodeId(i));
      bool dear = repeats_[i] >= Repeat::Dear;
      if (!dear) continue;
      bool reduces = graph::op_class(n.op) == OpClass::Reduction;  // reads through its operand's formula
      for (ValueId v : n.outputs)
        if (v.valid()) in_memory[v.index] = true;
      if (!reduces)
        Graph::for_each_operand(n, [&](ValueId v) {
          ValueId root = root_[v.index];
          if (!primal(root)) return;
          if (after_[i])
            dear_read_[root.index] = true;
          else
            in_memory[root.index] = true;
        });
    }
    std::vector<bool> written(count, false), read_by_checkpoint(count, false), taken_from(count, false);
    for (const Node& n : g_.nodes())
      if (is_recompute(n.checkpoint.keep))
        Graph::for_each_operand(n, [&](ValueId v) { read_by_checkpoint[root_[v.index].index] = true; });
    for (size_t i = 0; i < g_.nodes().size(); ++i)
      if (const Node& n = g_.node(NodeId(i)); !after_[i] && takes_elements(n))
        Graph::for_each_operand(n, [&](ValueId v) { taken_from[root_[v.index].index] = true; });
    for (const graph::Writeback& w : g_.writebacks)
      written[w.input.index] = in_memory[root_[w.value.index].index] = true;

    cost_.assign(count, kInfinite);
    for (size_t i = 0; i < count; ++i) {
      ValueId v(i);
      if (!primal(v) || !needed_[i]) continue;
      if (root_[i] != v) continue;  // views: their bases
      const Node* n = producer(v);
      if (!n) {
        if (written[i]) {
          if (read_root[i])
            throw Unsupported(Reason::UnsupportedMutation, "an input is overwritten that the backward needs");
          if (read_by_checkpoint[i]) copied_[i] = true, cost_[i] = kCopied + bytes_of(g_, v);
          continue;
        }
        // The program may write to an argument or a buffer before the backward, which eager's does not read. Of
        // parameters that holds where the forward takes elements out of them, as from a codebook; biases and casts
        // are read again.
        InputKind kind = g_.inputs[g_.value(v).index].kind;
        if ((kind != InputKind::Parameter || taken_from[i]) && !read_memory_[i]) {
          cost_[i] = cost_of_a_copy(v);
          continue;
        }
        cost_[i] = kind == InputKind::Argument ? std::max<int64_t>(bytes_of(g_, v), kAliveAnyway) : kAliveAnyway;
        continue;
      }
      if (visible[i] && !read_memory_[i]) {
        cost_[i] = cost_of_a_copy(v);
        continue;
      }
      cost_[i] = std::max<int64_t>(bytes_of(g_, v), 1) * (in_memory[i] ? 1 : 2);
    }
  }

  CutProblem cut_problem() const {
    CutProblem p{g_, needed_, cost_, root_, {}, pinned_};
    for (size_t i = 0; i < p.needed.size(); ++i) p.needed[i] = p.needed[i] && primal(ValueId(i));
    for (size_t i = 0; i < g_.nodes().size(); ++i)
      if (const Node& n = g_.node(NodeId(i)); after_[i])
        Graph::for_each_operand(n, [&](ValueId v) {
          if (primal(v)) p.reads.push_back({v, n.checkpoint.region});
        });
    for (size_t k = outputs_; k < g_.outputs.size(); ++k)
      if (ValueId v = g_.outputs[k]; v.valid() && primal(v)) p.reads.push_back({v, 0});
    return p;
  }

  // Of memory that the program may write to: a copy is written as any value that the forward graph would not write.
  int64_t cost_of_a_copy(ValueId v) {
    copied_[v.index] = true;
    return 2 * std::max<int64_t>(bytes_of(g_, v), kAliveAnyway) + 1;
  }

  bool copied(ValueId v) const { return copied_[v.index]; }

  static bool takes_elements(const Node& n) {
    return graph::op_class(n.op) == OpClass::Index || n.op == graph::Op::clone;
  }

  int64_t kept_bytes(const std::vector<ValueId>& kept) const {
    int64_t sum = 0;
    for (ValueId v : kept)
      if (cost_[v.index] != kAliveAnyway || producer(v)) sum += bytes_of(g_, v);
    return sum;
  }

  // Whether `v` is a function of `from` by way of work that is done once: it was made from the bits that `from` had
  // then.
  bool made_once_from(ValueId v, ValueId from) const {
    std::vector<std::pair<ValueId, bool>> stack{{v, false}};
    std::vector<uint8_t> seen(g_.values().size());
    while (!stack.empty()) {
      auto [u, once] = stack.back();
      stack.pop_back();
      if (root_[u.index] == from && once) return true;
      const Node* n = producer(u);
      uint8_t bit = once ? 2 : 1;
      if (!n || u.index < from.index || (seen[u.index] & bit)) continue;
      seen[u.index] |= bit;
      bool through = once || repeats_[g_.value(u).node.index] >= Repeat::Dear;
      Graph::for_each_operand(*n, [&](ValueId o) { stack.emplace_back(o, through); });
    }
    return false;
  }

  // A value that is compared with what was made of it, as the gradient of a maximum does to find its place: computed
  // again, by another kernel, it may differ in its last bit, and then is nowhere equal. Such values are kept; of those
  // that may not be, the comparison is not done again.
  void keep_what_is_compared() {
    std::vector<bool> visible(g_.values().size());
    for (size_t k = 0; k < outputs_; ++k)
      if (g_.outputs[k].valid()) visible[root_[g_.outputs[k].index].index] = true;
    for (size_t i = 0; i < g_.nodes().size(); ++i) {
      const Node& n = g_.node(NodeId(i));
      if (!(graph::op_traits(n.op) & graph::kComparison) || n.args.size() < 2) continue;
      auto *a = std::get_if<ValueId>(&n.args[0]), *b = std::get_if<ValueId>(&n.args[1]);
      if (!a || !b) continue;
      bool in_backward = !primal(*a) || !primal(*b) || needed_[n.outputs[0].index];
      for (auto [value, made] : {std::pair{*a, *b}, std::pair{*b, *a}}) {
        ValueId root = root_[value.index];
        const Node* by = producer(root);
        if (!in_backward || !by || !primal(root) || repeats_[g_.value(root).node.index] >= Repeat::Dear) continue;
        if (!made_once_from(made, root)) continue;
        bool may_be_kept = !visible[root.index] || read_memory_[root.index];
        // A checkpoint keeps the answer, which is small.
        if (may_be_kept && (after_[i] || !is_recompute(by->checkpoint.keep)))
          pinned_.push_back(root);
        else if (!after_[i])
          once_.push_back(NodeId(i));
      }
    }
    for (ValueId v : pinned_) read_[v.index] = needed_[v.index] = true;
  }

  // What a checkpoint's policy says is to be saved, and the backward may need.
  void keep_what_is_to_be_saved() {
    for (size_t i = 0; i < g_.nodes().size(); ++i) {
      if (after_[i] || g_.node(NodeId(i)).checkpoint.keep != graph::Keep::MustSave) continue;
      for (ValueId v : g_.node(NodeId(i)).outputs)
        if (v.valid() && needed_[v.index] && producer(root_[v.index])) pinned_.push_back(root_[v.index]);
    }
    for (ValueId v : pinned_) read_[v.index] = needed_[v.index] = true;
  }

  // Whether what the node computes is kept, or what is made of it.
  bool is_done_once(NodeId id) const {
    const Node& n = g_.node(id);
    if (repeats_[id.index] == Repeat::Never) return true;
    if (is_recompute(n.checkpoint.keep)) return false;
    if (repeats_[id.index] >= Repeat::Dear || late_sums_[id.index]) return true;
    return repeats_[id.index] == Repeat::Fused && (n.checkpoint.keep == graph::Keep::PreferSave ||
                                                   std::any_of(n.outputs.begin(), n.outputs.end(), [&](ValueId v) {
                                                     return v.valid() && dear_read_[v.index];
                                                   }));
  }

  void choose() {
    std::vector<bool> pinned(g_.nodes().size(), false);
    for (ValueId v : pinned_) pinned[g_.value(v).node.index] = true;
    std::vector<bool> fixed = pinned;
    std::vector<std::pair<int64_t, size_t>> may;  // nodes that a smaller budget sets free
    for (size_t i = 0; i < fixed.size(); ++i) {
      if (after_[i]) continue;
      const Node& n = g_.node(NodeId(i));
      fixed[i] = fixed[i] || is_done_once(NodeId(i));
      if (fixed[i] && repeats_[i] != Repeat::Never && !pinned[i]) may.emplace_back(work_per_byte(g_, n), i);
    }
    for (NodeId n : once_) fixed[n.index] = true;
    CutProblem problem = cut_problem();
    auto cut = [&](const std::vector<bool>& which) { return cheapest_cut(problem, which); };
    kept_ = cut(fixed);
    if (budget_ >= 1 || may.empty()) return;
    auto limit = static_cast<int64_t>(static_cast<double>(kept_bytes(kept_)) * std::max(budget_, 0.0));
    std::sort(may.begin(), may.end());
    size_t lo = 0, hi = may.size();  // the fewest that are to be set free
    while (lo < hi) {
      size_t mid = (lo + hi) / 2;
      std::vector<bool> less = fixed;
      for (size_t k = 0; k < mid; ++k) less[may[k].second] = false;
      if (kept_bytes(cut(less)) <= limit)
        hi = mid;
      else
        lo = mid + 1;
    }
    for (size_t k = 0; k < lo; ++k) fixed[may[k].second] = false;
    kept_ = cut(fixed);
  }

  // Whether the forward half runs it, though nobody there reads its result.
  bool acts(const Node& n) const { return graph::traits_of(n) & graph::kEffect || graph::may_raise(g_, n); }

  void make_forward(Partition& out) {
    Copier copy(g_, out.forward);
    for (size_t i = 0; i < g_.inputs.size(); ++i)
      if (!is_tangent_[i]) copy.input(g_.inputs[i].value, g_.inputs[i].kind);
    std::vector<bool> live(g_.values().size(), false), keep(g_.nodes().size(), false);
    for (size_t k = 0; k < outputs_; ++k)
      if (g_.outputs[k].valid()) live[g_.outputs[k].index] = true;
    for (const graph::Writeback& w : g_.writebacks) live[w.value.index] = true;
    for (ValueId v : kept_) live[v.index] = true;
    for (size_t i = g_.nodes().size(); i-- > 0;) {
      if (after_[i]) continue;
      const Node& n = g_.node(NodeId(i));
      keep[i] = binds_[i] || acts(n);
      for (ValueId v : n.outputs) keep[i] = keep[i] || (v.valid() && live[v.index]);
      if (!keep[i]) continue;
      Graph::for_each_operand(n, [&](ValueId v) { live[v.index] = true; });
      out.random = out.random || (graph::traits_of(n) & graph::kNondeterministic);
    }
    for (size_t i = 0; i < keep.size(); ++i)
      if (keep[i]) copy.node(g_.node(NodeId(i)));
    for (size_t i = 0; i < out.forward.nodes().size(); ++i) out.forward.node(NodeId(i)).checkpoint = {};
    for (size_t k = 0; k < outputs_; ++k) out.forward.outputs.push_back(copy.map(g_.outputs[k]));
    for (const graph::Writeback& w : g_.writebacks)
      out.forward.writebacks.push_back({copy.map(w.input), copy.map(w.value)});
    out.forward.size_symbols = g_.size_symbols;
    saved_as_.resize(g_.values().size());
    for (ValueId v : kept_) {
      if (!producer(v) && !copied(v)) continue;
      ValueId f = copy.map(v);
      if (copied(v)) {
        TensorType type = out.forward.type(f);
        type.offset = g_.arena().constant(0);
        f = out.forward.node(out.forward.add_node(graph::Op::clone, {f, graph::NoneArg{}}, {type})).outputs[0];
      }
      auto at = std::find(out.forward.outputs.begin(), out.forward.outputs.end(), f);
      auto number = static_cast<uint32_t>(at - out.forward.outputs.begin());
      if (at == out.forward.outputs.end()) out.forward.outputs.push_back(f);
      saved_as_[v.index] = number;
      if (!producer(v)) {
        out.copies.push_back({forward_input(v), number});
        continue;
      }
      if (const Node& n = *producer(v); n.op == graph::Op::clone)
        if (ValueId from = std::get<ValueId>(n.args[0]);
            !producer(from) && g_.inputs[g_.value(from).index].kind != InputKind::Constant)
          out.copies.push_back({forward_input(from), number});
    }
  }

  // The number that an input has in the forward graph.
  uint32_t forward_input(ValueId v) const {
    uint32_t at = g_.value(v).index, n = 0;
    for (uint32_t i = 0; i < at; ++i) n += !is_tangent_[i];
    return n;
  }

  // What the forward graph finds out is given to the backward: symbols like any other there.
  std::vector<std::pair<sym::Expr, sym::Expr>> symbols_for_backward(Partition& out) const {
    std::vector<std::pair<sym::Expr, sym::Expr>> names;
    sym::ExprArena& arena = *g_.shared_arena();
    for (const auto& [id, node] : bound_) {
      sym::Expr symbol{id};
      names.emplace_back(symbol, arena.symbol("of_" + std::string(arena.symbol_name(symbol)), sym::SymbolKind::Size,
                                              arena.range(symbol)));
      out.bound.push_back(symbol);
    }
    return names;
  }

  void make_backward(Partition& out) {
    auto names = symbols_for_backward(out);
    Copier copy(g_, out.backward, names);
    auto input = [&](ValueId v, InputKind kind, Source source) {
      copy.input(v, kind);
      out.sources.push_back(source);
    };
    auto keep = [&](ValueId v) {
      if (!producer(v) && !copied(v)) {
        if (g_.inputs[g_.value(v).index].kind == InputKind::Constant) return;
        input(v, InputKind::Argument, {Source::Kind::Input, forward_input(v)});
        return;
      }
      input(v, InputKind::Argument, {Source::Kind::Saved, saved_as_[v.index]});
      if (copied(v)) out.backward.value(copy.map(v)).type.offset = g_.arena().constant(0);
    };
    // Constants come in the order in which their owner has them.
    uint32_t constant = 0;
    for (const graph::Input& in : g_.inputs)
      if (in.kind == InputKind::Constant) input(in.value, InputKind::Constant, {Source::Kind::Constant, constant++});
    for (ValueId v : kept_) keep(v);
    for (uint32_t t = 0; t < tangents_.size(); ++t)
      input(g_.inputs[tangents_[t]].value, InputKind::Argument, {Source::Kind::Tangent, t});

    // Work that is done again comes right before its first reader, so that its result is not held for long.
    std::vector<bool> done(g_.nodes().size(), false);
    std::vector<size_t> stack;
    auto emit = [&](size_t root) {
      stack.push_back(root);
      while (!stack.empty()) {
        size_t i = stack.back();
        const Node& n = g_.node(NodeId(i));
        size_t before = stack.size();
        if (!done[i])
          Graph::for_each_operand(n, [&](ValueId v) {
            if (copy.has(v)) return;
            NodeId p = g_.value(v).node;
            BRAZE_CHECK(p.valid(), "the backward reads an input that is not kept");
            if (!done[p.index]) stack.push_back(p.index);
          });
        if (stack.size() != before) continue;
        stack.pop_back();
        if (done[i]) continue;
        done[i] = true;
        copy.node(n);
        if (!after_[i]) {
          BRAZE_CHECK(repeats_[i] != Repeat::Never, "a random operator would run twice");
          again_.push_back(NodeId(i));
        }
      }
    };
    std::vector<bool> live(g_.nodes().size(), false);
    std::vector<bool> wanted(g_.values().size(), false);
    for (size_t k = outputs_; k < g_.outputs.size(); ++k)
      if (g_.outputs[k].valid()) wanted[g_.outputs[k].index] = true;
    for (size_t i = g_.nodes().size(); i-- > 0;) {
      const Node& n = g_.node(NodeId(i));
      if (!after_[i]) continue;
      live[i] = binds_[i] || (graph::traits_of(n) & graph::kEffect);  // eager's forward has asked what may raise
      for (ValueId v : n.outputs) live[i] = live[i] || (v.valid() && wanted[v.index]);
      if (live[i]) Graph::for_each_operand(n, [&](ValueId v) { wanted[v.index] = true; });
    }
    for (size_t i = 0; i < live.size(); ++i)
      if (live[i]) emit(i);
    for (size_t k = outputs_; k < g_.outputs.size(); ++k) {
      ValueId v = g_.outputs[k];
      if (v.valid() && !copy.has(v)) emit(g_.value(v).node.index);
      out.backward.outputs.push_back(copy.map(v));
      out.depends_on.push_back(v.valid() ? tangents_of_[v.index] : std::vector<uint32_t>());
    }
    for (size_t i = 0; i < out.backward.nodes().size(); ++i)
      if (graph::Checkpoint& c = out.backward.node(NodeId(i)).checkpoint; c.region) c.again = true;
    // Who runs the backward knows the values that the forward ran with.
    for (const auto& [symbol, origin] : g_.size_symbols)
      out.backward.size_symbols.push_back({symbol, {sym::kGivenSymbol, 0}});
    for (const auto& [symbol, given] : names) out.backward.size_symbols.push_back({given, {sym::kGivenSymbol, 0}});
  }

  void find_reads(Partition& out) const {
    // Sizes that depend on data, and checks, are part of the forward half.
    std::vector<bool> needed = needed_;
    for (size_t i = g_.nodes().size(); i-- > 0;) {
      const Node& n = g_.node(NodeId(i));
      if (after_[i]) continue;
      bool any = binds_[i] || acts(n);
      for (ValueId v : n.outputs) any = any || (v.valid() && needed[v.index]);
      if (any) Graph::for_each_operand(n, [&](ValueId v) { needed[v.index] = true; });
    }
    for (size_t i = 0; i < g_.inputs.size(); ++i) {
      ValueId v = g_.inputs[i].value;
      if (is_tangent_[i] || g_.inputs[i].kind == InputKind::Constant) continue;
      if (read_memory_[v.index]) out.read_inputs.push_back(forward_input(v));
      if (needed[v.index]) out.needed_inputs.push_back(forward_input(v));
    }
    for (size_t k = 0; k < outputs_; ++k) {
      ValueId v = g_.outputs[k];
      if (v.valid() && producer(root_[v.index]) && read_memory_[root_[v.index].index])
        out.read_outputs.push_back(static_cast<uint32_t>(k));
    }
  }

  std::string name_of(ValueId v) const {
    const Node* n = producer(v);
    if (n) return n->op == graph::Op::Extern ? n->extern_name : std::string(graph::op_name(n->op));
    const graph::Input& in = g_.inputs[g_.value(v).index];
    return in.kind == InputKind::Parameter ? "parameter" : in.kind == InputKind::Buffer ? "buffer" : "input";
  }

  void describe(Partition& out) const {
    for (ValueId v : kept_)
      out.saved.push_back({name_of(v), bytes_of(g_, v), producer(v) ? producer(v)->loc : graph::LocId()});
    out.saved_bytes = kept_bytes(kept_);
    for (NodeId i : again_) {
      const Node& n = g_.node(i);
      if (repeats_[i.index] == Repeat::Free) continue;
      int64_t bytes = 0;
      for (ValueId v : n.outputs)
        if (v.valid()) bytes += bytes_of(g_, v);
      out.recomputed.push_back(
          {n.op == graph::Op::Extern ? n.extern_name : std::string(graph::op_name(n.op)), bytes, n.loc});
    }
  }

  const Graph& g_;
  size_t outputs_;
  const std::vector<uint32_t>& tangents_;
  const std::optional<Joint::Reads>& reads_;
  double budget_;
  std::vector<bool> is_tangent_;                    // per input
  std::vector<std::vector<uint32_t>> tangents_of_;  // per value: the tangents that it depends on, ascending
  std::vector<ValueId> root_;                       // per value: what it is a view of, in the end
  std::vector<bool> after_;                         // per node: depends on a tangent
  std::vector<bool> read_, needed_, dear_read_;     // per value
  std::vector<bool> read_memory_;                   // per value
  std::vector<Repeat> repeats_;                     // per node
  std::vector<bool> late_sums_;                     // per node: autodiff/late_sums.h
  std::vector<bool> binds_;                         // per node: symbols get their values there
  std::vector<std::pair<uint32_t, size_t>> bound_;  // symbols that the forward half binds, by Expr::id; their nodes
  std::vector<int64_t> cost_;                       // per value, of keeping it
  std::vector<bool> copied_;                        // per value: it would be kept as a copy
  std::vector<ValueId> pinned_;                     // computed once, and kept
  std::vector<NodeId> once_;                        // not repeated, cheap as they are
  std::vector<ValueId> kept_;
  std::vector<NodeId> again_;
  std::vector<uint32_t> saved_as_;  // per kept value: the number of the forward's output
};

std::string lines(const Graph& g, const std::vector<Kept>& items) {
  std::string out;
  for (const Kept& k : items) {
    char bytes[32];
    std::snprintf(bytes, sizeof bytes, "%14lld  ", static_cast<long long>(k.bytes));
    out += bytes + k.what;
    if (k.loc.valid()) {
      const graph::Location& l = g.locations()[k.loc];
      out += "  " + l.file + ":" + std::to_string(l.line);
    }
    out += "\n";
  }
  return out;
}

}  // namespace

Partition::Partition() : forward(std::make_shared<sym::ExprArena>()), backward(std::make_shared<sym::ExprArena>()) {}

std::string Partition::report() const {
  int64_t again = 0;
  for (const Kept& k : recomputed) again += k.bytes;
  return "saved for the backward: " + std::to_string(saved.size()) + " values, " + std::to_string(saved_bytes) +
         " bytes without parameters\n" + lines(forward, saved) +
         "recomputed in the backward: " + std::to_string(recomputed.size()) + " operators, " + std::to_string(again) +
         " bytes\n" + lines(forward, recomputed);
}

Partition partition(const Joint& joint, double memory_budget) { return Partitioner(joint, memory_budget).run(); }

}  // namespace braze::autodiff
