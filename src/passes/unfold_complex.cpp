#include "passes/unfold_complex.h"

#include <numeric>
#include <unordered_map>

#include "passes/builder.h"

namespace braze::passes {
namespace {

using Pair = std::pair<ValueId, ValueId>;  // real and imaginary part, of the complex value's size

class Unfolder {
 public:
  explicit Unfolder(const Graph& g) : g_(g), r_(g), group_(g.values().size()), stays_(g.values().size(), false) {
    std::iota(group_.begin(), group_.end(), 0);
  }

  Graph run() {
    find_groups();
    bool any = false;
    for (const Node& n : g_.nodes()) any = any || (n.op == Op::view_as_real && unfolds(operand(n)));
    if (!any) return g_;
    for (const Node& n : g_.nodes()) {
      if (n.op == Op::view_as_real && unfolds(operand(n)))
        join(n);
      else if (makes_complex(n) && unfolds(n.outputs[0]))
        unfold(n);
      else
        r_.copy(n);
    }
    return r_.finish();
  }

 private:
  static ValueId operand(const Node& n, size_t i = 0) {
    auto* v = i < n.args.size() ? std::get_if<ValueId>(&n.args[i]) : nullptr;
    return v ? *v : ValueId();
  }
  bool is_complex_value(ValueId v) const { return v.valid() && is_complex(g_.type(v).dtype); }
  bool makes_complex(const Node& n) const {
    return n.outputs.size() == 1 && n.outputs[0].valid() && is_complex(g_.type(n.outputs[0]).dtype);
  }
  static bool is_view(Op op) {
    switch (op) {
      case Op::view:
      case Op::_unsafe_view:
      case Op::reshape:
      case Op::expand:
      case Op::permute:
      case Op::transpose_int:
      case Op::unsqueeze:
      case Op::squeeze_dim:
      case Op::slice_Tensor:
      case Op::select_int: return true;
      default: return false;
    }
  }

  // Operators that have a form on pairs. Of the operands at least one is complex, or the result alone is.
  bool takes(const Node& n) const {
    if (!makes_complex(n)) return false;
    const DType to = g_.type(n.outputs[0]).dtype;
    if (to != DType::C64 && to != DType::C128) return false;
    const DType part = real_part(to);
    auto fits = [&](size_t i) {
      const ValueId v = operand(n, i);
      if (!v.valid()) return i < n.args.size() && !std::holds_alternative<NoneArg>(n.args[i]);
      return g_.type(v).dtype == to || g_.type(v).dtype == part;
    };
    switch (n.op) {
      case Op::view_as_complex:
      case Op::neg: return true;
      case Op::complex: return operand(n, 0).valid() && operand(n, 1).valid();
      case Op::polar:
        return operand(n, 0).valid() && operand(n, 1).valid() && g_.type(operand(n, 0)).dtype == part &&
               g_.type(operand(n, 1)).dtype == part;
      case Op::mul_Tensor: return fits(0) && fits(1);
      case Op::add_Tensor:
      case Op::sub_Tensor: return fits(0) && fits(1) && is_one_or_absent(g_, n, 2);
      default: return is_view(n.op);
    }
  }

  uint32_t root(uint32_t v) {
    while (group_[v] != v) v = group_[v] = group_[group_[v]];
    return v;
  }
  bool unfolds(ValueId v) { return is_complex_value(v) && !stays_[root(v.index)]; }
  void keep(ValueId v) {
    if (is_complex_value(v)) stays_[root(v.index)] = true;
  }

  bool is_of_input(ValueId v) const {
    while (v.valid() && g_.value(v).node.valid()) {
      const Node& n = g_.node(g_.value(v).node);
      if (!is_view(n.op)) return false;
      v = operand(n);
    }
    return true;
  }

  // Values that are unfolded together or not at all: those that one operator reads and makes.
  void find_groups() {
    for (const Node& n : g_.nodes()) {
      if (!takes(n)) continue;
      Graph::for_each_operand(n, [&](ValueId v) {
        if (is_complex_value(v)) group_[root(v.index)] = root(n.outputs[0].index);
      });
    }
    for (const Node& n : g_.nodes()) {
      const bool known = takes(n);
      if (!known)
        for (ValueId v : n.outputs) keep(v);
      if (!known && n.op != Op::view_as_real) Graph::for_each_operand(n, [&](ValueId v) { keep(v); });
    }
    for (ValueId v : g_.outputs) keep(v);
    for (const graph::Writeback& w : g_.writebacks) keep(w.input), keep(w.value);
    for (const Node& n : g_.nodes())  // it is to stay on the input's memory
      if (n.op == Op::view_as_real && is_of_input(operand(n))) keep(operand(n));
  }

  Pair split(Builder& b, ValueId real) {
    const auto last = static_cast<int64_t>(b.rank(real)) - 1;
    return {b.call(Op::select_int, {real, b.k(last), b.k(0)}), b.call(Op::select_int, {real, b.k(last), b.k(1)})};
  }

  // Of a value of the old graph that is unfolded.
  Pair pair_of(Builder& b, ValueId old) {
    auto [it, fresh] = pairs_.try_emplace(old.index);
    if (fresh) it->second = split(b, b.call(Op::view_as_real, {r_.map(old)}));  // an input
    return it->second;
  }

