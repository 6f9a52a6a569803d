// Small operators that passes/decompose_misc takes apart, and those without a row.
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "graph/interpret_rules.h"
#include "graph/packed_weight.h"

namespace braze::graph::host {
namespace {

// beta * self + alpha * outer(a, b)
void addr(HostCall& c) {
  const HostTensor &self = c.tensor(0), &a = c.tensor(1), &b = c.tensor(2);
  c.each([&](const Dims& i) {
    double outer = c.number(4, 1) * at(a, {i[0]}) * at(b, {i[1]});
    return outer + (c.number(3, 1) != 0 ? c.number(3, 1) * at(self, i) : 0);
  });
}

void trace(HostCall& c) {
  const HostTensor& x = c.tensor(0);
  double s = 0;
  for (int64_t i = 0; i < std::min(x.sizes[0], x.sizes[1]); ++i) s += at(x, {i, i});
  c.give({s});
}

void zero(HostCall& c) {
  c.each([](const Dims&) { return 0.0; });
}

void fill_with(HostCall& c) {
  HostTensor value = c.operand(1);
  c.each([&](const Dims& i) { return at(value, i); });
}

// The index of a half's element in the whole.
Dims shifted(Dims i, size_t d, int64_t by) {
  i[d] += by;
  return i;
}

void glu(HostCall& c) {
  const HostTensor& x = c.tensor(0);
  size_t d = c.dim(1, x.sizes.size());
  c.each([&](const Dims& i) { return at(x, i) * sigmoid(at(x, shifted(i, d, x.sizes[d] / 2))); });
}

// (grad, input, dim)
void glu_backward(HostCall& c) {
  const HostTensor &grad = c.tensor(0), &x = c.tensor(1);
  size_t d = c.dim(2, x.sizes.size());
  int64_t half = x.sizes[d] / 2;
  c.each([&](const Dims& i) {
    bool gate = i[d] >= half;
    Dims first = shifted(i, d, gate ? -half : 0), second = shifted(first, d, half);
    double s = sigmoid(at(x, second));
    return at(grad, first) * (gate ? at(x, first) * s * (1 - s) : s);
  });
}

// [..., C * r * r, H, W] -> [..., C, H * r, W * r]
void pixel_shuffle(HostCall& c) {
  int64_t r = c.integer(1);
  const HostTensor& x = c.tensor(0);
  c.each([&](Dims i) {
    size_t n = i.size() - 3;
    i[n] = (i[n] * r + i[n + 1] % r) * r + i[n + 2] % r;
    i[n + 1] /= r;
    i[n + 2] /= r;
    return at(x, i);
  });
}

void pixel_unshuffle(HostCall& c) {
  int64_t r = c.integer(1);
  const HostTensor& x = c.tensor(0);
  c.each([&](Dims i) {
    size_t n = i.size() - 3;
    i[n + 1] = i[n + 1] * r + i[n] / r % r;
    i[n + 2] = i[n + 2] * r + i[n] % r;
    i[n] /= r * r;
    return at(x, i);
  });
}

void channel_shuffle(HostCall& c) {
  int64_t groups = c.integer(1);
  const HostTensor& x = c.tensor(0);
  c.each([&](Dims i) {
    i[1] = i[1] % groups * (x.sizes[1] / groups) + i[1] / groups;
    return at(x, i);
  });
}

// (tensor, symbol)
void local_scalar(HostCall& c) {
  c.bind(std::get<Expr>(c.node.args.at(1)), static_cast<int64_t>(c.tensor(0).data.at(0)));
}

// (left, relation, right, exception, message, values)
void assert_scalar(HostCall& c) {
  int64_t left = c.integer(0), right = c.integer(2);
  std::string relation = c.text(1);
  bool holds = relation == "=="   ? left == right
               : relation == "!=" ? left != right
               : relation == "<"  ? left < right
                                  : left <= right;
  if (!holds) throw InternalError("an assertion of the graph: " + c.text(4));
}

void check(HostCall& c) {
  const std::string fault = c.text(1);
  for (double x : c.tensor(0).data) {
    bool holds = fault == "Division"         ? x != 0
                 : fault.starts_with("Unit") ? x >= 0 && x <= 1
                                             : x < c.number(2) && x >= (c.flag(3) ? -c.number(2) : 0);
    if (!holds) throw InternalError("a check of the graph: " + fault);
  }
}

// (x, weight, bias, then an activation, which is none)
void packed_linear(HostCall& c) {
  BRAZE_CHECK(c.text(3) == "none", "a packed product with an activation");
  const HostTensor &x = c.tensor(0), &w = c.tensor(1);
  c.each([&](const Dims& i) {
    double s = c.has(2) ? at(c.tensor(2), {i[1]}) : 0;
    for (int64_t k = 0; k < x.sizes[1]; ++k) s += at(x, {i[0], k}) * at(w, {i[1], k});
    return s;
  });
}

// addmm, then relu, or gelu where the last argument says so.
void addmm_activation(HostCall& c) {
  const HostTensor &bias = c.tensor(0), &a = c.tensor(1), &b = c.tensor(2);
  c.each([&](const Dims& i) {
    double s = c.number(3) * at(bias, i);
    for (int64_t k = 0; k < a.sizes[1]; ++k) s += c.number(4) * at(a, {i[0], k}) * at(b, {k, i[1]});
    if (!c.flag(5)) return std::max(s, 0.0);
    return 0.5 * s * (1 + std::tanh(std::sqrt(2 / M_PI) * (s + 0.044715 * s * s * s)));
  });
}

void ldexp(HostCall& c) {
  c.binary([](double a, double b) { return a * std::exp2(b); });
}

// (self, p): of the multivariate gamma function.
void mvlgamma(HostCall& c) {
  c.unary([&](double a) {
    auto p = static_cast<double>(c.integer(1));
    double s = p * (p - 1) / 4 * std::log(M_PI);
    for (double j = 1; j <= p; ++j) s += std::lgamma(a + (1 - j) / 2);
    return s;
  });
}

// (grad, self, noise, lower, upper, training, whether self is the result): the noise holds the slopes.
void rrelu_backward(HostCall& c) {
  bool drawn = c.flag(5) && c.number(4) - c.number(3) > 1e-6;
  c.elementwise(3, [&](const Numbers& v) {
    return v[0] * (drawn ? v[2] : v[1] > 0 ? 1 : (c.number(3) + c.number(4)) / 2);
  });
}

// (tensors, p, dtype)
void foreach_powsum(HostCall& c) {
  for (size_t k = 0; k < c.node.outputs.size(); ++k) {
    double s = 0;
    for (double v : c.tensors(0)[k]->data) s += std::pow(std::fabs(v), c.number(1));
    c.give(k, {s});
  }
}

// (tensors, p, dtype)
void foreach_norm(HostCall& c) {
  for (size_t k = 0; k < c.node.outputs.size(); ++k) c.give(k, {vector_norm(c.tensors(0)[k]->data, c.number(1))});
}

// The row of which aten::_foreach_NAME is one call per element of its lists. Rules take a number where a tensor may be.
Op element_of(std::string_view name) {
  std::string row = "aten::" + std::string(name.substr(std::string_view("aten::_foreach_").size()));
  row = row.substr(0, row.find('.'));
  for (const char* overload : {"", ".Tensor", ".Tensor_Tensor"})
    if (Op op = op_from_name(row + overload); op != Op::Extern && rule_of(op)) return op;
  return Op::Extern;
}

void foreach (HostCall& c) {
  Op op = element_of(c.node.extern_name);
  for (size_t k = 0; k < c.node.outputs.size(); ++k) {
    Node one{op, {}, {}, {c.node.outputs[k]}, {-1}, c.node.loc};
    for (const Arg& a : c.node.args) {
      if (auto* list = std::get_if<TensorList>(&a)) {
        one.args.emplace_back(list->at(k));
      } else if (auto* doubles = std::get_if<DoubleList>(&a)) {
        one.args.emplace_back(doubles->v.at(k));
      } else if (auto* ints = std::get_if<IntList>(&a)) {
        one.args.emplace_back(ints->v.at(k));
      } else if (auto* v = std::get_if<ValueId>(&a); v && !c.state().values[v->index].sizes.empty()) {
        one.args.emplace_back(c.state().values[v->index].data.at(k));  // a factor for each
      } else {
        one.args.push_back(a);
      }
    }
    HostCall call(c.state(), one);
    rule_of(op)(call);
  }
}

}  // namespace

Rule misc_rule(Op op) {
  switch (op) {
    case Op::addr: return addr;
    case Op::trace: return trace;
    case Op::zero: return zero;
    case Op::fill_Scalar:
    case Op::fill_Tensor: return fill_with;
    case Op::glu: return glu;
    case Op::glu_backward: return glu_backward;
    case Op::pixel_shuffle: return pixel_shuffle;
    case Op::pixel_unshuffle: return pixel_unshuffle;
    case Op::channel_shuffle: return channel_shuffle;
    case Op::_local_scalar_dense: return local_scalar;
    case Op::_assert_scalar: return assert_scalar;
    case Op::check: return check;
    default: return nullptr;
  }
}

Rule extern_rule(std::string_view name) {
  if (name == "aten::_addmm_activation") return addmm_activation;
  if (name == graph::packed_linear()) return packed_linear;
  if (name == "aten::ldexp.Tensor") return ldexp;
  if (name == "aten::mvlgamma") return mvlgamma;
  if (name == "aten::rrelu_with_noise_backward") return rrelu_backward;
  if (name == "aten::_foreach_norm.Scalar") return foreach_norm;
  if (name == "aten::_foreach_powsum.Scalar") return foreach_powsum;
  if (name.starts_with("aten::_foreach_") && element_of(name) != Op::Extern) return foreach;
  using Family = Rule (*)(std::string_view);
  for (Family family : {Family(reduce_rule), Family(move_rule), Family(index_rule), Family(search_rule),
                        Family(polynomial_rule), Family(quantize_rule), Family(factory_rule), Family(distance_rule),
                        Family(loss_rule), Family(norm_rule), Family(linalg_rule), Family(conv_rule)})
    if (Rule rule = family(name)) return rule;
  return nullptr;
}

}  // namespace braze::graph::host
