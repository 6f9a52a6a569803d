#include "passes/simplify_parts.h"

#include <algorithm>
#include <optional>

#include "passes/builder.h"

namespace braze::passes {
namespace {

// Elements [from, to) of a value along one of its dimensions.
struct Span {
  ValueId of;
  size_t dim;
  int64_t from, to;
};

class PartsPass {
 public:
  explicit PartsPass(const Graph& g) : g_(g), r_(g), leaves_(escaping(g)), any_strides_(g.values().size(), true) {
    for (const Node& n : g.nodes()) {
      const graph::OpClass c = n.op == Op::Extern ? graph::OpClass::Extern : graph::op_class(n.op);
      if (c == graph::OpClass::Pointwise || c == graph::OpClass::Reduction || c == graph::OpClass::Index) continue;
      Graph::for_each_operand(n, [&](ValueId v) { any_strides_[v.index] = false; });
    }
  }

  Graph run() {
    for (const Node& n : g_.nodes()) {
      std::vector<std::pair<ValueId, ValueId>> given;
      bool all = !n.outputs.empty();
      for (ValueId v : n.outputs) {
        if (!v.valid()) continue;
        if (ValueId now = given_otherwise(n, v); now.valid())
          given.emplace_back(v, now);
        else
          all = false;
      }
      if (!all) r_.copy(n);
      for (const auto& [old, now] : given) r_.replace(old, now);
    }
    return r_.finish();
  }

 private:
  std::optional<int64_t> number(const Node& n, size_t i) const {
    auto* e = i < n.args.size() ? std::get_if<Expr>(&n.args[i]) : nullptr;
    return e ? g_.arena().as_const(*e) : std::nullopt;
  }
  std::optional<size_t> dimension(const Node& n, size_t i, size_t rank) const {
    auto d = i < n.args.size() ? number(n, i) : std::optional<int64_t>(0);
    if (d && *d < 0) *d += static_cast<int64_t>(rank);
    return d && *d >= 0 && *d < static_cast<int64_t>(rank) ? std::optional(static_cast<size_t>(*d)) : std::nullopt;
  }
  std::optional<int64_t> size(ValueId v, size_t d) const { return g_.arena().as_const(g_.type(v).sizes[d]); }

  // What a result of a slice or a split shows.
  std::optional<Span> span_of(ValueId v) const {
    if (!v.valid() || !g_.value(v).node.valid()) return std::nullopt;
    const Node& n = g_.node(g_.value(v).node);
    int64_t from = 0;
    size_t dim_at = 1;
    switch (n.op) {
      case Op::slice_Tensor: {
        if (number(n, 4) != 1) return std::nullopt;
        break;
      }
      case Op::split_Tensor:
      case Op::unsafe_split_Tensor:
      case Op::split_with_sizes:
      case Op::unsafe_split_with_sizes: dim_at = 2; break;
      default: return std::nullopt;
    }
    auto* of = std::get_if<ValueId>(&n.args[0]);
    const auto d = of ? dimension(n, dim_at, g_.type(*of).dim()) : std::nullopt;
    const auto own = d ? size(v, *d) : std::nullopt, whole = d ? size(*of, *d) : std::nullopt;
    if (!own || !whole) return std::nullopt;
    if (n.op == Op::slice_Tensor) {
      auto start = std::holds_alternative<NoneArg>(n.args[2]) ? std::optional<int64_t>(0) : number(n, 2);
      if (!start) return std::nullopt;
      from = std::clamp<int64_t>(*start < 0 ? *start + *whole : *start, 0, *whole);
    } else {
      for (ValueId before : n.outputs) {
        if (before == v) break;
        const auto more = before.valid() ? size(before, *d) : std::nullopt;
        if (!more) return std::nullopt;
        from += *more;
      }
    }
    return Span{*of, *d, from, from + *own};
  }

  const Node* cat_of(ValueId v) const {
    const NodeId made = g_.value(v).node;
    return made.valid() && g_.node(made).op == Op::cat ? &g_.node(made) : nullptr;
  }

  bool may_stand_for(ValueId now, ValueId old) const {
    const TensorType &a = g_.type(now), &b = g_.type(old);
    return a.dtype == b.dtype && a.device == b.device && a.sizes == b.sizes && !leaves_[old.index] &&
           (a.strides == b.strides || any_strides_[old.index]);
  }

  // Of the new graph; invalid: the node is to make it.
  ValueId given_otherwise(const Node& n, ValueId v) {
    if (n.op == Op::cat) return whole(n, v);
    const auto span = span_of(v);
    const Node* cat = span ? cat_of(span->of) : nullptr;
    auto* parts = cat ? std::get_if<TensorList>(&cat->args[0]) : nullptr;
    if (!parts || dimension(*cat, 1, g_.type(span->of).dim()) != span->dim) return {};
    int64_t at = 0;
    for (ValueId part : *parts) {
      if (!part.valid() || g_.type(part).dim() != g_.type(v).dim()) return {};
      const auto length = size(part, span->dim);
      if (!length) return {};
      if (at == span->from && at + *length == span->to) return may_stand_for(part, v) ? r_.map(part) : ValueId();
      if (at <= span->from && span->to <= at + *length) return within(n, v, part, *span, at);
      at += *length;
    }
    return {};
  }

  ValueId within(const Node& n, ValueId v, ValueId part, const Span& span, int64_t at) {
    if (g_.type(part).dtype != g_.type(v).dtype || leaves_[v.index] || !any_strides_[v.index]) return {};
    Builder b(r_.out(), n, {}, g_);
    return b.call(Op::slice_Tensor,
                  {r_.map(part), b.k(static_cast<int64_t>(span.dim)), b.k(span.from - at), b.k(span.to - at), b.k(1)});
  }

  ValueId whole(const Node& n, ValueId v) {
    auto* parts = std::get_if<TensorList>(&n.args[0]);
    const auto d = dimension(n, 1, g_.type(v).dim());
    if (!parts || parts->size() < 2 || !d) return {};
    int64_t at = 0;
    ValueId of;
    for (ValueId part : *parts) {
      const auto span = span_of(part);
      if (!span || span->dim != *d || span->from != at || (of.valid() && span->of != of)) return {};
      of = span->of;
      at = span->to;
    }
    return size(of, *d) == at && may_stand_for(of, v) ? r_.map(of) : ValueId();
  }

  const Graph& g_;
  Rewriter r_;
  std::vector<bool> leaves_;
  std::vector<bool> any_strides_;  // per value: what reads it computes element by element, wherever these lie
};

}  // namespace

Graph simplify_parts(const Graph& g) {
  const bool any = std::any_of(g.nodes().begin(), g.nodes().end(), [](const Node& n) { return n.op == Op::cat; });
  return any ? PartsPass(g).run() : g;
}

}  // namespace braze::passes
