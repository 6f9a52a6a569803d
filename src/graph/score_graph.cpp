#include "graph/score_graph.h"

#include <algorithm>
#include <unordered_map>

#include "base/check.h"

namespace braze::graph {
namespace {

[[noreturn]] void refuse(const std::string& why) {
  throw Unsupported(Reason::UnsupportedFeature, "a score_mod or mask_mod that " + why);
}

// A tensor that repeats one number: of an operator that makes one like another, or anew.
std::optional<Arg> repeated_number(const Node& node) {
  switch (node.op) {
    case Op::zeros:
    case Op::zeros_like:
    case Op::new_zeros: return 0.0;
    case Op::ones:
    case Op::ones_like:
    case Op::new_ones: return 1.0;
    case Op::full:
    case Op::full_like: return node.args[1];
    case Op::new_full: return node.args[2];
    case Op::scalar_tensor: return node.args[0];
    default: return std::nullopt;
  }
}

bool hands_on(Op op) { return op == Op::alias || op == Op::detach || op == Op::lift_fresh; }

class Cut {
 public:
  Cut(const Graph& whole, std::span<const ValueId> inputs, const std::function<std::optional<double>(ValueId)>& literal)
      : whole_(whole), literal_(literal), out_{Graph(std::make_shared<sym::ExprArena>()), {}} {
    for (ValueId v : inputs) {
      TensorType type = whole.type(v);
      BRAZE_CHECK(type.sizes.empty(), "a score with dimensions");
      type.offset = {};
      ValueId made = out_.graph.add_input(std::move(type), InputKind::Argument);
      made_[v.index] = made;
      depends_.resize(whole.values().size());
      depends_[v.index] = true;
    }
    for (const Node& n : whole.nodes()) {
      bool any = false;
      Graph::for_each_operand(n, [&](ValueId v) { any = any || depends_[v.index]; });
      for (ValueId v : n.outputs)
        if (v.valid()) depends_[v.index] = depends_[v.index] || any;
    }
  }

  ScoreGraph run(std::span<const ValueId> outputs) {
    for (ValueId v : outputs) find_operands(v);
    std::sort(out_.operands.begin(), out_.operands.end());
    for (ValueId v : out_.operands) {
      TensorType type = whole_.type(v);
      type.offset = {};
      auto fix = [&](std::vector<Expr>& list) {  // what its sizes are is known when it runs
        for (Expr& e : list) e = out_.graph.arena().constant(whole_.arena().as_const(e).value_or(2));
      };
      fix(type.sizes);
      fix(type.strides);
      made_[v.index] = out_.graph.add_input(std::move(type), InputKind::Argument);
    }
    for (ValueId v : outputs) out_.graph.outputs.push_back(v.valid() ? value(v) : ValueId());
    return std::move(out_);
  }

 private:
  const Node* node_of(ValueId v) const {
    NodeId n = whole_.value(v).node;
    return n.valid() ? &whole_.node(n) : nullptr;
  }
  bool is_number(ValueId v) const {
    if (!whole_.type(v).sizes.empty()) return false;
    const Node* n = node_of(v);
    return (!depends_[v.index] && literal_(v)) || (n && repeated_number(*n));
  }

  void find_operands(ValueId v) {
    if (!v.valid() || !seen_.emplace(v.index, true).second || made_.contains(v.index) || is_number(v)) return;
    if (depends_[v.index]) {
      Graph::for_each_operand(*node_of(v), [&](ValueId o) { find_operands(o); });
      return;
    }
    DType t = whole_.type(v).dtype;
    if (is_complex(t) || t == DType::Opaque) refuse("captures a tensor of dtype " + std::string(name(t)));
    out_.operands.push_back(v);
  }

  ValueId value(ValueId v) {
    if (auto it = made_.find(v.index); it != made_.end()) return it->second;
    return made_[v.index] = is_number(v) ? number(v) : compute(v);
  }

