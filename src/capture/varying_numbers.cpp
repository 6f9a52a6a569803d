// Floats that vary from call to call: operands of the compiled code in place of parts of it.
#include <opcode.h>

#include "capture/known.h"
#include "capture/translator.h"
#include "capture/vars/all.h"
#include "trace/number.h"

namespace braze::capture {
namespace {

LazyVariable* open_float(Variable* v) {
  if (!v->is(Kind::Lazy)) return nullptr;
  auto* lazy = v->as<LazyVariable>();
  return !lazy->forced && PyFloat_CheckExact(lazy->object.get()) ? lazy : nullptr;
}

PyObject* of_torch(const char* name) { return PyObject_GetAttrString(known().torch, name); }

PyObject* attribute(Translator& tr, TensorVariable* t, const char* name) {
  Ref v = Ref::steal(PyObject_GetAttrString(t->value(tr), name));
  if (!v) tr.raise_current();
  return tr.keep(std::move(v));
}

enum class Floats : uint8_t { Half, Single, Double, None };  // None: integers and bools

std::optional<Floats> floats_of(Translator& tr, TensorVariable* t) {
  static PyObject *f16 = of_torch("float16"), *bf16 = of_torch("bfloat16"), *f32 = of_torch("float32"),
                  *f64 = of_torch("float64");
  PyObject* dtype = attribute(tr, t, "dtype");
  if (dtype == f16 || dtype == bf16) return Floats::Half;
  if (dtype == f32) return Floats::Single;
  if (dtype == f64) return Floats::Double;
  Ref floating = Ref::steal(PyObject_GetAttrString(dtype, "is_floating_point")),
      complex = Ref::steal(PyObject_GetAttrString(dtype, "is_complex"));
  if (floating.get() == Py_True || complex.get() == Py_True) return std::nullopt;
  return Floats::None;
}

bool is_scalar(Translator& tr, TensorVariable* t) { return PyLong_AsLong(attribute(tr, t, "ndim")) == 0; }

Variable* as_type(Translator& tr, Variable* t, PyObject* dtype) {
  static PyObject* to = PyObject_GetAttrString(reinterpret_cast<PyObject*>(known().tensor), "to");
  return tr.force(tr.call_torch(to, Args{{t, tr.constant(dtype)}, {}}));
}

PyObject* function_of(int base) {
  static PyObject* module = PyImport_ImportModule("operator");
  static PyObject *add = PyObject_GetAttrString(module, "add"), *sub = PyObject_GetAttrString(module, "sub"),
                  *mul = PyObject_GetAttrString(module, "mul"), *div = PyObject_GetAttrString(module, "truediv"),
                  *iadd = PyObject_GetAttrString(module, "iadd"), *isub = PyObject_GetAttrString(module, "isub"),
                  *imul = PyObject_GetAttrString(module, "imul"), *idiv = PyObject_GetAttrString(module, "itruediv");
  switch (base) {
    case NB_ADD:
      return add;
    case NB_SUBTRACT:
      return sub;
    case NB_MULTIPLY:
      return mul;
    case NB_TRUE_DIVIDE:
      return div;
    case NB_INPLACE_ADD:
      return iadd;
    case NB_INPLACE_SUBTRACT:
      return isub;
    case NB_INPLACE_MULTIPLY:
      return imul;
    case NB_INPLACE_TRUE_DIVIDE:
      return idiv;
    default:
      return nullptr;
  }
}

}  // namespace

Variable* Translator::varying_number(Variable* v) {
  LazyVariable* lazy = open_float(v);
  if (!lazy || !view_.seen || view_.torch_level) return nullptr;
  if (lazy->function) {
    // 64-bit arithmetic on tensors of one element is that of Python's floats.
    auto operand = [&](Variable* of) -> Variable* { return open_float(of) ? varying_number(of) : nullptr; };
    Variable *left = operand(lazy->left), *right = operand(lazy->right);
    if (!left && !right) return nullptr;
    return force(
        call_torch(lazy->function, Args{{left ? left : force(lazy->left), right ? right : force(lazy->right)}, {}}));
  }
  if (!lazy->source.valid() || sources()[lazy->source].kind == SourceKind::Const) return nullptr;
  for (const Number& n : numbers_)
    if (n.source == lazy->source) return n.variable;
  double value = PyFloat_AS_DOUBLE(lazy->object.get());
  if (!view_.seen->number(sources().print(lazy->source), value, view_.dynamic)) return nullptr;
  Ref real = Ref::steal(trace::tensor_of_number(value));
  if (!real) raise_current();
  Ref made = Ref::steal(tracer().lift(real.get(), graph::InputKind::Argument, sources().print(lazy->source)));
  if (!made) raise_current();
  guards().type_is(lazy->source, &PyFloat_Type, line());
  Variable* operand = from_python(made);
  numbers_.push_back({lazy->source, real, operand});
  return operand;
}

// A number beside a tensor takes part in the precision that the operator computes with and does not decide the result's
// dtype; a tensor of one element does the same where the other has dimensions and is of 32 or 64 bits.
Variable* Translator::varying_operand(int op, Variable* a, Variable* b) {
  PyObject* fn = function_of(op);
  LazyVariable *x = open_float(a), *y = open_float(b);
  if (!fn || (x != nullptr) == (y != nullptr)) return nullptr;
  Variable* other = force(x ? b : a);
  if (!other->is(Kind::Tensor)) return nullptr;
  auto* tensor = other->as<TensorVariable>();
  auto floats = floats_of(*this, tensor);
  bool inplace = op >= NB_INPLACE_ADD && !x, scalar = is_scalar(*this, tensor);
  if (!floats || (inplace && (*floats == Floats::None || *floats == Floats::Half))) return nullptr;
  Variable* number = varying_number(x ? a : b);
  if (!number) return nullptr;
  static PyObject *f32 = of_torch("float32"), *default_dtype = of_torch("get_default_dtype");
  PyObject* back = nullptr;
  Variable* with = other;
  if (*floats == Floats::Half) {
    back = attribute(*this, tensor, "dtype");
    with = as_type(*this, other, f32);
    if (scalar) number = as_type(*this, number, f32);
  } else if (*floats == Floats::None) {
    PyObject* dtype = keep(Ref::steal(PyObject_CallNoArgs(default_dtype)));
    with = as_type(*this, other, dtype);
    auto now = floats_of(*this, with->as<TensorVariable>());
    if (now == Floats::Half) with = as_type(*this, with, f32), back = dtype;
    if (scalar && now != Floats::Double) number = as_type(*this, number, f32);
  } else if (scalar && *floats == Floats::Single) {
    number = as_type(*this, number, f32);
  }
  Variable* r = call_torch(fn, Args{{x ? number : with, x ? with : number}, {}});
  return back ? as_type(*this, r, back) : r;
}

bool Translator::is_open_float(Variable* v) {
  LazyVariable* lazy = open_float(v);
  return lazy && (lazy->function || (v->source.valid() && sources()[v->source].kind != SourceKind::Const));
}

Variable* Translator::number_beside(Variable* v, Variable* tensor) {
  auto* t = tensor->as<TensorVariable>();
  auto floats = floats_of(*this, t);
  if (floats != Floats::Single && floats != Floats::Double) return nullptr;
  Variable* operand = varying_number(v);
  return operand && is_scalar(*this, t) ? as_type(*this, operand, attribute(*this, t, "dtype")) : operand;
}

}  // namespace braze::capture
