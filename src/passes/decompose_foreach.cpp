// Operators over lists of tensors (aten::_foreach_*), which have no rows: one row's call per tensor of the list, by
// name.
#include <cstring>

#include "passes/builder.h"

namespace braze::passes {
namespace {

struct Form {
  const char* name;  // between "aten::_foreach_" and the overload
  Op with_tensor, with_number;
};

// self and one operand: a list (List), one for all (Scalar, Tensor), or a number per tensor (ScalarList).
const Form kBinary[] = {
    {"add", Op::add_Tensor, Op::add_Scalar},
    {"sub", Op::sub_Tensor, Op::sub_Scalar},
    {"mul", Op::mul_Tensor, Op::mul_Scalar},
    {"div", Op::div_Tensor, Op::div_Scalar},
    {"maximum", Op::clamp_min_Tensor, Op::clamp_min},
    {"minimum", Op::clamp_max_Tensor, Op::clamp_max},
    {"clamp_min", Op::clamp_min_Tensor, Op::clamp_min},
    {"clamp_max", Op::clamp_max_Tensor, Op::clamp_max},
    {"pow", Op::pow_Tensor_Tensor, Op::pow_Tensor_Scalar},
};
const Form kTernary[] = {{"addcmul", Op::addcmul, Op::addcmul}, {"addcdiv", Op::addcdiv, Op::addcdiv}};

struct Unary {
  const char* name;
  Op op;
};
const Unary kUnary[] = {
    {"abs", Op::abs},
    {"acos", Op::acos},
    {"asin", Op::asin},
    {"atan", Op::atan},
    {"ceil", Op::ceil},
    {"cos", Op::cos},
    {"cosh", Op::cosh},
    {"erf", Op::erf},
    {"erfc", Op::erfc},
    {"exp", Op::exp},
    {"expm1", Op::expm1},
    {"floor", Op::floor},
    {"frac", Op::frac},
    {"clone", Op::clone},
    {"lgamma", Op::lgamma},
    {"log", Op::log},
    {"log10", Op::log10},
    {"log1p", Op::log1p},
    {"log2", Op::log2},
    {"neg", Op::neg},
    {"round", Op::round},
    {"rsqrt", Op::rsqrt},
    {"sigmoid", Op::sigmoid},
    {"sign", Op::sign},
    {"sin", Op::sin},
    {"sinh", Op::sinh},
    {"sqrt", Op::sqrt},
    {"tan", Op::tan},
    {"tanh", Op::tanh},
    {"trunc", Op::trunc},
    {"reciprocal", Op::reciprocal},
};

const TensorList& list(const Builder& b, size_t i) {
  auto* l = i < b.args.size() ? std::get_if<TensorList>(&b.args[i]) : nullptr;
  if (!l || l->size() != b.node.outputs.size()) throw NoRule{};
  return *l;
}

// Element k of an argument that may be a list, a tensor of one element or a number for all, or a number each.
Arg each(const Builder& b, size_t i, size_t k) {
  if (i >= b.args.size()) throw NoRule{};
  const Arg& a = b.args[i];
  if (std::holds_alternative<TensorList>(a)) return list(b, i)[k];
  if (auto* d = std::get_if<DoubleList>(&a)) return d->v.at(k);
  if (auto* l = std::get_if<IntList>(&a)) return l->v.at(k);
  if (auto* v = std::get_if<ValueId>(&a)) {
    if (b.rank(*v) != 0) throw NoRule{};
    return a;
  }
  return a;
}

bool is_tensor(const Arg& a) { return std::holds_alternative<ValueId>(a); }

void binary(Builder& b, const Form& form, std::string_view overload) {
  if (overload == "ScalarAndTensor") {  // pow: a number and a list
    const TensorList& exponents = list(b, 1);
    for (size_t k = 0; k < exponents.size(); ++k) b.set(k, b.call(Op::pow_Scalar, {b.args[0], exponents[k]}));
    return;
  }
  bool scaled = std::strcmp(form.name, "add") == 0 || std::strcmp(form.name, "sub") == 0;
  for (size_t k = 0; k < list(b, 0).size(); ++k) {
    Arg y = each(b, 1, k);
    std::vector<Arg> args{list(b, 0)[k], y};
    if (scaled) args.push_back(b.args.size() > 2 ? b.args[2] : Arg(b.k(1)));
    b.set(k, b.call(is_tensor(y) ? form.with_tensor : form.with_number, std::move(args)));
  }
}

void ternary(Builder& b, const Form& form) {
  bool one_tensor = is_tensor(b.args.at(3));  // of a factor per list element
  for (size_t k = 0; k < list(b, 0).size(); ++k) {
    ValueId x = list(b, 0)[k], y = list(b, 1)[k], z = list(b, 2)[k];
    if (!one_tensor) {
      b.set(k, b.call(form.with_tensor, {x, y, z, each(b, 3, k)}));
      continue;
    }
    ValueId factors = std::get<ValueId>(b.args[3]);
    if (b.rank(factors) != 1 || b.type(factors).device != b.type(x).device) throw NoRule{};
    ValueId factor = b.call(Op::select_int, {factors, b.k(0), b.k(static_cast<int64_t>(k))});
    b.set(k, b.call(form.with_tensor, {x, b.cast(b.mul(factor, y), b.type(y).dtype), z, b.k(1)}));
  }
}

void lerp(Builder& b) {
  for (size_t k = 0; k < list(b, 0).size(); ++k) {
    Arg w = each(b, 2, k);
    b.set(k, b.call(is_tensor(w) ? Op::lerp_Tensor : Op::lerp_Scalar, {list(b, 0)[k], list(b, 1)[k], w}));
  }
}

// (self, ord, dtype)
void norm(Builder& b) {
  for (size_t k = 0; k < list(b, 0).size(); ++k)
    b.set(k, b.vector_norm(list(b, 0)[k], b.args.at(1), NoneArg{}, false, b.args.at(2)));
}

// (self, ord, dtype)
void foreach_powsum(Builder& b) {
  if (!std::holds_alternative<NoneArg>(b.args.at(2))) throw NoRule{};
  for (size_t k = 0; k < list(b, 0).size(); ++k) b.set(k, b.power_sum(list(b, 0)[k], b.number(1), NoneArg{}, false));
}

}  // namespace

bool decompose_foreach(Builder& b) {
  std::string_view name = b.node.extern_name;
  constexpr std::string_view prefix = "aten::_foreach_";
  if (!name.starts_with(prefix)) return false;
  name.remove_prefix(prefix.size());
  size_t dot = name.find('.');
  std::string_view overload = dot == name.npos ? std::string_view() : name.substr(dot + 1);
  name = name.substr(0, dot);
  for (const Form& f : kBinary)
    if (name == f.name) return binary(b, f, overload), true;
  for (const Form& f : kTernary)
    if (name == f.name) return ternary(b, f), true;
  if (name == "lerp") return lerp(b), true;
  if (name == "norm") return norm(b), true;
  if (name == "powsum") return foreach_powsum(b), true;
  if (name == "copy") {
    for (size_t k = 0; k < list(b, 0).size(); ++k)
      b.set(k, b.call(Op::copy, {list(b, 0)[k], list(b, 1)[k], b.args.at(2)}));
    return true;
  }
  if (name == "max") {
    for (size_t k = 0; k < list(b, 0).size(); ++k) b.set(k, b.unary(Op::max, list(b, 0)[k]));
    return true;
  }
  if (name == "zero") {
    for (size_t k = 0; k < b.node.outputs.size(); ++k)
      b.set(k, b.full(b.result(k).sizes, b.k(0), b.result(k).dtype, b.result(k).device));
    return true;
  }
  if (!overload.empty()) return false;
  for (const Unary& u : kUnary)
    if (name == u.name) {
      for (size_t k = 0; k < list(b, 0).size(); ++k) b.set(k, b.unary(u.op, list(b, 0)[k]));
      return true;
    }
  return false;
}

}  // namespace braze::passes