  ValueId number(ValueId v) {
    TensorType type = whole_.type(v);
    type.offset = {};
    Arg fill;
    if (auto known = depends_[v.index] ? std::nullopt : literal_(v)) {
      if (is_floating(type.dtype))
        fill = *known;
      else
        fill = out_.graph.arena().constant(static_cast<int64_t>(*known));
    } else {
      fill = *repeated_number(*node_of(v));
      if (auto* e = std::get_if<Expr>(&fill)) fill = out_.graph.arena().constant(fixed(*e));
      if (auto* d = std::get_if<double>(&fill); d && !is_floating(type.dtype))
        fill = out_.graph.arena().constant(static_cast<int64_t>(*d));
    }
    std::vector<Arg> args{IntList{}, fill, type.dtype, NoneArg{}, type.device, NoneArg{}};
    return add(Op::full, std::move(args), std::move(type), {});
  }

  int64_t fixed(Expr e) const {
    auto known = whole_.arena().as_const(e);
    if (!known) refuse("depends on a size or number that varies between calls");
    return *known;
  }

  ValueId compute(ValueId v) {
    const Node& node = *node_of(v);
    if (hands_on(node.op)) return value(std::get<ValueId>(node.args[0]));
    bool index = node.op == Op::index_Tensor || node.op == Op::_unsafe_index_Tensor;
    std::string op(node.op == Op::Extern ? node.extern_name : op_name(node.op));
    if (node.outputs.size() != 1 || (!index && op_class(node.op) != OpClass::Pointwise))
      refuse("calls " + op + ", which is not pointwise");
    if (index) return element(v, {});
    if (!whole_.type(v).sizes.empty()) refuse("makes a tensor of more than one element");
    std::vector<Arg> args;
    for (const Arg& a : node.args) args.push_back(argument(a));
    TensorType type = whole_.type(v);
    type.offset = {};
    return add(node.op, std::move(args), std::move(type), node.loc);
  }

  // x[a][b] is x[a, b].
  ValueId element(ValueId v, std::vector<ValueId> last) {
    const Node& node = *node_of(v);
    std::vector<ValueId> indices;
    for (ValueId i : std::get<TensorList>(node.args[1])) {
      if (!i.valid() || !whole_.type(i).sizes.empty() || !is_integral(whole_.type(i).dtype) ||
          whole_.type(i).dtype == DType::U8)
        refuse("indexes a tensor by more than numbers");
      indices.push_back(i);
    }
    indices.insert(indices.end(), last.begin(), last.end());
    ValueId of = std::get<ValueId>(node.args[0]);
    while (depends_[of.index] && node_of(of) && hands_on(node_of(of)->op)) of = std::get<ValueId>(node_of(of)->args[0]);
    if (depends_[of.index]) {
      if (made_.contains(of.index) || node_of(of)->op != Op::index_Tensor)
        refuse("indexes what it computed from a score or its indices");
      return element(of, std::move(indices));
    }
    const TensorType& from = whole_.type(of);
    if (indices.size() != from.sizes.size()) refuse("takes more than one element of a captured tensor");
    TensorList list;
    for (ValueId i : indices) list.push_back(value(i));
    TensorType type;
    type.dtype = from.dtype;
    type.device = from.device;
    return add(Op::index_Tensor, {value(of), list}, std::move(type), node.loc);
  }

  Arg argument(const Arg& a) {
    if (auto* v = std::get_if<ValueId>(&a)) {
      if (v->valid() && !whole_.type(*v).sizes.empty()) refuse("computes with a whole tensor");
      return v->valid() ? Arg(value(*v)) : a;
    }
    if (auto* e = std::get_if<Expr>(&a)) return out_.graph.arena().constant(fixed(*e));
    if (std::holds_alternative<TensorList>(a) || std::holds_alternative<IntList>(a) ||
        std::holds_alternative<OpaqueArg>(a))
      refuse("calls an operator with a list");
    return a;
  }

  ValueId add(Op op, std::vector<Arg> args, TensorType type, LocId) {
    NodeId n = out_.graph.add_node(op, std::move(args), {std::move(type)});
    return out_.graph.node(n).outputs[0];
  }

