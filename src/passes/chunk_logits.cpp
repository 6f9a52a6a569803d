#include "passes/chunk_logits.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "passes/builder.h"

namespace braze::passes {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const std::string kTarget = "target", kAgain = "again";

constexpr int64_t kWorth = int64_t{64} << 20, kWorthOfCpu = int64_t{256} << 20;  // bytes of logits
constexpr int64_t kLeastClasses = 1 << 14;  // a vocabulary, where the number of rows is open
constexpr int64_t kChunk = int64_t{128} << 20, kFewest = 4, kMost = 16, kAligned = 64;

struct Chunk {
  int64_t begin, end;
};

// Nodes around one loss, of the old graph.
struct Pattern {
  const Node *loss = nullptr, *softmax = nullptr, *product = nullptr, *loss_backward = nullptr,
             *softmax_backward = nullptr;
  std::vector<NodeId> gone;   // that are not made
  std::vector<NodeId> sinks;  // that read the gradient of the logits: products and sums
  std::vector<Chunk> chunks;
  int64_t classes = 0;
};

const ValueId* value(const Node& n, size_t i) {
  auto* v = i < n.args.size() ? std::get_if<ValueId>(&n.args[i]) : nullptr;
  return v && v->valid() ? v : nullptr;
}

class Finder {
 public:
  Finder(const Graph& g, const Targets& targets) : g_(g), targets_(targets), users_(g.values().size()) {
    for (size_t i = 0; i < g.nodes().size(); ++i)
      Graph::for_each_operand(g.node(NodeId(i)), [&](ValueId v) { users_[v.index].push_back(NodeId(i)); });
    leaves_.resize(g.values().size());
    for (ValueId v : g.outputs)
      if (v.valid()) leaves_[v.index] = true;
    for (const graph::Writeback& w : g.writebacks) leaves_[w.value.index] = leaves_[w.input.index] = true;
  }

  std::optional<Pattern> find(const Node& loss) {
    Pattern p;
    p.loss = &loss;
    if (loss.op != Op::nll_loss_forward || loss.args.size() < 5 || !find_logits(p) || !find_backward(p))
      return std::nullopt;
    return cut(p) ? std::optional(p) : std::nullopt;
  }

 private:
  const Node* maker(ValueId v) const {
    NodeId n = g_.value(v).node;
    return n.valid() ? &g_.node(n) : nullptr;
  }
  NodeId id_of(const Node& n) const { return NodeId(static_cast<size_t>(&n - &g_.node(NodeId(size_t{0})))); }
  bool is_const(Expr e, int64_t n) const { return g_.arena().is_const(e, n); }
  bool last_dim(const Node& n, size_t i, size_t rank) const {
    auto* e = i < n.args.size() ? std::get_if<Expr>(&n.args[i]) : nullptr;
    return e && (is_const(*e, -1) || is_const(*e, static_cast<int64_t>(rank) - 1));
  }
  // Sees the same elements in the same order, or converts each.
  static bool passes_on(const Node& n) { return n.op == Op::view || n.op == Op::_unsafe_view || n.op == Op::_to_copy; }

  bool find_logits(Pattern& p) {
    const ValueId *logp = value(*p.loss, 0), *target = value(*p.loss, 1);
    if (!logp || !target || g_.type(*target).dim() != 1 || g_.type(*target).dtype != DType::I64) return false;
    p.softmax = maker(*logp);
    if (!p.softmax || p.softmax->op != Op::_log_softmax || g_.type(*logp).dim() != 2 || leaves_[logp->index] ||
        !last_dim(*p.softmax, 1, 2))
      return false;
    auto classes = g_.arena().as_const(g_.type(*logp).sizes[1]);
    if (!classes) return false;
    p.classes = *classes;
    p.gone.push_back(id_of(*p.softmax));
    for (ValueId v = *value(*p.softmax, 0);;) {
      if (leaves_[v.index] || users_[v.index].size() != 1 || !is_floating(g_.type(v).dtype) ||
          !is_const(g_.type(v).sizes.back(), p.classes))
        return false;
      const Node* n = maker(v);
      if (!n) return false;
      p.gone.push_back(id_of(*n));
      if (!passes_on(*n)) {
        p.product = n;
        break;
      }
      v = *value(*n, 0);
    }
    const Node& n = *p.product;
    const size_t first = n.op == Op::addmm ? 1 : 0;
    if (n.op != Op::mm && n.op != Op::addmm) return false;
    if (n.args.size() < first + 2 || n.args.size() > (first ? 5 : 2)) return false;  // not one of ours
    if (first && (!is_one_or_absent(g_, n, 3) || !is_one_or_absent(g_, n, 4) || g_.type(*value(n, 0)).dim() != 1 ||
                  !is_const(g_.type(*value(n, 0)).sizes[0], p.classes)))
      return false;
    return g_.type(n.outputs[0]).sizes == g_.type(*logp).sizes;
  }

