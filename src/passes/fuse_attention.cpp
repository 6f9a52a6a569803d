#include "passes/fuse_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "passes/attention_reader.h"
#include "passes/builder.h"

namespace braze::passes {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Whether the fused operator is the faster one. Sizes that are open are taken to be large: of small ones it is no
// slower than eager.
bool is_worth_fusing(const Graph& g, const Targets& targets, const Attention& found) {
  const TensorType &q = g.type(found.q), &v = g.type(found.v);
  auto known = [&](Expr e, int64_t otherwise) { return g.arena().as_const(e).value_or(otherwise); };
  const bool half = v.dtype != DType::F32 && v.dtype != DType::F64;
  const int64_t queries = known(found.sizes[2], 1 << 16), features = known(q.sizes.back(), 8);
  // On a GPU of float32 it does not use what the hardware has for products.
  if (targets.of(q.device).is_gpu())
    return half && queries >= 16 && features % 8 == 0 && features > 0 && features <= 256;
  // On a CPU a batched product of half types takes far longer than one of the fused operator, and this 15 us before it
  // begins, in which it would have made as many scores.
  constexpr int64_t kFewScores = 1 << 16;
  if (half) return true;
  double scores = static_cast<double>(queries);
  for (size_t i : {0, 1, 3}) scores *= static_cast<double>(known(found.sizes[i], kFewScores));
  return queries > 1 && scores >= kFewScores;
}

class AttentionWriter {
 public:
  AttentionWriter(Builder& b, const Rewriter& r, const Attention& found) : b_(b), r_(r), found_(found) {}

  // [batch, heads, queries, features]
  ValueId run() {
    const auto& [batch, heads, queries, keys] = found_.sizes;
    const Expr features = b_.from.type(found_.q).sizes.back();
    ValueId q = rows(in_four(found_.q, {batch, heads, queries, features}, true));
    ValueId k = rows(in_four(found_.k, {batch, heads, keys, features}, true, true));
    ValueId v = rows(in_four(found_.v, {batch, heads, keys, features}, false));
    const bool on_cpu = b_.type(q).device.type == DeviceType::CPU;
    const DType compute = compute_dtype(b_.type(q).dtype);
    ValueId mask = sum_of_masks(on_cpu ? compute : b_.type(q).dtype), forbidden;
    if (mask.valid()) {
      forbidden = b_.call(Op::eq_Scalar, {b_.amax(mask, {3}, true), -kInfinity});
      if (!found_.means) mask = b_.where(forbidden, std::numeric_limits<double>::quiet_NaN(), mask);
    }
    if (!on_cpu) {
      ValueId out = chosen_at_run_time(q, k, v, mask);
      return found_.means ? b_.where(forbidden, b_.mean(v, {2}, true), out) : out;
    }
    const auto made = fused_of_cpu(q, k, v, mask);
    ValueId out = made[0];
    if (b_.type(q).dtype != compute) {
      // Of half types it has 0 where a score is infinite, and eager NaN; the sum of such a row is no number.
      ValueId known = b_.call(Op::eq_Scalar, {b_.sub(made[1], made[1]), 0.0});
      out = b_.where(b_.unsqueeze(known, 3), out, std::numeric_limits<double>::quiet_NaN());
    }
    return found_.means ? b_.where(forbidden, b_.mean(v, {2}, true), out) : out;
  }