  const Graph& whole_;
  const std::function<std::optional<double>(ValueId)>& literal_;
  ScoreGraph out_;
  std::unordered_map<uint32_t, ValueId> made_;
  std::unordered_map<uint32_t, bool> seen_;
  std::vector<bool> depends_;
};

}  // namespace

ScoreGraph cut_score_graph(const Graph& whole, std::span<const ValueId> inputs, std::span<const ValueId> outputs,
                           const std::function<std::optional<double>(ValueId)>& literal) {
  return Cut(whole, inputs, literal).run(outputs);
}

bool is_score_itself(const Graph& scores, ScoreOutput output) {
  ValueId v = scores.outputs[output];
  return v.valid() && (v == scores.inputs[kScore].value || v == scores.inputs[kTangent].value) &&
         (output == kGradient) == (v == scores.inputs[kTangent].value);
}

Graph spread_score_graph(const Graph& scores, ScoreOutput output, std::shared_ptr<sym::ExprArena> arena_of,
                         std::span<const Expr> sizes_of, const std::vector<TensorType>& operands) {
  Graph out(std::move(arena_of));
  sym::ExprArena& arena = out.arena();
  std::vector<Expr> sizes(sizes_of.begin(), sizes_of.end());
  Device device = scores.type(scores.inputs[kScore].value).device;
  auto full = [&](DType dtype) {
    return TensorType{dtype, device, sizes, contiguous_strides(arena, sizes), arena.constant(0)};
  };
  auto add = [&](Op op, std::vector<Arg> args, TensorType type) {
    NodeId n = out.add_node(op, std::move(args), {std::move(type)});
    return out.node(n).outputs[0];
  };
  Expr zero = arena.constant(0), one = arena.constant(1);
  // A value of one or of `n` elements, these along dimension d, seen as one of all sizes.
  auto expanded = [&](ValueId v, size_t d) {
    DType dtype = out.type(v).dtype;
    std::vector<Expr> ones(4, one), strides(4, zero);
    if (d < 4) ones[d] = sizes[d], strides[d] = one;
    v = add(Op::view, {v, IntList{ones}}, {dtype, device, ones, contiguous_strides(arena, ones), zero});
    return add(Op::expand, {v, IntList{sizes}, false}, {dtype, device, sizes, strides, zero});
  };

  std::unordered_map<uint32_t, ValueId> made;
  made[scores.inputs[kScore].value.index] = out.add_input(full(DType::F32), InputKind::Argument);
  made[scores.inputs[kTangent].value.index] = out.add_input(full(DType::F32), InputKind::Argument);
  std::vector<ValueId> given;
  for (const TensorType& t : operands) given.push_back(out.add_input(t, InputKind::Argument));
  for (uint32_t d = 0; d < 4; ++d) {
    DType dtype = scores.type(scores.inputs[kBatch + d].value).dtype;
    ValueId range =
        add(Op::arange, {sizes[d], dtype, NoneArg{}, device, NoneArg{}}, {dtype, device, {sizes[d]}, {one}, zero});
    made[scores.inputs[kBatch + d].value.index] = expanded(range, d);
  }
  for (size_t i = 0; i < operands.size(); ++i) {
    ValueId v = given[i];
    made[scores.inputs[kScoreInputs + i].value.index] = operands[i].sizes.empty() ? expanded(v, 4) : v;
  }
  for (const Node& n : scores.nodes()) {
    std::vector<Arg> args;
    for (const Arg& a : n.args) {
      if (auto* v = std::get_if<ValueId>(&a)) {
        args.push_back(v->valid() ? Arg(made.at(v->index)) : a);
      } else if (auto* l = std::get_if<TensorList>(&a)) {
        TensorList list;
        for (ValueId v : *l) list.push_back(made.at(v.index));
        args.push_back(list);
      } else if (auto* e = std::get_if<Expr>(&a)) {
        args.push_back(arena.constant(*scores.arena().as_const(*e)));
      } else {
        args.push_back(a);
      }
    }
    if (n.op == Op::full) args[0] = IntList{sizes};
    made[n.outputs[0].index] = add(n.op, std::move(args), full(scores.type(n.outputs[0]).dtype));
  }
  ValueId result = made.at(scores.outputs[output].index);
  out.outputs = {add(Op::clone, {result, NoneArg{}}, full(out.type(result).dtype))};
  return out;
}

}  // namespace braze::graph