  bool find_backward(Pattern& p) {
    ValueId logp = p.softmax->outputs[0];
    for (NodeId user : users_[logp.index]) {
      const Node& n = g_.node(user);
      if (&n == p.loss) continue;
      const Node** slot = n.op == Op::nll_loss_backward            ? &p.loss_backward
                          : n.op == Op::_log_softmax_backward_data ? &p.softmax_backward
                                                                   : nullptr;
      if (!slot || *slot || !value(n, 1) || *value(n, 1) != logp) return false;
      *slot = &n;
      p.gone.push_back(user);
    }
    p.gone.push_back(id_of(*p.loss));
    if (!p.loss_backward && !p.softmax_backward) return true;
    if (!p.loss_backward || !p.softmax_backward || !last_dim(*p.softmax_backward, 2, 2)) return false;
    if (p.loss_backward->args.size() < 7 || p.loss_backward->args[2] != p.loss->args[1] ||
        p.loss_backward->args[3] != p.loss->args[2] || p.loss_backward->args[4] != p.loss->args[3] ||
        p.loss_backward->args[5] != p.loss->args[4])
      return false;
    ValueId grad = p.loss_backward->outputs[0];
    if (leaves_[grad.index] || users_[grad.index].size() != 1 || *value(*p.softmax_backward, 0) != grad) return false;
    return follow(p, p.softmax_backward->outputs[0]) && !p.sinks.empty();
  }

  // Who reads the gradient of the logits, [.., classes], or turned over, [classes, rows].
  bool follow(Pattern& p, ValueId v, bool turned = false) {
    if (leaves_[v.index] || !is_floating(g_.type(v).dtype)) return false;
    if (!turned && !is_const(g_.type(v).sizes.back(), p.classes)) return false;
    for (NodeId user : users_[v.index]) {
      const Node& n = g_.node(user);
      if (n.outputs.size() != 1 || !n.outputs[0].valid()) return false;
      bool flat = g_.type(v).dim() == 2;
      if ((!turned && passes_on(n)) || (flat && n.op == Op::t)) {
        p.gone.push_back(user);
        if (!follow(p, n.outputs[0], turned != (n.op == Op::t))) return false;
        continue;
      }
      bool once = n.args.size() < 2 || n.args[0] != n.args[1];
      bool product = flat && n.op == Op::mm && n.args.size() == 2 && once;
      if (turned && product) product = *value(n, 0) == v;
      bool sum = flat && !turned && n.op == Op::sum_dim_IntList && sums_rows(n, g_.type(v).dtype);
      if (!product && !sum) return false;
      if (std::ranges::find(p.sinks, user) == p.sinks.end()) p.sinks.push_back(user);
      p.gone.push_back(user);
    }
    return true;
  }
  bool sums_rows(const Node& n, DType dtype) const {
    auto* dims = std::get_if<IntList>(&n.args[1]);
    return dims && dims->v.size() == 1 && (is_const(dims->v[0], 0) || is_const(dims->v[0], -2)) &&
           g_.type(n.outputs[0]).dtype == dtype;
  }