 private:
  // The operand of a product, [batch * heads, .., ..], as four dimensions: the first value with these sizes that it is
  // made of by views and copies, so that none is copied for a layout that the product alone asks for. A factor that it
  // was multiplied with on the way goes to the scale. `turned`: the operand has its last two the other way around.
  ValueId in_four(ValueId v, std::vector<Expr> sizes, bool is_factor, bool turned = false) {
    const DType dtype = b_.from.type(found_.v).dtype;
    auto turn = [](std::vector<Expr> s) { return std::swap(s[2], s[3]), s; };
    ValueId first;
    double scale = 1, of_first = 1;
    bool first_turned = turned;
    auto take = [&](ValueId at) {
      if (b_.from.type(at).dtype == dtype) first = at, of_first = scale, first_turned = turned;
    };
    take(v);
    for (ValueId at = v; at.valid();) {
      if (without_ones(b_.from.type(at).sizes) == without_ones(turned ? turn(sizes) : sizes)) take(at);
      const auto factor = is_factor ? scaled_from(b_.from, at) : std::nullopt;
      if (factor && !holds_all_of(b_.from.type(at).dtype, b_.from.type(factor->value).dtype)) break;
      if (factor) scale *= factor->scale;
      // Of the matrices themselves: what turns others over mixes their rows.
      const std::vector<Expr>& s = b_.from.type(at).sizes;
      const bool matrices = s.size() > 2 && s[s.size() - 2] == sizes[3] && s.back() == sizes[2];
      const ValueId from = turned && matrices && !factor ? turned_from(b_.from, at) : ValueId();
      if (from.valid()) turned = false;
      at = factor ? factor->value : from.valid() ? from : seen_by(b_.from, at);
    }
    if (!first.valid()) throw NoRule{};
    scale_ *= of_first;
    if (!first_turned) return b_.view(r_.map(first), std::move(sizes));
    return b_.call(Op::transpose_int, {b_.view(r_.map(first), turn(std::move(sizes))), b_.k(2), b_.k(3)});
  }
  std::vector<Expr> without_ones(std::vector<Expr> sizes) const {
    std::erase_if(sizes, [&](Expr e) { return b_.arena().is_const(e, 1); });
    return sizes;
  }
  // [batch, a, b, ..] as a transposed [batch, b, a, ..], which is dense.
  TensorType swapped(const TensorType& like, DType dtype, std::vector<Expr> sizes) const {
    TensorType type{dtype, like.device, std::move(sizes), {}, b_.k(0)};
    std::swap(type.sizes[1], type.sizes[2]);
    type.strides = contiguous_strides(b_.arena(), type.sizes);
    std::swap(type.sizes[1], type.sizes[2]);
    std::swap(type.strides[1], type.strides[2]);
    return type;
  }
  // PyTorch's operator that looks for the fastest kernel of a GPU: laid out as [batch, queries, heads, features], as
  // those kernels do; else it is copied.
  ValueId chosen_at_run_time(ValueId q, ValueId k, ValueId v, ValueId mask) {
    const TensorType& like = b_.type(q);
    const auto& s = like.sizes;
    TensorType type = swapped(like, like.dtype, {s[0], s[1], s[2], b_.type(v).sizes[3]});
    const Arg masked = mask.valid() ? Arg(mask) : Arg(NoneArg{});
    return b_.calls(Op::scaled_dot_product_attention, {q, k, v, masked, 0.0, false, scale_, false}, {type})[0];
  }
  // The result and the logarithms of the sums. Where it is not known which stride of the query is the larger, the
  // result is taken to lie as heads do that were told apart in rows; else it is copied.
  std::vector<ValueId> fused_of_cpu(ValueId q, ValueId k, ValueId v, ValueId mask) {
    constexpr Op op = Op::_scaled_dot_product_flash_attention_for_cpu;
    const TensorType like = b_.type(q);
    const std::vector<Arg> args{q, k, v, 0.0, false, mask.valid() ? Arg(mask) : Arg(NoneArg{}), scale_};
    try {
      return b_.calls(op, args);
    } catch (const NoRule&) {
    }
    if (!b_.arena().known_equal(b_.type(v).sizes[3], like.sizes[3])) throw NoRule{};
    const auto& s = like.sizes;
    return b_.calls(op, args,
                    {swapped(like, like.dtype, s), swapped(like, compute_dtype(like.dtype), {s[0], s[1], s[2]})});
  }
  // The fused operator takes the features of a query, a key or a value to lie side by side.
  ValueId rows(ValueId v) {
    const bool dense = b_.arena().is_const(b_.type(v).strides[3], 1);
    return dense ? v : b_.call(Op::clone, {v, graph::MemoryFormatArg{0}});
  }

