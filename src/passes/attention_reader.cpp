#include "passes/attention_reader.h"

#include <cmath>
#include <limits>

#include "passes/term.h"

namespace braze::passes {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();
// Added to this, a score of float32 is lost, as it is where it is replaced by it.
constexpr double kAbsorbs = -1e30;
// A key whose score is this has no weight beside one that is not forbidden.
constexpr double kForbids = -1e9;

enum class Effect : uint8_t { Product, ProductAndScale, ScaleAndAdd, Cast, Scale, Divide, Add, Forbid, Allow, Softmax };

struct FormRow {
  std::string_view part;
  Effect effect;
  std::string_view term;
};
constexpr FormRow kFormRows[] = {
#define BRAZE_FORM(part, name, effect, term) {#part, Effect::effect, term},
#include "passes/attention_forms.def"
#undef BRAZE_FORM
};

constexpr std::string_view kFormNames[] = {
#define BRAZE_FORM(part, name, effect, term) #name,
#include "passes/attention_forms.def"
#undef BRAZE_FORM
};

struct AttentionForm {
  std::string_view part;
  Effect effect;
  Term term;
};
const std::vector<AttentionForm>& attention_forms() {
  static const auto all = [] {
    std::vector<AttentionForm> out;
    for (const FormRow& row : kFormRows) out.push_back({row.part, row.effect, parse_term(row.term)});
    return out;
  }();
  return all;
}

// One attention, part by part.
class Reading {
 public:
  Reading(const Graph& g, const std::vector<uint32_t>& uses) : g_(g), uses_(uses) {}

  Attention found;
  std::optional<std::pair<Expr, Expr>> batch_and_heads;  // where the scores were seen in four dimensions

  bool part(std::string_view name, ValueId v) {
    for (ValueId under = v; under.valid(); under = seen_by(g_, under)) {
      if (uses_[under.index] != 1) return false;
      v = under;
    }
    const NodeId made = g_.value(v).node;
    if (!made.valid()) return false;
    for (const AttentionForm& form : attention_forms()) {
      if (form.part != name) continue;
      const Attention found_before = found;
      const auto batch_before = batch_and_heads;
      Bindings names;
      std::vector<NodeId> below;
      const Matcher matcher(g_, [&](std::string_view inner, ValueId at) { return part(inner, at); });
      if (matcher.matches(form.term, g_.node(made), names, below) && take(form.effect, names, v)) return true;
      found = found_before, batch_and_heads = batch_before;
    }
    return false;
  }

 private:
  bool scale(double by) {
    found.scale *= by;
    return found.masks.empty() && std::isfinite(by);
  }

  bool mask(Attention::Mask::Kind kind, ValueId v, double low, size_t rank) {
    const DType dtype = g_.type(v).dtype;
    const bool of_choice = kind != Attention::Mask::Kind::Add;
    if (of_choice ? dtype != DType::Bool : !is_floating(dtype)) return false;
    const bool f16 = g_.type(found.q).dtype == DType::F16;
    if (of_choice && std::isfinite(low) && (low > kAbsorbs || f16)) {
      // The scores differ by less than such a number is coarse by, or by more: what a query without a key sees is not
      // known, and with a second mask not which it is.
      const bool lowest = f16 && low <= -65504;
      if (!(low <= kForbids || lowest) || !found.masks.empty()) return false;
      low = kMinusInfinity, found.means = true;
    } else if (found.means) {
      return false;
    }
    found.masks.push_back({kind, v, low, rank});
    return true;
  }

  // What one form adds, whose result is v: [batch * heads, queries, keys] or [batch, heads, queries, keys].
  bool take(Effect effect, const Bindings& names, ValueId v) {
    const TensorType& type = g_.type(v);
    auto number = [&](std::string_view name) { return *known_number(g_, *names.find(name)); };
    using Kind = Attention::Mask::Kind;
    if (effect == Effect::Product || effect == Effect::ProductAndScale || effect == Effect::ScaleAndAdd)
      found.q = names.tensor("q"), found.k = names.tensor("k");
    if ((type.dim() != 3 && type.dim() != 4) || type.sizes[type.dim() - 2] != g_.type(found.q).sizes[1] ||
        type.sizes[type.dim() - 1] != g_.type(found.k).sizes[2])
      return false;
    if (type.dim() == 4) {
      const auto here = std::pair(type.sizes[0], type.sizes[1]);
      if (batch_and_heads && *batch_and_heads != here) return false;
      batch_and_heads = here;
    }
    switch (effect) {
      case Effect::Product: return true;
      case Effect::ProductAndScale:
      case Effect::Scale: return scale(number("by"));
      case Effect::Divide: return scale(1 / number("by"));
      case Effect::ScaleAndAdd: return scale(number("by")) && mask(Kind::Add, names.tensor("mask"), 0, type.dim());
      case Effect::Add: return mask(Kind::Add, names.tensor("mask"), 0, type.dim());
      case Effect::Forbid: return mask(Kind::Forbid, names.tensor("forbidden"), number("low"), type.dim());
      case Effect::Allow: return mask(Kind::Allow, names.tensor("allowed"), number("low"), type.dim());
      // To more digits; those of the weights are the values' again before they are multiplied with them.
      case Effect::Cast: return found.along_keys || holds_all_of(type.dtype, g_.type(found.q).dtype);
      case Effect::Softmax: {
        const double along = number("along");
        found.along_keys = along == -1 || along == static_cast<double>(type.dim()) - 1;
        return found.along_keys;
      }
    }
    return false;
  }

  const Graph& g_;
  const std::vector<uint32_t>& uses_;
};

}  // namespace

