// Floats that vary from call to call: operands of the compiled code in place of parts of it.
#include <opcode.h>

#include <algorithm>

#include "capture/eval/library_objects.h"
#include "capture/eval/operands.h"
#include "capture/eval/size_floats.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"
#include "capture/vars/tensor_float.h"
#include "trace/number.h"

namespace braze::capture {
namespace {

bool is_number(Variable* v) { return v->is(Kind::Float) || open_float(v); }

PyObject* of_torch(const char* name) { return native::attr(Ground::fixed(), library().torch, name); }

PyObject* attribute(Translator& tr, TensorVariable* t, const char* name) {
  Ref v = Ref::steal(native::of_tensor(t->value(tr), name));
  if (!v) tr.raise_current();
  return tr.keep(std::move(v));
}

// Whether the operators of tensors are PyTorch's own: numbers as tensors must not meet what the program put in their
// place.
bool keeps_operators(Translator& tr) {
  for (const char* name :
       {"__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__truediv__", "__rtruediv__", "__pow__",
        "__rpow__", "__neg__", "__lt__", "__le__", "__eq__", "__ne__", "__gt__", "__ge__"}) {
    SourceId at;
    PyObject* found = tr.attributes.lookup_on_type(library().tensor, tr.intern(name), &at);
    if (!found || (PyFunction_Check(found) && !of_library(found))) return false;
    tr.guard_identity(at, found);
  }
  return true;
}

enum class Floats : uint8_t { Half, Single, Double, None };  // None: integers and bools

std::optional<Floats> floats_of(Translator& tr, TensorVariable* t) {
  static PyObject *f16 = of_torch("float16"), *bf16 = of_torch("bfloat16"), *f32 = of_torch("float32"),
                  *f64 = of_torch("float64");
  PyObject* dtype = attribute(tr, t, "dtype");
  if (dtype == f16 || dtype == bf16) return Floats::Half;
  if (dtype == f32) return Floats::Single;
  if (dtype == f64) return Floats::Double;
  Ref floating = Ref::steal(native::attr(Ground::made(), dtype, "is_floating_point")),
      complex = Ref::steal(native::attr(Ground::made(), dtype, "is_complex"));
  if (floating.get() == Py_True || complex.get() == Py_True) return std::nullopt;
  return Floats::None;
}

bool is_scalar(Translator& tr, TensorVariable* t) { return PyLong_AsLong(attribute(tr, t, "ndim")) == 0; }

Variable* as_type(Translator& tr, Variable* t, PyObject* dtype) {
  static PyObject* to = native::attr(Ground::fixed(), reinterpret_cast<PyObject*>(library().tensor), "to");
  return tr.force(tr.real.call_torch(to, Args{{t, tr.constant(dtype, Ground::pure(t))}, {}}));
}

PyObject* function_of(int base) {
  switch (base) {
    case NB_ADD: return operator_function("add");
    case NB_SUBTRACT: return operator_function("sub");
    case NB_MULTIPLY: return operator_function("mul");
    case NB_TRUE_DIVIDE: return operator_function("truediv");
    case NB_REMAINDER: return operator_function("mod");
    case NB_POWER: return operator_function("pow");
    case NB_INPLACE_ADD: return operator_function("iadd");
    case NB_INPLACE_SUBTRACT: return operator_function("isub");
    case NB_INPLACE_MULTIPLY: return operator_function("imul");
    case NB_INPLACE_TRUE_DIVIDE: return operator_function("itruediv");
    default: return nullptr;
  }
}

}  // namespace

TensorVariable* SymbolicFloats::draw(Ref call, Ref real) {
  tr_.effects.no_effect("draws a number");
  tr_.mutate();
  if (!real) tr_.raise_current();
  Ref made = Ref::steal(
      tr_.tracer().lift(real.get(), graph::InputKind::Argument, "random" + std::to_string(tr_.segment().draws.size())));
  if (!made) tr_.raise_current();
  PyObject* index = tr_.keep(Ref::steal(PyLong_FromSize_t(tr_.segment().draws.size())));
  tr_.segment().draws.push_back(std::move(call));
  tr_.segment().like_drawn.push_back(real);
  Variable* operand = tr_.from_python(made, Ground::made());
  numbers_.push_back({tr_.sources().constant(index), std::move(real), operand});
  return operand->as<TensorVariable>();
}

Variable* SymbolicFloats::varying_number(Variable* v) {
  if (v->is(Kind::Float)) return v->as<FloatVariable>()->tensor;
  LazyVariable* lazy = open_float(v);
  if (!lazy || !tr_.view().seen || tr_.view().torch_level || tr_.torch_functions.has_modes() || !keeps_operators(tr_))
    return nullptr;
  if (lazy->function) {
    // 64-bit arithmetic on tensors of one element is that of Python's floats.
    auto operand = [&](Variable* of) -> Variable* {
      if (of && of->is(Kind::Sym)) return size_as_operand(tr_, of);
      return of && open_float(of) ? varying_number(of) : nullptr;
    };
    Variable *left = operand(lazy->left), *right = operand(lazy->right);
    if (!left && !right) return nullptr;
    if (!lazy->right) return float_operator(tr_, lazy->function, left->as<TensorVariable>());
    return tr_.force(tr_.real.call_torch(
        lazy->function, Args{{left ? left : tr_.force(lazy->left), right ? right : tr_.force(lazy->right)}, {}}));
  }
  if (!lazy->source.valid() || tr_.sources()[lazy->source].kind == SourceKind::Const) return nullptr;
  for (const Number& n : numbers_)
    if (n.source == lazy->source) return n.variable;
  double value = PyFloat_AS_DOUBLE(lazy->object.get());
  if (!tr_.view().seen->number(tr_.sources().print(lazy->source), value, tr_.view().dynamic)) return nullptr;
  Ref real = Ref::steal(trace::tensor_of_number(value));
  if (!real) tr_.raise_current();
  Ref made = Ref::steal(tr_.tracer().lift(real.get(), graph::InputKind::Argument, tr_.sources().print(lazy->source)));
  if (!made) tr_.raise_current();
  tr_.guards().type_is(lazy->source, &PyFloat_Type, tr_.line());
  Variable* operand = tr_.from_python(made, Ground::pure(v));
  numbers_.push_back({lazy->source, real, operand});
  return operand;
}

// A number beside a tensor takes part in the precision that the operator computes with and does not decide the result's
// dtype; a tensor of one element does the same where the other has dimensions and is of 32 or 64 bits.
Variable* SymbolicFloats::varying_operand(int op, Variable* a, Variable* b) {
  PyObject* fn = function_of(op);
  bool x = is_number(a), y = is_number(b);
  if (!fn || x == y) return nullptr;
  Variable* other = tr_.force(x ? b : a);
  if (!other->is(Kind::Tensor)) return nullptr;
  auto* tensor = other->as<TensorVariable>();
  auto floats = floats_of(tr_, tensor);
  bool inplace = op >= NB_INPLACE_ADD && !x, scalar = is_scalar(tr_, tensor);
  if (!floats || (inplace && (*floats == Floats::None || *floats == Floats::Half))) return nullptr;
  Variable* number = varying_number(x ? a : b);
  if (!number) return nullptr;
  static PyObject *f32 = of_torch("float32"), *default_dtype = of_torch("get_default_dtype");
  PyObject* back = nullptr;
  Variable* with = other;
  if (*floats == Floats::Half) {
    back = attribute(tr_, tensor, "dtype");
    with = as_type(tr_, other, f32);
    if (scalar) number = as_type(tr_, number, f32);
  } else if (*floats == Floats::None) {
    PyObject* dtype = tr_.keep(Ref::steal(PyObject_CallNoArgs(default_dtype)));
    with = as_type(tr_, other, dtype);
    auto now = floats_of(tr_, with->as<TensorVariable>());
    if (now == Floats::Half) with = as_type(tr_, with, f32), back = dtype;
    if (scalar && now != Floats::Double) number = as_type(tr_, number, f32);
  } else if (scalar && *floats == Floats::Single) {
    number = as_type(tr_, number, f32);
  }
  Variable* r = tr_.real.call_torch(fn, Args{{x ? number : with, x ? with : number}, {}});
  return back ? as_type(tr_, r, back) : r;
}

// The operators compare in the dtype of the tensor, in the default one for ints.
Variable* SymbolicFloats::varying_comparison(int op, Variable* a, Variable* b) {
  if (Variable* r = decided_comparison(op, a, b)) return r;
  bool x = is_number(a), y = is_number(b);
  if (x == y) return nullptr;
  Variable* with = tr_.force(x ? b : a);
  if (!with->is(Kind::Tensor)) return nullptr;
  auto floats = floats_of(tr_, with->as<TensorVariable>());
  if (!floats) return nullptr;
  Variable* number = varying_number(x ? a : b);
  if (!number) return nullptr;
  static PyObject* default_dtype = of_torch("get_default_dtype");
  if (*floats == Floats::None) with = as_type(tr_, with, tr_.keep(Ref::steal(PyObject_CallNoArgs(default_dtype))));
  number = as_type(tr_, number, attribute(tr_, with->as<TensorVariable>(), "dtype"));
  static PyObject* const functions[] = {of_torch("lt"), of_torch("le"), of_torch("eq"),
                                        of_torch("ne"), of_torch("gt"), of_torch("ge")};
  static constexpr int kSwapped[] = {Py_GT, Py_GE, Py_EQ, Py_NE, Py_LT, Py_LE};
  return tr_.force(tr_.real.call_torch(functions[x ? kSwapped[op] : op], Args{{with, number}, {}}));
}

namespace {

// The steps that compute an open float, or a constant that Python makes a float of. False: something else.
bool add_steps(Translator& tr, Variable* v, FloatCondition& to) {
  using Op = FloatCondition::Op;
  if (LazyVariable* lazy = open_float(v)) {
    if (lazy->function) {
      static const std::pair<PyObject*, Op> operators[] = {{function_of(NB_ADD), Op::Add},
                                                           {function_of(NB_SUBTRACT), Op::Subtract},
                                                           {function_of(NB_MULTIPLY), Op::Multiply},
                                                           {function_of(NB_TRUE_DIVIDE), Op::Divide}};
      for (auto [function, op] : operators)
        if (function == lazy->function)
          return add_steps(tr, lazy->left, to) && add_steps(tr, lazy->right, to) && (to.steps.push_back({op}), true);
      return false;
    }
    if (!lazy->source.valid() || tr.sources()[lazy->source].kind == SourceKind::Const) return false;
    auto at = std::find(to.sources.begin(), to.sources.end(), lazy->source);
    to.steps.push_back({Op::Read, static_cast<uint32_t>(at - to.sources.begin())});
    if (at == to.sources.end()) to.sources.push_back(lazy->source);
    return true;
  }
  if (v->is(Kind::Lazy) && !v->as<LazyVariable>()->forced && !PyLong_CheckExact(v->as<LazyVariable>()->object.get()))
    return false;
  PyObject* c = constant_of(tr.force(v));
  // Larger ones are compared with more digits than a float has.
  constexpr int64_t kMostExact = int64_t{1} << 53;
  int overflow = 0;
  if (c && PyLong_CheckExact(c)) {
    int64_t n = PyLong_AsLongLongAndOverflow(c, &overflow);
    if (overflow || n > kMostExact || n < -kMostExact) return false;
    to.steps.push_back({Op::Constant, 0, static_cast<double>(n)});
    return true;
  }
  if (!c || !PyFloat_CheckExact(c)) return false;
  to.steps.push_back({Op::Constant, 0, PyFloat_AS_DOUBLE(c)});
  return true;
}

}  // namespace

Variable* SymbolicFloats::decided_comparison(int op, Variable* a, Variable* b) {
  if (!tr_.view().seen || (!open_float(a) && !open_float(b))) return nullptr;
  FloatCondition condition;
  if (!add_steps(tr_, a, condition) || !add_steps(tr_, b, condition) || condition.sources.empty()) return nullptr;
  static constexpr FloatCondition::Op kOps[] = {FloatCondition::Op::Less,    FloatCondition::Op::LessEqual,
                                                FloatCondition::Op::Equal,   FloatCondition::Op::NotEqual,
                                                FloatCondition::Op::Greater, FloatCondition::Op::GreaterEqual};
  condition.steps.push_back({kOps[op]});
  // Each has the value in this call at hand: what was met is that of its lazy variable.
  std::vector<PyObject*> values;
  bool varies = false;
  for (SourceId s : condition.sources) {
    PyObject* value = tr_.wrapped_at(s);
    values.push_back(value);
    varies |= tr_.view().seen->number(tr_.sources().print(s), PyFloat_AS_DOUBLE(value), tr_.view().dynamic);
  }
  if (!varies) return nullptr;
  std::optional<bool> found = condition.evaluate(values.data());
  if (!found) return nullptr;
  condition.expected = *found;
  for (SourceId s : condition.sources) tr_.guards().type_is(s, &PyFloat_Type, tr_.line());
  tr_.guards().float_holds(std::move(condition), tr_.line());
  return tr_.boolean(*found, Ground::pure(a, b));
}

bool Protocols::truth(Variable* v) {
  if (open_float(v)) {
    Variable* zero = tr_.constant(tr_.keep(Ref::steal(PyFloat_FromDouble(0.0))), Ground::fixed());
    if (Variable* r = tr_.floats.decided_comparison(Py_NE, v, zero)) return r == tr_.boolean(true, Ground::fixed());
  }
  return tr_.force(v)->truth(tr_);
}

bool SymbolicFloats::is_open_float(Variable* v) {
  if (v->is(Kind::Float)) return true;
  LazyVariable* lazy = open_float(v);
  return lazy && (lazy->function || (v->source.valid() && tr_.sources()[v->source].kind != SourceKind::Const));
}

Variable* SymbolicFloats::number_beside(Variable* v, Variable* tensor) {
  auto* t = tensor->as<TensorVariable>();
  auto floats = floats_of(tr_, t);
  if (floats != Floats::Single && floats != Floats::Double) return nullptr;
  Variable* operand = varying_number(v);
  return operand && is_scalar(tr_, t) ? as_type(tr_, operand, attribute(tr_, t, "dtype")) : operand;
}

// ---- arithmetic on numbers that nobody looked at ----

// An int or float that nothing is known of yet, and a constant or another such: the result stays unknown.
Variable* SymbolicFloats::defer_arithmetic(int op, Variable* a, Variable* b) {
  int base = op >= NB_INPLACE_ADD ? op - NB_INPLACE_ADD : op;
  if (base != NB_ADD && base != NB_SUBTRACT && base != NB_MULTIPLY && base != NB_TRUE_DIVIDE) return nullptr;
  for (Variable** v : {&a, &b})
    if ((*v)->is(Kind::Lazy) && (*v)->as<LazyVariable>()->forced) *v = (*v)->as<LazyVariable>()->forced;
  auto is = [](PyObject* o) { return PyLong_CheckExact(o) || PyFloat_CheckExact(o); };
  auto open = [&](Variable* v) {
    return v->is(Kind::Lazy) && !v->as<LazyVariable>()->forced && is(v->as<LazyVariable>()->object.get());
  };
  auto value = [&](Variable* v) -> PyObject* {
    if (open(v)) return v->as<LazyVariable>()->object.get();
    PyObject* c = v->is(Kind::Lazy) ? nullptr : constant_of(v);
    return c && is(c) ? c : nullptr;
  };
  PyObject *x = value(a), *y = value(b);
  if (!x || !y || (!open(a) && !open(b))) return nullptr;
  // Ints and floats that are both unknown would be two kinds of operands. A divisor is looked at: it may be zero.
  bool floats = PyFloat_CheckExact(x) || PyFloat_CheckExact(y);
  if (floats && ((open(a) && PyLong_CheckExact(x)) || (open(b) && PyLong_CheckExact(y)))) return nullptr;
  if (base == NB_TRUE_DIVIDE && (!floats || open(b) || PyObject_IsTrue(y) != 1)) return nullptr;
  Ref r = Ref::steal(operator_row(base).function(x, y));
  if (!r) tr_.raise_current();
  for (Variable* v : {a, b})
    if (open(v) && v->source.valid()) tr_.guards().type_is(v->source, Py_TYPE(value(v)), tr_.line());
  auto* d = tr_.make<LazyVariable>(r.get());
  d->function = operator_function(operator_row(base).operator_name);
  d->left = a;
  d->right = b;
  return d;
}

// -v of such a float.
Variable* SymbolicFloats::defer_negation(Variable* v) {
  if (!v->is(Kind::Lazy) || v->as<LazyVariable>()->forced || !PyFloat_CheckExact(v->as<LazyVariable>()->object.get()))
    return nullptr;
  return defer_arithmetic(NB_MULTIPLY, v,
                          tr_.constant(tr_.keep(Ref::steal(PyFloat_FromDouble(-1.0))), Ground::pure(v)));
}

}  // namespace braze::capture
