#include "capture/eval/size_floats.h"

#include <opcode.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "capture/cpython/imported.h"
#include "capture/eval/library_objects.h"
#include "capture/eval/operands.h"
#include "capture/vars/all.h"
#include "capture/vars/tensor_float.h"
#include "trace/size_hint.h"

namespace braze::capture {
LazyVariable* open_float(Variable* v) {
  if (!v->is(Kind::Lazy)) return nullptr;
  auto* lazy = v->as<LazyVariable>();
  return !lazy->forced && PyFloat_CheckExact(lazy->object.get()) ? lazy : nullptr;
}

namespace {

PyObject* float_type() { return reinterpret_cast<PyObject*>(&PyFloat_Type); }

Variable* met(Variable* v) {
  return v->is(Kind::Lazy) && v->as<LazyVariable>()->forced ? v->as<LazyVariable>()->forced : v;
}

bool is_open_size(Translator& tr, Variable* v) {
  return v->is(Kind::Sym) && v->type() == &PyLong_Type &&
         !tr.tracer().depends_on_data(v->as<SymVariable>()->value.get());
}

// The value that an operand has in this call; null: no number that may stay unknown.
Ref value_in_call(Translator& tr, Variable* v) {
  if (LazyVariable* lazy = open_float(v)) return lazy->object;
  if (is_open_size(tr, v)) {
    Ref n = Ref::steal(trace::size_hint(v->as<SymVariable>()->value.get()));
    if (!n) PyErr_Clear();
    return n && PyLong_CheckExact(n.get()) ? n : Ref();
  }
  PyObject* c = v->is(Kind::Lazy) ? nullptr : constant_of(v);
  if (c && PyFloat_CheckExact(c)) return Ref::borrow(c);
  return c && PyLong_CheckExact(c) && small_int(v) ? Ref::borrow(c) : Ref();
}

bool is_operator(const LazyVariable* v, int op) {
  return v->function == operator_function(operator_row(op).operator_name);
}

// That a number is above zero in every run, or at least no less: what is divided by, and what roots are taken of.
// Guarded where sizes decide.
bool is_positive(Translator& tr, Variable* v, bool zero) {
  v = met(v);
  if (is_open_size(tr, v)) return tr.truth(tr.compare(zero ? Py_GE : Py_GT, v, tr.integer(0, Ground::fixed())));
  if (PyObject* c = v->is(Kind::Lazy) ? nullptr : constant_of(v)) {
    double d = PyFloat_AsDouble(c);
    PyErr_Clear();
    return zero ? d >= 0 : d > 0;
  }
  LazyVariable* lazy = open_float(v);
  if (!lazy || !is_size_float(lazy)) return false;
  static PyObject *const root = imported("math", "sqrt"), *const exponential = imported("math", "exp");
  if (lazy->function == exponential) return zero;  // it may be too small for a float
  if (lazy->function == root || lazy->function == float_type()) return is_positive(tr, lazy->left, zero);
  if (!lazy->right) return false;
  // A quotient or product of sizes is far from what is too small for a float.
  auto near_one = [&](Variable* w) {
    Ref n = value_in_call(tr, met(w));
    double d = n ? std::abs(PyFloat_AsDouble(n.get())) : 0;
    return is_open_size(tr, met(w)) || (d > 1e-60 && d < 1e60);
  };
  if (!near_one(lazy->left) || !near_one(lazy->right)) return false;
  if (is_operator(lazy, NB_POWER)) return is_positive(tr, lazy->left, false);
  if (is_operator(lazy, NB_SUBTRACT)) return false;
  return is_positive(tr, lazy->left, zero) && is_positive(tr, lazy->right, zero && !is_operator(lazy, NB_TRUE_DIVIDE));
}

Variable* made(Translator& tr, PyObject* value, PyObject* function, Variable* left, Variable* right) {
  for (Variable* v : {left, right})
    if (LazyVariable* lazy = v ? open_float(v) : nullptr; lazy && v->source.valid())
      tr.guards().type_is(v->source, &PyFloat_Type, tr.line());
  auto* d = tr.make<LazyVariable>(value);
  d->function = function;
  d->left = left;
  d->right = right;
  return d;
}

// ---- as fractions of integers ----

// A number as num / den, where the float is that very fraction, or, if not `exact`, the one that is nearest to it. The
// numerator is an int of 32 bits in every run, and den a positive one that is small: so floats do not round before a
// division does.
struct Fraction {
  Variable* num;
  int64_t den;
  bool exact = true;
};
constexpr int64_t kMostDenominator = int64_t{1} << 20;

bool of_32_bits(Translator& tr, Variable* num) {
  if (constant_of(num)) return small_int(num);
  return tr.truth(tr.compare(Py_LE, num, tr.integer(INT32_MAX, Ground::fixed()))) &&
         tr.truth(tr.compare(Py_GE, num, tr.integer(INT32_MIN, Ground::fixed())));
}

std::optional<Fraction> fraction(Translator& tr, Variable* v);

std::optional<Fraction> of_constant(Translator& tr, PyObject* c, Variable* v) {
  if (PyLong_CheckExact(c)) return small_int(v) ? std::optional<Fraction>({v, 1}) : std::nullopt;
  double d = PyFloat_AS_DOUBLE(c);
  int64_t den = 1;
  for (; den < kMostDenominator && d != std::floor(d); den *= 2) d *= 2;
  if (d != std::floor(d) || std::abs(d) > 1 << 20) return std::nullopt;
  return Fraction{tr.integer(static_cast<int64_t>(d), Ground::pure(v)), den};
}

std::optional<Fraction> of_operator(Translator& tr, LazyVariable* v) {
  std::optional<Fraction> l = fraction(tr, v->left), r = l ? fraction(tr, v->right) : std::nullopt;
  if (!r || !l->exact || !r->exact) return std::nullopt;
  auto times = [&](Variable* a, int64_t n) {
    return tr.force(tr.binary_op(NB_MULTIPLY, a, tr.integer(n, Ground::pure(v))));
  };
  if (is_operator(v, NB_MULTIPLY))
    return Fraction{tr.force(tr.binary_op(NB_MULTIPLY, l->num, r->num)), l->den * r->den};
  if (is_operator(v, NB_ADD) || is_operator(v, NB_SUBTRACT))
    return Fraction{tr.force(tr.binary_op(is_operator(v, NB_ADD) ? NB_ADD : NB_SUBTRACT, times(l->num, r->den),
                                          times(r->num, l->den))),
                    l->den * r->den};
  PyObject* by = constant_of(r->num);
  int64_t d = by ? PyLong_AsLongLong(by) : 0;
  if (!is_operator(v, NB_TRUE_DIVIDE) || d == 0 || std::abs(d) > kMostDenominator) return std::nullopt;
  bool power_of_two = (std::abs(d) & (std::abs(d) - 1)) == 0;
  return Fraction{times(l->num, d < 0 ? -r->den : r->den), l->den * std::abs(d), power_of_two};
}

// nullopt: the float depends on how it was rounded.
std::optional<Fraction> fraction(Translator& tr, Variable* v) {
  v = met(v);
  std::optional<Fraction> f;
  if (is_open_size(tr, v)) {
    f = Fraction{v, 1};
  } else if (LazyVariable* lazy = open_float(v)) {
    if (!is_size_float(lazy)) return std::nullopt;
    if (lazy->function == float_type())
      f = fraction(tr, lazy->left);
    else if (lazy->right)
      f = of_operator(tr, lazy);
  } else if (PyObject* c = v->is(Kind::Lazy) ? nullptr : constant_of(v);
             c && (PyLong_CheckExact(c) || PyFloat_CheckExact(c))) {
    f = of_constant(tr, c, v);
  }
  if (!f || f->den > kMostDenominator || !of_32_bits(tr, f->num)) return std::nullopt;
  return f;
}

// math.prod of a tuple or list with open sizes in it.
Variable* product(Translator& tr, Variable* v) {
  if (!v->is(Kind::Tuple) && !v->is(Kind::List)) return nullptr;
  const auto& elements = static_cast<SequenceVariable*>(v)->elements;
  auto open = [&](Variable* e) { return is_open_size(tr, met(e)) || is_size_float(e); };
  if (std::none_of(elements.begin(), elements.end(), open)) return nullptr;
  Variable* all = tr.integer(1, Ground::fixed());
  for (Variable* e : elements) all = tr.binary_op(NB_MULTIPLY, all, e);
  return all;
}

enum class Rounding : uint8_t { Down, Up, ToZero };

Variable* rounded(Translator& tr, Variable* v, Rounding how) {
  std::optional<Fraction> f = fraction(tr, v);
  if (!f) return nullptr;
  Variable *zero = tr.integer(0, Ground::fixed()), *den = tr.integer(f->den, Ground::pure(v));
  if (how == Rounding::ToZero) how = tr.truth(tr.compare(Py_GE, f->num, zero)) ? Rounding::Down : Rounding::Up;
  if (how == Rounding::Down) return tr.binary_op(NB_FLOOR_DIVIDE, f->num, den);
  return tr.binary_op(NB_SUBTRACT, zero, tr.binary_op(NB_FLOOR_DIVIDE, tr.binary_op(NB_SUBTRACT, zero, f->num), den));
}

}  // namespace

bool is_size_float(Variable* v) {
  LazyVariable* lazy = open_float(v);
  if (!lazy || !lazy->function) return false;
  auto depends = [](Variable* of) { return of && (met(of)->is(Kind::Sym) || is_size_float(of)); };
  return depends(lazy->left) || depends(lazy->right);
}

Variable* size_arithmetic(Translator& tr, int op, Variable* a, Variable* b) {
  int base = op >= NB_INPLACE_ADD ? op - NB_INPLACE_ADD : op;
  a = met(a), b = met(b);
  auto depends = [&](Variable* v) { return is_open_size(tr, v) || is_size_float(v); };
  if (!depends(a) && !depends(b)) return nullptr;
  if (base != NB_ADD && base != NB_SUBTRACT && base != NB_MULTIPLY && base != NB_TRUE_DIVIDE && base != NB_POWER)
    return nullptr;
  Ref x = value_in_call(tr, a), y = x ? value_in_call(tr, b) : Ref();
  if (!y) return nullptr;
  if (base == NB_POWER && (!constant_of(b) || !PyFloat_CheckExact(y.get()) || std::abs(PyFloat_AS_DOUBLE(y.get())) > 4))
    return nullptr;
  if (base != NB_TRUE_DIVIDE && PyLong_CheckExact(x.get()) && PyLong_CheckExact(y.get())) return nullptr;  // an int
  if (base == NB_TRUE_DIVIDE && !is_positive(tr, b, false)) {
    PyObject* c = constant_of(b);
    if (!c || PyObject_IsTrue(c) != 1) return nullptr;
  }
  if (base == NB_POWER && !is_positive(tr, a, false)) return nullptr;
  Ref r = Ref::steal(operator_row(base).function(x.get(), y.get()));
  if (!r || !PyFloat_CheckExact(r.get())) return PyErr_Clear(), nullptr;
  return made(tr, r.get(), operator_function(operator_row(base).operator_name), a, b);
}

Variable* size_function(Translator& tr, PyObject* callable, const Args& args) {
  if (args.size() != 1 || !args.kw.empty()) return nullptr;
  static PyObject *const floor = imported("math", "floor"), *const ceil = imported("math", "ceil"),
                         *const trunc = imported("math", "trunc");
  Variable* v = met(args[0]);
  static PyObject* const prod = imported("math", "prod");
  if (callable == prod) return product(tr, v);
  bool size = is_open_size(tr, v);
  if (!size && !is_size_float(v)) return nullptr;
  if (size && callable == reinterpret_cast<PyObject*>(&PyLong_Type)) return v;
  if (callable == floor) return rounded(tr, v, Rounding::Down);
  if (callable == ceil) return rounded(tr, v, Rounding::Up);
  if (callable == trunc || callable == reinterpret_cast<PyObject*>(&PyLong_Type))
    return rounded(tr, v, Rounding::ToZero);
  if (callable == float_type() && !size) return v;
  static PyObject *const root = imported("math", "sqrt"), *const log = imported("math", "log"),
                         *const log2 = imported("math", "log2"), *const log10 = imported("math", "log10");
  bool logarithm = callable == log || callable == log2 || callable == log10;
  if (callable != float_type() && callable != root && !logarithm) return nullptr;
  if (callable != float_type() && !is_positive(tr, v, !logarithm)) return nullptr;
  Ref x = value_in_call(tr, v), r = Ref::steal(x ? PyObject_CallOneArg(callable, x.get()) : nullptr);
  if (!r || !PyFloat_CheckExact(r.get())) return PyErr_Clear(), nullptr;
  return made(tr, r.get(), callable, v, nullptr);
}

Variable* size_comparison(Translator& tr, int op, Variable* a, Variable* b) {
  if (!is_size_float(a) && !is_size_float(b)) return nullptr;
  std::optional<Fraction> x = fraction(tr, a), y = x ? fraction(tr, b) : std::nullopt;
  if (!y || (!x->exact && !y->exact)) return nullptr;
  auto times = [&](const Fraction& f, int64_t n) {
    return tr.force(tr.binary_op(NB_MULTIPLY, f.num, tr.integer(n, Ground::pure(a, b))));
  };
  if (x->den > 1 << 10 || y->den > 1 << 10) return nullptr;
  Variable *left = times(*x, y->den), *right = times(*y, x->den);
  if (!of_32_bits(tr, left) || !of_32_bits(tr, right)) return nullptr;
  return tr.compare(op, left, right);
}

TensorVariable* size_as_operand(Translator& tr, Variable* size) {
  static PyObject *const scalar = imported("torch", "scalar_tensor"), *const f64 = imported("torch", "float64");
  return tr
      .force(tr.real.call_torch(scalar, Args{{size}, {{tr.intern("dtype"), tr.constant(f64, Ground::pure(size))}}}))
      ->as<TensorVariable>();
}

}  // namespace braze::capture