namespace {

// Dimensions of one element alone are moved, so that the others keep their order.
bool keeps_order(const Graph& g, const Node& n) {
  const TensorType &from = g.type(std::get<ValueId>(n.args[0])), &to = g.type(n.outputs[0]);
  if (n.op == Op::expand) return from.sizes == to.sizes;
  auto* dims = std::get_if<graph::IntList>(&n.args[1]);
  if (!dims) return false;
  int64_t last = -1;
  for (Expr e : dims->v) {
    auto d = g.arena().as_const(e);
    if (!d) return false;
    if (*d < 0) *d += static_cast<int64_t>(from.dim());
    if (g.arena().is_const(from.sizes[static_cast<size_t>(*d)], 1)) continue;
    if (*d < last) return false;
    last = *d;
  }
  return true;
}

}  // namespace

std::span<const std::string_view> attention_form_names() { return kFormNames; }

ValueId seen_by(const Graph& g, ValueId v) {
  if (!g.value(v).node.valid()) return {};
  const Node& n = g.node(g.value(v).node);
  switch (n.op) {
    case Op::view:
    case Op::_unsafe_view:
    case Op::reshape:
    case Op::_reshape_alias:
    case Op::unsqueeze:
    case Op::squeeze_dim:
    case Op::clone: return std::get<ValueId>(n.args[0]);
    case Op::expand:
    case Op::permute: return keeps_order(g, n) ? std::get<ValueId>(n.args[0]) : ValueId();
    default: return {};
  }
}

ValueId turned_from(const Graph& g, ValueId v) {
  if (!g.value(v).node.valid()) return {};
  const Node& n = g.node(g.value(v).node);
  const auto rank = static_cast<int64_t>(g.type(v).dim());
  if (n.op != Op::transpose_int || rank < 2) return {};
  auto is_dim = [&](const Arg& a, int64_t d) {
    auto number = known_number(g, a);
    return number && (*number == static_cast<double>(d) || *number == static_cast<double>(d - rank));
  };
  const bool turned = (is_dim(n.args[1], rank - 2) && is_dim(n.args[2], rank - 1)) ||
                      (is_dim(n.args[1], rank - 1) && is_dim(n.args[2], rank - 2));
  return turned ? std::get<ValueId>(n.args[0]) : ValueId();
}

std::optional<Factor> scaled_from(const Graph& g, ValueId v) {
  const NodeId made = g.value(v).node;
  if (!made.valid()) return std::nullopt;
  for (const AttentionForm& form : attention_forms()) {
    if (form.part != "factor") continue;
    Bindings names;
    std::vector<NodeId> below;
    ValueId from;
    const Matcher matcher(g, [&](std::string_view, ValueId at) { return from = at, true; });
    if (!matcher.matches(form.term, g.node(made), names, below)) continue;
    const double by = form.effect == Effect::Cast ? 1 : *known_number(g, *names.find("by"));
    const double scale = form.effect == Effect::Divide ? 1 / by : by;
    if (std::isfinite(scale)) return Factor{from, scale};
  }
  return std::nullopt;
}

AttentionReader::AttentionReader(const Graph& g) : g_(g), uses_(use_counts(g)), product_(g.nodes().size()) {
  std::vector<NodeId> reader(g.values().size());
  for (size_t i = 0; i < g.nodes().size(); ++i)
    Graph::for_each_operand(g.node(NodeId(i)), [&](ValueId v) { reader[v.index] = NodeId(i); });
  for (size_t i = 0; i < g.nodes().size(); ++i) {
    const Node& product = g.node(NodeId(i));
    if (product.op != Op::bmm) continue;
    // The last of the views that tell batch and heads apart again.
    const TensorType& own = g.type(product.outputs[0]);
    NodeId gives = NodeId(i);
    for (ValueId v = product.outputs[0]; uses_[v.index] == 1 && reader[v.index].valid();) {
      const Node& next = g.node(reader[v.index]);
      if (next.op == Op::clone || next.outputs.size() != 1 || seen_by(g, next.outputs[0]) != v) break;
      v = next.outputs[0];
      const TensorType& t = g.type(v);
      if (t.dim() == 4 && t.sizes[2] == own.sizes[1] && t.sizes[3] == own.sizes[2]) gives = g.value(v).node;
    }
    product_[gives.index] = NodeId(i);
  }
}

std::optional<Attention> AttentionReader::read(NodeId n) const {
  if (!product_[n.index].valid()) return std::nullopt;
  const Node& product = g_.node(product_[n.index]);
  const TensorType& out = g_.type(g_.node(n).outputs[0]);
  Reading reading(g_, uses_);
  if (!reading.part("weights", std::get<ValueId>(product.args[0]))) return std::nullopt;
  Attention& found = reading.found;
  found.v = std::get<ValueId>(product.args[1]);
  const TensorType &q = g_.type(found.q), &k = g_.type(found.k), &v = g_.type(found.v);
  if (!is_floating(v.dtype) || !holds_all_of(q.dtype, v.dtype) || k.dtype != q.dtype || q.device != v.device)
    return std::nullopt;
  const Expr one = g_.arena().constant(1);
  found.sizes = {one, q.sizes[0], q.sizes[1], k.sizes[2]};
  if (out.dim() == 4 && !reading.batch_and_heads) reading.batch_and_heads = {out.sizes[0], out.sizes[1]};
  if (reading.batch_and_heads) {
    std::tie(found.sizes[0], found.sizes[1]) = *reading.batch_and_heads;
    const Expr all = g_.arena().mul(found.sizes[0], found.sizes[1]);
    if (!g_.arena().known_equal(all, q.sizes[0])) return std::nullopt;
  }
  return found;
}

}  // namespace braze::passes
