#include "capture/vars/tensor_float.h"

#include <opcode.h>

#include <cmath>
#include <unordered_map>

#include "capture/cpython/imported.h"
#include "capture/cpython/texts.h"
#include "capture/eval/library_objects.h"
#include "capture/eval/operands.h"
#include "capture/vars/all.h"
#include "capture/vars/tensor_number.h"

namespace braze::capture {
namespace {

PyObject* of_torch(const char* name) { return native::attr(Ground::fixed(), library().torch, name); }
TensorVariable* call(Translator& tr, PyObject* fn, const Args& args) {
  return tr.force(tr.real.call_torch(fn, args))->as<TensorVariable>();
}

Variable* number_of_double(Translator& tr, double value) {
  return tr.constant(tr.keep(Ref::steal(PyFloat_FromDouble(value))), Ground::fixed());
}

// A number as an operand beside such a float: a tensor, or a constant that a double holds. nullptr: neither.
Variable* operand(Translator& tr, Variable* v) {
  constexpr double kExact = 9007199254740992.0;  // ints up to here are doubles
  if (v->is(Kind::Lazy))
    if (Variable* varying = tr.floats.varying_number(v)) return varying;
  v = tr.force(v);
  if (v->is(Kind::Float)) return v->as<FloatVariable>()->tensor;
  if (v->is(Kind::Sym) && v->type() == &PyLong_Type) {
    static PyObject *scalar = of_torch("scalar_tensor"), *f64 = of_torch("float64");
    return call(tr, scalar, Args{{v}, {{tr.intern("dtype"), tr.constant(f64, Ground::pure(v))}}});
  }
  PyObject* c = constant_of(v);
  if (!c) return nullptr;
  if (PyFloat_CheckExact(c)) return v;
  if (!PyLong_Check(c)) return nullptr;
  double d = PyLong_AsDouble(c);
  if (PyErr_Occurred()) return PyErr_Clear(), nullptr;
  return std::abs(d) <= kExact ? number_of_double(tr, d) : nullptr;
}

Variable* made(Translator& tr, TensorVariable* t) { return tr.make<FloatVariable>(t); }

TensorVariable* compared(Translator& tr, const char* name, Variable* a, Variable* b) {
  static std::unordered_map<std::string, PyObject*> functions;
  PyObject*& fn = functions.try_emplace(name).first->second;
  if (!fn) fn = of_torch(name);
  if (a->is(Kind::Tensor)) return call(tr, fn, Args{{a, b}, {}});
  static const std::unordered_map<std::string, const char*> swapped{{"lt", "gt"}, {"le", "ge"}, {"gt", "lt"},
                                                                    {"ge", "le"}, {"eq", "eq"}, {"ne", "ne"}};
  return compared(tr, swapped.at(name), b, a);
}

Variable* as_bool(Translator& tr, TensorVariable* t) {
  Variable* b = number_of(tr, t, nullptr);
  if (!b) tr.unsupported(Reason::ScalarFromTensor, "a comparison of a number that only the run knows");
  return b;
}

// Has the run raise unless the element of t is true.
void require(Translator& tr, TensorVariable* t, const char* exception, const char* message) {
  Variable* b = tr.force(as_bool(tr, t));
  if (b->is(Kind::Sym)) {
    tr.mutate();
    tr.tracer().assume(b->as<SymVariable>()->value.get(), exception, message);
  } else if (!tr.truth(b)) {
    tr.unsupported(Reason::RaisedException, message);
  }
}

// Has the run raise OverflowError where a finite argument gave a result that is not.
void require_finite(Translator& tr, Variable* result, Variable* argument, const char* message) {
  static PyObject *finite = of_torch("isfinite"), *either = of_torch("logical_or"), *negated = of_torch("logical_not");
  Variable* was = call(tr, negated, Args{{call(tr, finite, Args{{argument}, {}})}, {}});
  require(tr, call(tr, either, Args{{call(tr, finite, Args{{result}, {}}), was}, {}}), "OverflowError", message);
}

Variable* to_int(Translator& tr, TensorVariable* t) {
  static PyObject* const to_long = tensor_method("long");
  static PyObject* const abs = of_torch("abs");
  require(tr, compared(tr, "lt", call(tr, abs, Args{{t}, {}}), number_of_double(tr, 9.2e18)), "OverflowError",
          "cannot convert this float to an integer of 64 bits");
  return number_of(tr, call(tr, to_long, Args{{t}, {}}), &PyLong_Type);
}

// What a function does with one such float: an operator of torch, and what it asks of its argument or its result.
struct Function {
  const char* torch;  // nullptr: see `to`
  enum class Gives : uint8_t { Float, Int, Bool } gives = Gives::Float;
  // The argument is to stand in this relation to `bound`, unless it is NaN.
  const char* relation = nullptr;
  double bound = 0;
  bool finite = false;  // a finite argument gives a finite result
};

const std::unordered_map<PyObject*, Function>& functions() {
  static const auto* table = [] {
    using G = Function::Gives;
    auto* t = new std::unordered_map<PyObject*, Function>;
    auto add = [&](const char* module, const char* name, Function f) {
      Ref m = Ref::steal(PyImport_ImportModule(module));
      if (PyObject* o = m ? native::attr(Ground::fixed(), m.get(), name) : nullptr) t->emplace(o, f);
      PyErr_Clear();
    };
    add("math", "sqrt", {"sqrt", G::Float, "lt", 0});
    add("math", "exp", {"exp", G::Float, nullptr, 0, true});
    add("math", "log", {"log", G::Float, "le", 0});
    add("math", "log2", {"log2", G::Float, "le", 0});
    add("math", "log10", {"log10", G::Float, "le", 0});
    add("math", "tanh", {"tanh"});
    add("math", "atan", {"atan"});
    add("math", "fabs", {"abs"});
    add("math", "erf", {"erf"});
    add("math", "floor", {"floor", G::Int});
    add("math", "ceil", {"ceil", G::Int});
    add("math", "trunc", {"trunc", G::Int});
    add("math", "isnan", {"isnan", G::Bool});
    add("math", "isinf", {"isinf", G::Bool});
    add("math", "isfinite", {"isfinite", G::Bool});
    add("builtins", "abs", {"abs"});
    add("builtins", "round", {"round", G::Int});
    add("builtins", "int", {"trunc", G::Int});
    add("builtins", "float", {nullptr});
    add("torch", "sym_float", {nullptr});
    add("torch", "sym_int", {"trunc", G::Int});
    return t;
  }();
  return *table;
}

}  // namespace

Variable* float_of(Translator& tr, TensorVariable* t) {
  static PyObject *detach = tensor_method("detach"), *to = tensor_method("to"), *reshape = tensor_method("reshape"),
                  *f64 = of_torch("float64");
  Ref rank = Ref::steal(native::of_tensor(t->value(tr), "ndim")),
      cpu = Ref::steal(native::of_tensor(t->value(tr), "is_cpu"));
  if (!rank || !cpu) tr.raise_current();
  TensorVariable* v = call(tr, detach, Args{{t}, {}});
  if (PyLong_AsLong(rank.get()) != 0) v = call(tr, reshape, Args{{v, tr.tuple({})}, {}});
  if (cpu.get() != Py_True) v = call(tr, to, Args{{v, tr.string("cpu", Ground::fixed())}, {}});
  return made(tr, call(tr, to, Args{{v, tr.constant(f64, Ground::pure(t))}, {}}));
}

Variable* float_arithmetic(Translator& tr, int op, Variable* a, Variable* b) {
  const int base = op >= NB_INPLACE_ADD ? op - NB_INPLACE_ADD : op;
  switch (base) {
    case NB_ADD:
    case NB_SUBTRACT:
    case NB_MULTIPLY:
    case NB_TRUE_DIVIDE:
    case NB_POWER: break;
    default: return nullptr;
  }
  PyObject* fn = operator_function(operator_row(base).operator_name);
  Variable *x = operand(tr, a), *y = x ? operand(tr, b) : nullptr;
  if (!y) return nullptr;
  Variable* zero = number_of_double(tr, 0);
  if (base == NB_TRUE_DIVIDE) {
    if (y->is(Kind::Tensor))
      require(tr, compared(tr, "ne", y, zero), "ZeroDivisionError", cpython::kFloatDivision);
    else if (PyFloat_AS_DOUBLE(constant_of(y)) == 0)
      tr.raise(PyExc_ZeroDivisionError, cpython::kFloatDivision);
  }
  if (base == NB_POWER) {
    // Powers that may be complex, divide by zero or overflow are Python's own.
    double exponent = y->is(Kind::Tensor) ? -1 : PyFloat_AS_DOUBLE(constant_of(y));
    if (exponent != 2 && exponent != 1 && exponent != 0.5) return nullptr;
    if (exponent == 0.5)
      require(tr, compared(tr, "ge", x, zero), "ValueError",
              "a root of a negative number or NaN is not a float that compiled code makes");
    TensorVariable* r = call(tr, fn, Args{{x, y}, {}});
    require_finite(tr, r, x, "(34, 'Numerical result out of range')");
    return made(tr, r);
  }
  return made(tr, call(tr, fn, Args{{x, y}, {}}));
}

Variable* float_comparison(Translator& tr, int op, Variable* a, Variable* b) {
  static const char* const names[] = {"lt", "le", "eq", "ne", "gt", "ge"};
  Variable *x = operand(tr, a), *y = x ? operand(tr, b) : nullptr;
  return y ? as_bool(tr, compared(tr, names[op], x, y)) : nullptr;
}

Variable* float_function(Translator& tr, PyObject* callable, const Args& args) {
  static PyObject* const pow = imported("math", "pow");
  if (callable == pow && args.size() == 2 && args.kw.empty()) return float_arithmetic(tr, NB_POWER, args[0], args[1]);
  auto it = functions().find(callable);
  if (it == functions().end() || args.size() != 1 || !args.kw.empty()) return nullptr;
  const Function& f = it->second;
  Variable* v = tr.force(args[0]);
  TensorVariable* t = v->as<FloatVariable>()->tensor;
  if (!f.torch) return v;
  static PyObject* const negated = of_torch("logical_not");
  if (f.relation)
    require(tr, call(tr, negated, Args{{compared(tr, f.relation, t, number_of_double(tr, f.bound))}, {}}), "ValueError",
            "math domain error");
  Ref fn = Ref::steal(of_torch(f.torch));
  TensorVariable* r = call(tr, fn.get(), Args{{t}, {}});
  if (f.finite) require_finite(tr, r, t, "math range error");
  switch (f.gives) {
    case Function::Gives::Float: return made(tr, r);
    case Function::Gives::Bool: return as_bool(tr, r);
    case Function::Gives::Int: return to_int(tr, r);
  }
  return nullptr;
}

TensorVariable* float_operator(Translator& tr, PyObject* callable, TensorVariable* t) {
  const Function& f = functions().at(callable);
  return f.torch ? call(tr, Ref::steal(of_torch(f.torch)).get(), Args{{t}, {}}) : t;
}

bool FloatVariable::truth(Translator& tr) {
  return tr.truth(float_comparison(tr, Py_NE, this, number_of_double(tr, 0)));
}

Reg FloatVariable::build(Codegen& cg) {
  static PyObject* const item = tensor_method("item");
  return cg.recipe.make(StepKind::Call, {cg.constant(item), cg.reg(tensor)});
}

}  // namespace braze::capture