  bool cut(Pattern& p) const {
    const TensorType& t = g_.type(p.product->outputs[0]);
    auto rows = g_.arena().as_const(t.sizes[0]);
    const int64_t bytes = rows ? *rows * p.classes * size_of(t.dtype) : kChunk * kFewest * 2;
    const int64_t worth = targets_.of(t.device).is_gpu() ? kWorth : kWorthOfCpu;
    if (bytes < worth || p.classes < kLeastClasses) return false;
    const int64_t pieces = std::clamp(bytes / kChunk, kFewest, kMost);
    const int64_t each = (p.classes + pieces * kAligned - 1) / (pieces * kAligned) * kAligned;
    for (int64_t from = 0; from < p.classes; from += each) p.chunks.push_back({from, std::min(from + each, p.classes)});
    return true;
  }

  const Graph& g_;
  const Targets& targets_;
  std::vector<std::vector<NodeId>> users_;
  std::vector<bool> leaves_;
};

// What stands in the pattern's place.
class Writer {
 public:
  Writer(Rewriter& r, const Graph& g, const Pattern& p)
      : r_(r), g_(g), p_(p), b_(r.out(), *p.loss, r.map_args(*p.loss), g) {}

  void forward() {
    const TensorType& logp = g_.type(p_.softmax->outputs[0]);
    const DType t = compute_dtype(logp.dtype);
    ValueId target = b_.tensor(1), weight = b_.optional_tensor(2);
    const int64_t reduction = b_.integer(3);
    counted_ = b_.call(Op::ne_Scalar, {target, b_.args.at(4)});
    ValueId safe = b_.where(counted_, target, b_.k(0));
    // Of a target that is no class: the same error as of eager's.
    place_ = b_.call(Op::index_Tensor, {classes({0, p_.classes}), TensorList{safe}, kTarget});
    if (weight.valid())
      weight_ = b_.where(counted_, b_.call(Op::index_Tensor, {b_.compute(weight), TensorList{safe}, kTarget}), 0.0);
    TensorList tops, sums, picks;
    for (const Chunk& c : p_.chunks) {
      ValueId x = b_.cast(logits(c), t);
      logits_.push_back(x);
      ValueId top = b_.amax(x, {1}, true);
      tops.push_back(top);
      sums.push_back(b_.sum(b_.unary(Op::exp, b_.sub(x, top)), {1}, true));
      // A sum, which is made where the logits are, and not a gather, which would be part of who reads it at the end.
      picks.push_back(b_.sum(b_.where(hits(c), x, 0.0), {1}, true));
    }
    ValueId all = b_.call(Op::cat, {tops, b_.k(1)}), parts = b_.call(Op::cat, {sums, b_.k(1)});
    ValueId picked = b_.sum(b_.call(Op::cat, {picks, b_.k(1)}), {1}, false);
    top_ = b_.amax(all, {1}, true);
    // A chunk of -inf counts for nothing; a row of them gives NaN, as in eager.
    ValueId share = b_.mul(parts, b_.unary(Op::exp, b_.sub(all, top_)));
    share = b_.where(b_.call(Op::eq_Scalar, {all, -kInf}), 0.0, share);
    log_sum_ = b_.unary(Op::log, b_.add(b_.sum(share, {1}, true), b_.sub(top_, top_)));
    auto flat = [&](ValueId v) { return b_.call(Op::squeeze_dim, {v, b_.k(1)}); };
    ValueId loss = b_.unary(Op::neg, b_.sub(b_.sub(picked, flat(top_)), flat(log_sum_)));
    if (weight_.valid()) loss = b_.mul(loss, weight_);
    loss = b_.where(counted_, loss, 0.0);
    ValueId total = b_.full({}, 0.0, t, logp.device);
    if (reduction) {
      total = b_.sum(weight_.valid() ? weight_ : b_.cast(counted_, t), {0}, false);
      loss = b_.sum(loss, {0}, false);
    }
    give(p_.loss->outputs[0], reduction == 1 ? b_.div(loss, total) : loss);
    give(p_.loss->outputs[1], total);
  }

