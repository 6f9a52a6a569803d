// Tensors made from numbers.
#include "base/check.h"
#include "lower/rules.h"

namespace braze::lower {

using graph::Op;

namespace {

Val zero(const Point& p) { return p.literal(0); }  // of empty tensors too: any value will do
Val one(const Point& p) { return p.literal(1); }
Val full(const Point& p) { return p.held(1); }
Val new_full(const Point& p) { return p.held(2); }
Val scalar_tensor(const Point& p) { return p.held(0); }

// start + i * step; floats in double, as eager accumulates them.
Val sequence(const Point& p, int start, int step) {
  DType wide = is_floating(p.dtype()) ? DType::F64 : DType::I64;
  Val i = p.wrap(p.body.index(p.index[0], wide));
  if (step >= 0) i = i * p.in(step, wide);
  return start >= 0 ? p.in(start, wide) + i : i;
}
Val arange(const Point& p) { return sequence(p, -1, -1); }
Val arange_start(const Point& p) { return sequence(p, 0, -1); }
Val arange_step(const Point& p) { return sequence(p, 0, 2); }

// From both ends to the middle, as eager does.
Val linspace(const Point& p) {
  DType t = p.dtype();
  auto rounded = [&](double x) { return t == DType::F32 ? static_cast<double>(static_cast<float>(x)) : x; };
  int64_t n = p.low.arena.as_const(p.type().sizes[0]).value();
  double start = rounded(p.number(0)), end = rounded(p.number(1));
  if (n < 2) return p.literal(start);
  double step = rounded(rounded(end - start) / static_cast<double>(n - 1));
  Val i = p.wrap(p.body.index(p.index[0], t));
  int64_t half = n / 2;
  return where(i < static_cast<double>(half), start + step * i, end - step * (static_cast<double>(n - 1) - i));
}

Val eye(const Point& p) {
  Val r = p.wrap(p.body.index(p.index[0], DType::I64)), c = p.wrap(p.body.index(p.index[1], DType::I64));
  return (r == c).to(p.dtype());
}

}  // namespace

ElementRule factory_rule(Op op) {
  switch (op) {
    case Op::full:
    case Op::full_like: return full;
    case Op::zeros:
    case Op::zeros_like:
    case Op::new_zeros:
    case Op::empty_memory_format:
    case Op::empty_like:
    case Op::empty_strided:
    case Op::new_empty:
    case Op::new_empty_strided: return zero;
    case Op::ones:
    case Op::ones_like:
    case Op::new_ones: return one;
    case Op::new_full: return new_full;
    case Op::arange: return arange;
    case Op::arange_start: return arange_start;
    case Op::arange_start_step: return arange_step;
    case Op::scalar_tensor: return scalar_tensor;
    case Op::linspace: return linspace;
    case Op::eye:
    case Op::eye_m: return eye;
    default: return nullptr;
  }
}

bool takes_factory(const graph::Graph& g, const graph::Node& node) {
  if (node.op != Op::linspace) return factory_rule(node.op) != nullptr;
  const TensorType& t = g.type(node.outputs[0]);
  auto constant = [&](const graph::Arg& a) {
    auto* e = std::get_if<Expr>(&a);
    return std::holds_alternative<double>(a) || (e && g.arena().as_const(*e));
  };
  // Eager rounds every step of half types, and truncates integers.
  return (t.dtype == DType::F32 || t.dtype == DType::F64) && g.arena().as_const(t.sizes[0]) && constant(node.args[0]) &&
         constant(node.args[1]);
}

}  // namespace braze::lower