  // What is added to the scores, of four dimensions that broadcast to theirs; invalid: nothing.
  ValueId sum_of_masks(DType dtype) {
    ValueId sum;
    const DType wide = compute_dtype(dtype);
    for (const Attention::Mask& m : found_.masks) {
      ValueId v = in_four_of_scores(m);
      if (m.kind == Attention::Mask::Kind::Add) {
        if (b_.type(v).dtype != dtype && dtype != wide) throw NoRule{};  // digits would be lost
        v = b_.cast(v, wide);
      } else {
        const Device device = b_.type(v).device;
        if (dtype == DType::F16 && std::isfinite(m.low)) throw NoRule{};  // it has no such number
        ValueId none = b_.full({}, 0.0, wide, device), low = b_.full({}, m.low, wide, device);
        v = m.kind == Attention::Mask::Kind::Forbid ? b_.where(v, low, none) : b_.where(v, none, low);
      }
      sum = sum.valid() ? b_.add(sum, v) : v;
    }
    if (!sum.valid()) return sum;
    // A GPU's kernels work with powers of 2: the lowest number times log2(e) were -inf, and a query that has it for
    // each key without one. Any number is as good that no score adds to.
    constexpr double kLow = -1e30;
    if (dtype == DType::BF16)
      sum = b_.where(b_.call(Op::eq_Scalar, {sum, -kInfinity}), sum, b_.call(Op::clamp_min, {sum, kLow}));
    return b_.cast(sum, dtype);
  }
  ValueId in_four_of_scores(const Attention::Mask& m) {
    ValueId v = r_.map(m.value);
    std::vector<Expr> sizes = b_.type(v).sizes;
    if (sizes.size() > m.rank) throw NoRule{};
    sizes.insert(sizes.begin(), m.rank - sizes.size(), b_.k(1));
    if (m.rank == 3) {
      const bool each = !b_.arena().is_const(sizes[0], 1);
      sizes.insert(sizes.begin() + 1, each ? found_.sizes[1] : b_.k(1));
      if (each) sizes[0] = found_.sizes[0];
    }
    return b_.type(v).sizes == sizes ? v : b_.call(Op::view, {v, IntList{sizes}});
  }

  Builder& b_;
  const Rewriter& r_;
  const Attention& found_;
  double scale_ = found_.scale;
};

// A node whose operands have other strides now than those for which its type was found: with the type that it has now.
bool copy_with_new_strides(Rewriter& r, const Graph& g, const Node& n, std::vector<bool>& changed) {
  const bool moves = graph::op_class(n.op) == graph::OpClass::View || n.op == Op::clone;
  auto* v = n.args.empty() ? nullptr : std::get_if<ValueId>(n.args.data());
  if (!moves || n.outputs.size() != 1 || !n.outputs[0].valid() || !v || !changed[v->index]) return false;
  std::vector<Arg> args = r.map_args(n);
  auto types =
      graph::infer(n.op, args, {[&](ValueId at) { return graph::Operand{&r.out().type(at), false}; }, g.arena()});
  const TensorType& before = g.type(n.outputs[0]);
  if (!types || types->at(0).sizes != before.sizes || types->at(0).dtype != before.dtype) return false;
  changed[n.outputs[0].index] = types->at(0).strides != before.strides;
  NodeId made = r.out().add_node(n.op, std::move(args), std::move(*types), n.origin());
  r.replace(n.outputs[0], r.out().node(made).outputs[0]);
  return true;
}

}  // namespace

Graph fuse_attention(const Graph& g, const Targets& targets) {
  const bool any = std::any_of(g.nodes().begin(), g.nodes().end(), [](const Node& n) { return n.op == Op::_softmax; });
  if (!any) return g;
  const std::vector<bool> leaves = escaping(g);
  const AttentionReader reader(g);
  Rewriter r(g);
  std::vector<bool> changed(g.values().size(), false);
  for (size_t i = 0; i < g.nodes().size(); ++i) {
    const Node& n = g.node(NodeId(i));
    const std::optional<Attention> found = reader.read(NodeId(i));
    auto fused = [&](Builder& b) {
      const ValueId old = n.outputs[0];
      const TensorType& type = g.type(old);
      ValueId out = AttentionWriter(b, r, *found).run();
      if (b.type(out).sizes != type.sizes) {
        if (!b.arena().is_const(b.type(out).sizes[0], 1)) out = b.call(Op::clone, {out, graph::MemoryFormatArg{0}});
        out = b.call(Op::view, {out, IntList{type.sizes}});
      }
      if (b.type(out).dtype != type.dtype || b.type(out).sizes != type.sizes) return false;
      if (leaves[old.index]) {
        b.set(0, b.call(Op::clone, {out, graph::MemoryFormatArg{0}}));
      } else {
        changed[old.index] = b.type(out).strides != type.strides;
        b.results.emplace_back(old, out);
      }
      return true;
    };
    const bool done = found && is_worth_fusing(g, targets, *found) && rewrite(r, n, g, fused);
    if (!done && !copy_with_new_strides(r, g, n, changed)) r.copy(n);
  }
  return r.finish();
}

}  // namespace braze::passes