  void backward() {
    const Node& n = *p_.loss_backward;
    ValueId grad = b_.compute(r_.map(*value(n, 0))), total = b_.compute(r_.map(*value(n, 6)));
    ValueId each = b_.unary(Op::neg, b_.integer(3) == 1 ? b_.div(grad, total) : grad);
    if (weight_.valid()) each = b_.mul(each, weight_);
    ValueId counted = b_.unsqueeze(counted_, 1);
    if (b_.rank(each) == 1) each = b_.unsqueeze(each, 1);
    ValueId sum = b_.add(b_.where(counted, each, 0.0), 0.0);  // of what is picked, over the classes
    std::vector<TensorList> parts(p_.sinks.size());
    std::vector<ValueId> totals(p_.sinks.size());
    for (size_t i = 0; i < p_.chunks.size(); ++i) {
      const Chunk& c = p_.chunks[i];
      ValueId p = b_.unary(Op::exp, b_.sub(b_.sub(logits_[i], top_), log_sum_));
      ValueId hit = b_.call(Op::logical_and, {hits(c), counted});
      ValueId d = b_.sub(b_.where(hit, each, 0.0), b_.mul(p, sum));
      for (size_t k = 0; k < p_.sinks.size(); ++k) {
        const Node& sink = g_.node(p_.sinks[k]);
        ValueId own = b_.cast(d, g_.type(is_gradient(*value(sink, 0)) ? *value(sink, 0) : *value(sink, 1)).dtype);
        if (!reads_along_classes(sink)) {
          parts[k].push_back(part(sink, own));
          continue;
        }
        ValueId more = b_.compute(b_.call(Op::mm, {own, rows(r_.map(*value(sink, 1)), c)}));
        totals[k] = totals[k].valid() ? b_.add(totals[k], more) : more;
      }
    }
    for (size_t k = 0; k < p_.sinks.size(); ++k) {
      const Node& sink = g_.node(p_.sinks[k]);
      // Turned over, classes come first.
      bool first = sink.op == Op::mm && is_gradient(*value(sink, 0));
      ValueId all = reads_along_classes(sink) ? totals[k] : b_.call(Op::cat, {parts[k], b_.k(first ? 0 : -1)});
      give(sink.outputs[0], all);
    }
  }

 private:
  // Of the old graph: whether it is the logits' gradient in some form.
  bool is_gradient(ValueId v) const {
    for (;;) {
      NodeId n = g_.value(v).node;
      if (!n.valid()) return false;
      const Node& node = g_.node(n);
      if (&node == p_.softmax_backward) return true;
      if (std::ranges::find(p_.gone, n) == p_.gone.end() || !value(node, 0)) return false;
      v = *value(node, 0);
    }
  }
  // A product with the gradient first, not turned over: [rows, classes] x [classes, ..].
  bool reads_along_classes(const Node& sink) const {
    return sink.op == Op::mm && is_gradient(*value(sink, 0)) &&
           g_.arena().is_const(g_.type(*value(sink, 0)).sizes[1], p_.classes) && !is_turned(*value(sink, 0));
  }
  bool is_turned(ValueId v) const {
    bool turned = false;
    while (&g_.node(g_.value(v).node) != p_.softmax_backward) {
      const Node& n = g_.node(g_.value(v).node);
      turned ^= n.op == Op::t;
      v = *value(n, 0);
    }
    return turned;
  }
  ValueId part(const Node& sink, ValueId own) {
    if (sink.op == Op::sum_dim_IntList) {
      std::vector<Arg> args = r_.map_args(sink);
      args[0] = own;
      return b_.call(sink.op, args);
    }
    if (is_gradient(*value(sink, 0))) return b_.call(Op::mm, {b_.unary(Op::t, own), r_.map(*value(sink, 1))});
    return b_.call(Op::mm, {r_.map(*value(sink, 0)), own});
  }
  ValueId slice(ValueId v, int64_t d, const Chunk& c) {
    return b_.call(Op::slice_Tensor, {v, b_.k(d), b_.k(c.begin), b_.k(c.end), b_.k(1)});
  }
  ValueId rows(ValueId v, const Chunk& c) { return slice(v, 0, c); }
  ValueId classes(const Chunk& c) {
    const Device device = g_.type(p_.softmax->outputs[0]).device;
    return b_.call(Op::arange_start_step,
                   {b_.k(c.begin), b_.k(c.end), b_.k(1), DType::I64, NoneArg{}, device, NoneArg{}});
  }
  ValueId hits(const Chunk& c) {
    return b_.call(Op::eq_Tensor, {b_.view(classes(c), {b_.k(1), b_.k(c.end - c.begin)}), b_.unsqueeze(place_, 1)});
  }
  ValueId logits(const Chunk& c) {
    std::vector<Arg> args = r_.map_args(*p_.product);
    if (p_.product->op == Op::mm) return b_.call(Op::mm, {args[0], slice(std::get<ValueId>(args[1]), 1, c), kAgain});
    return b_.call(Op::addmm, {rows(std::get<ValueId>(args[0]), c), args[1], slice(std::get<ValueId>(args[2]), 1, c),
                               b_.k(1), b_.k(1), kAgain});
  }
  void give(ValueId old, ValueId now) {
    if (!old.valid()) return;
    const TensorType& t = g_.type(old);
    now = b_.cast(now, t.dtype);
    if (b_.type(now).sizes != t.sizes) now = b_.view(now, t.sizes);
    r_.replace(old, now);
  }

