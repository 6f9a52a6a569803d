// Arithmetic and views of complex numbers, whose elements are two numbers each.
#include <algorithm>
#include <complex>

#include "graph/interpret_rules.h"

namespace braze::graph::host {
namespace {

using Complex = std::complex<double>;

bool is_complex_value(const Graph& g, ValueId v) { return v.valid() && is_complex(g.type(v).dtype); }

// At an index that is broadcast to it; real ones without an imaginary part.
Complex number_at(const HostTensor& t, const Dims& index) {
  if (!is_complex(t.dtype)) return at(t, index);
  Dims own(t.sizes.size());
  for (size_t d = 0; d < own.size(); ++d) own[d] = t.sizes[d] == 1 ? 0 : index[d + index.size() - own.size()];
  const size_t i = 2 * flat_index(t.sizes, own);
  return {t.data[i], t.data[i + 1]};
}

template <class F>
void each(HostCall& c, F&& f) {
  Numbers out;
  for_each_index(c.sizes(), [&](const Dims& i) {
    const Complex z = f(i);
    out.insert(out.end(), {z.real(), z.imag()});
  });
  c.give(std::move(out));
}

// As PyTorch multiplies, infinities and all.
Complex product(Complex a, Complex b) {
  return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}

// A view moves whole elements: as it moves their numbers.
void moved(State& state, const Node& n) {
  Graph moves(state.graph.shared_arena());
  const HostTensor& x = state.values[std::get<ValueId>(n.args[0]).index];
  auto numbered = [&](ValueId v) {
    TensorType t = state.graph.type(v);
    t.dtype = DType::F64;
    return t;
  };
  std::vector<Arg> args = n.args;
  args[0] = moves.add_input(numbered(std::get<ValueId>(n.args[0])), InputKind::Argument);
  NodeId made = moves.add_node(n.op, std::move(args), {numbered(n.outputs[0])});
  moves.outputs = moves.node(made).outputs;
  HostTensor places{DType::F64, x.sizes, Numbers(static_cast<size_t>(count(x.sizes)))};
  for (size_t i = 0; i < places.data.size(); ++i) places.data[i] = static_cast<double>(i);
  const HostTensor order = interpret(moves, {places}, state.given)[0];
  Numbers out;
  for (double from : order.data) {
    const auto i = 2 * static_cast<size_t>(from);
    out.insert(out.end(), {x.data[i], x.data[i + 1]});
  }
  HostCall(state, n).give(std::move(out));
}

}  // namespace

bool interpret_complex(State& state, const Node& n) {
  bool any = n.outputs.size() == 1 && is_complex_value(state.graph, n.outputs[0]);
  Graph::for_each_operand(n, [&](ValueId v) { any = any || is_complex_value(state.graph, v); });
  if (!any || n.op == Op::Extern) return false;
  HostCall c(state, n);
  switch (n.op) {
    case Op::view_as_real:
    case Op::view_as_complex: c.give(c.tensor(0).data); return true;
    case Op::complex:
      each(c, [&](const Dims& i) { return Complex(at(c.tensor(0), i), at(c.tensor(1), i)); });
      return true;
    case Op::polar:
      each(c, [&](const Dims& i) { return std::polar(at(c.tensor(0), i), at(c.tensor(1), i)); });
      return true;
    case Op::neg: each(c, [&](const Dims& i) { return -number_at(c.tensor(0), i); }); return true;
    case Op::mul_Tensor:
    case Op::add_Tensor:
    case Op::sub_Tensor: {
      const HostTensor x = c.operand(0), y = c.operand(1);
      const double scale = n.op == Op::mul_Tensor ? 1 : c.number(2, 1);
      each(c, [&](const Dims& i) {
        const Complex a = number_at(x, i), b = number_at(y, i);
        return n.op == Op::mul_Tensor ? product(a, b) : n.op == Op::add_Tensor ? a + b * scale : a - b * scale;
      });
      return true;
    }
    default:
      if (op_class(n.op) != OpClass::View || n.outputs.size() != 1) return false;
      moved(state, n);
      return true;
  }
}

}  // namespace braze::graph::host