  // Of a factor or a term: PyTorch makes complex numbers of real ones, with zeros that infinities multiply to NaN.
  struct Operand {
    Arg real, imaginary;
  };
  Operand operand_of(Builder& b, const Node& n, size_t i) {
    const ValueId v = operand(n, i);
    if (!v.valid()) return {b.args.at(i), 0.0};
    if (!is_complex_value(v)) return {r_.map(v), 0.0};
    auto [re, im] = pair_of(b, v);
    return {re, im};
  }

  ValueId cast_part(Builder& b, const Node& n, Arg a) {
    const DType part = real_part(g_.type(n.outputs[0]).dtype);
    ValueId v = std::get<ValueId>(a);
    return b.type(v).dtype == part ? v : b.cast(v, part);
  }

  void unfold(const Node& n) {
    Builder b(r_.out(), n, r_.map_args(n), g_);
    pairs_[n.outputs[0].index] = parts(b, n);
  }

  Pair parts(Builder& b, const Node& n) {
    switch (n.op) {
      case Op::view_as_complex: return split(b, b.tensor(0));
      case Op::complex: {
        const auto& sizes = g_.type(n.outputs[0]).sizes;
        auto whole = [&](size_t i) {
          ValueId v = cast_part(b, n, b.args.at(i));
          return b.type(v).sizes == sizes ? v : b.call(Op::expand, {v, IntList{sizes}, false});
        };
        return {whole(0), whole(1)};
      }
      case Op::polar:
        return {b.mul(b.tensor(0), b.unary(Op::cos, b.tensor(1))), b.mul(b.tensor(0), b.unary(Op::sin, b.tensor(1)))};
      case Op::neg: {
        auto [re, im] = pair_of(b, operand(n));
        return {b.unary(Op::neg, re), b.unary(Op::neg, im)};
      }
      case Op::mul_Tensor: {
        Operand x = operand_of(b, n, 0), y = operand_of(b, n, 1);
        if (!std::holds_alternative<ValueId>(x.imaginary)) std::swap(x, y);
        auto product = [&](const Arg& p, const Arg& q) { return of_parts(b, Op::mul_Tensor, {p, q}); };
        return {of_parts(b, Op::sub_Tensor, {product(x.real, y.real), product(x.imaginary, y.imaginary), b.k(1)}),
                of_parts(b, Op::add_Tensor, {product(x.real, y.imaginary), product(x.imaginary, y.real), b.k(1)})};
      }
      case Op::add_Tensor:
      case Op::sub_Tensor: return sum(b, n);
      default: {
        auto [re, im] = pair_of(b, operand(n));
        auto view = [&](ValueId of) {
          std::vector<Arg> args = b.args;
          args[0] = of;
          // Parts of an input lie two apart, where its own elements are neighbours.
          return b.call(n.op == Op::view || n.op == Op::_unsafe_view ? Op::reshape : n.op, std::move(args));
        };
        return {view(re), view(im)};
      }
    }
  }

  // A product or sum of parts. Of two tensors it has the result's sizes, and its layout: that was found when more was
  // known of open sizes.
  static ValueId of_parts(Builder& b, Op op, std::vector<Arg> args) {
    if (!std::holds_alternative<ValueId>(args[0]) || !std::holds_alternative<ValueId>(args[1]))
      return b.call(op, std::move(args));
    TensorType type = b.result(0);
    type.dtype = real_part(type.dtype);
    return b.calls(op, std::move(args), {std::move(type)})[0];
  }

  Pair sum(Builder& b, const Node& n) {
    Operand x = operand_of(b, n, 0), y = operand_of(b, n, 1);
    const bool minus = n.op == Op::sub_Tensor;
    auto of = [&](Arg a, Arg c) {
      return of_parts(b, minus ? Op::sub_Tensor : Op::add_Tensor, {std::move(a), std::move(c), b.k(1)});
    };
    ValueId real = of(x.real, y.real), imaginary;
    if (std::holds_alternative<ValueId>(x.imaginary))
      imaginary = of(x.imaginary, y.imaginary);
    else
      imaginary = minus ? b.call(Op::rsub_Scalar, {y.imaginary, 0.0, b.k(1)}) : b.add(y.imaginary, 0.0);
    const auto& sizes = g_.type(n.outputs[0]).sizes;
    if (b.type(imaginary).sizes != sizes) imaginary = b.call(Op::expand, {imaginary, IntList{sizes}, false});
    return {real, imaginary};
  }

  void join(const Node& n) {
    Builder b(r_.out(), n, {}, g_);
    auto [re, im] = pair_of(b, operand(n));
    const auto last = static_cast<int64_t>(b.rank(re));
    NodeId made = r_.out().add_node(Op::stack, {TensorList{re, im}, b.k(last)}, {g_.type(n.outputs[0])}, n.origin());
    r_.replace(n.outputs[0], r_.out().node(made).outputs[0]);
  }

  static DType real_part(DType complex) { return complex == DType::C64 ? DType::F32 : DType::F64; }

  const Graph& g_;
  Rewriter r_;
  std::vector<uint32_t> group_;  // per value: a forest
  std::vector<bool> stays_;      // per root: some operator needs a complex tensor
  std::unordered_map<uint32_t, Pair> pairs_;
};

}  // namespace

Graph unfold_complex(const Graph& g) {
  bool any = false;
  for (const Node& n : g.nodes()) any = any || n.op == Op::view_as_real;
  if (!any) return g;
  try {
    return Unfolder(g).run();
  } catch (const NoRule&) {  // a view of the parts that is not known
    return g;
  }
}

}  // namespace braze::passes