  Rewriter& r_;
  const Graph& g_;
  const Pattern& p_;
  Builder b_;
  ValueId counted_, place_, weight_, top_, log_sum_;
  std::vector<ValueId> logits_;
};

// The pattern of the first loss that has one, written in its place; nullopt: there is none.
std::optional<Graph> chunk_one(const Graph& g, const Targets& targets) {
  Finder finder(g, targets);
  for (const Node& loss : g.nodes()) {
    auto found = finder.find(loss);
    if (!found) continue;
    const Pattern& p = *found;
    std::vector<bool> gone(g.nodes().size()), done(g.nodes().size());
    for (NodeId n : p.gone) gone[n.index] = true;
    // What the gradient's readers read besides comes before the first of them. It must not be made from their results.
    std::vector<bool> after(g.nodes().size());
    for (size_t i = 0; i < g.nodes().size(); ++i) {
      after[i] = gone[i] && std::ranges::find(p.sinks, NodeId(i)) != p.sinks.end();
      Graph::for_each_operand(g.node(NodeId(i)), [&](ValueId v) {
        NodeId from = g.value(v).node;
        after[i] = after[i] || (from.valid() && after[from.index]);
      });
    }
    bool ordered = true;
    for (NodeId sink : p.sinks)
      Graph::for_each_operand(g.node(sink), [&](ValueId v) {
        NodeId from = g.value(v).node;
        ordered = ordered && !(from.valid() && after[from.index]);
      });
    if (!ordered) continue;

    Rewriter r(g);
    std::optional<Writer> writer;  // once what the loss reads is there
    auto copy = [&](auto& self, size_t i) -> void {
      if (done[i] || gone[i]) return;
      done[i] = true;
      Graph::for_each_operand(g.node(NodeId(i)), [&](ValueId v) {
        if (NodeId from = g.value(v).node; from.valid()) self(self, from.index);
      });
      r.copy(g.node(NodeId(i)));
    };
    bool written = false;
    auto write = [&](size_t i) {
      if (&g.node(NodeId(i)) == p.loss) writer.emplace(r, g, p).forward();
      if (gone[i] && !written && std::ranges::find(p.sinks, NodeId(i)) != p.sinks.end()) {
        for (NodeId sink : p.sinks)
          Graph::for_each_operand(g.node(sink), [&](ValueId v) {
            if (NodeId from = g.value(v).node; from.valid()) copy(copy, from.index);
          });
        writer->backward();
        written = true;
      }
      copy(copy, i);
    };
    try {
      for (size_t i = 0; i < g.nodes().size(); ++i) write(i);
    } catch (const NoRule&) {
      continue;
    }
    return r.finish();
  }
  return std::nullopt;
}

}  // namespace

Graph chunk_logits(const Graph& g, const Targets& targets) {
  bool any =
      std::any_of(g.nodes().begin(), g.nodes().end(), [](const Node& n) { return n.op == Op::nll_loss_forward; });
  if (!any) return g;
  Graph out = g;
  while (auto next = chunk_one(out, targets)) out = std::move(*next);
  return out;
}

}  // namespace braze::passes
