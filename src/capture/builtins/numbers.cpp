// Built-in functions that give numbers and texts, and those of numbers.
#include <opcode.h>

#include "capture/builtins/builtins.h"
#include "capture/cpython/imported.h"
#include "capture/cpython/texts.h"
#include "capture/eval/index_protocol.h"
#include "capture/eval/library_objects.h"
#include "capture/eval/operands.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"
#include "capture/vars/key.h"
#include "capture/vars/tensor_float.h"
#include "capture/vars/tensor_number.h"

namespace braze::capture {
namespace {

Variable* number(Translator& tr, Args& a, PyTypeObject* type) {
  if (a.size() == 1) {
    if (a[0]->is(Kind::Tensor))
      if (Variable* n = number_of(tr, a[0]->as<TensorVariable>(), type)) return n;
    if (a[0]->is(Kind::Tensor)) tr.unsupported(Reason::ScalarFromTensor, std::string(type->tp_name) + "() of a tensor");
    if (a[0]->is(Kind::Object)) {
      const char* m = type == &PyLong_Type ? "__int__" : type == &PyFloat_Type ? "__float__" : "__complex__";
      if (Variable* f = tr.attributes.special_method(a[0], m)) {
        Variable* v = tr.force(tr.call(f, {a[0]}));
        if (v->type() != type) tr.unsupported(std::string(m) + " that does not return a number of its kind");
        return v;
      }
    }
    // Of a number or text of the program's class, the class may say what it is as a number.
    if (PyTypeObject* t = a[0]->type(); !is_fixed_type(t) && !a[0]->is(Kind::Object))
      for (const char* m : {"__int__", "__float__", "__complex__", "__index__", "__trunc__"})
        if (PyObject* own = tr.attributes.lookup_on_type(t, tr.intern(m), nullptr); own && PyFunction_Check(own))
          tr.unsupported(std::string(type->tp_name) + "() of " + a[0]->describe());
    // A symbolic int stays one.
    if (a[0]->is(Kind::Sym) && a[0]->type() == type) return a[0];
    if (type == &PyFloat_Type && a[0]->type() == &PyLong_Type && only_run_knows(tr, a[0]))
      if (Variable* f = float_arithmetic(tr, NB_MULTIPLY, a[0],
                                         tr.constant(tr.keep(Ref::steal(PyFloat_FromDouble(1))), Ground::pure(a))))
        return f;
  }
  return tr.real.call_pure(reinterpret_cast<PyObject*>(type), a);
}
Variable* do_int(Translator& tr, Args& a) { return number(tr, a, &PyLong_Type); }
Variable* do_float(Translator& tr, Args& a) { return number(tr, a, &PyFloat_Type); }

// Where numbers that only the run knows stay in the graph, one of them is the truth of a tensor of one bool.
Variable* truth_in_graph(Translator& tr, Variable* v) {
  static PyObject* boolean = native::attr(Ground::fixed(), library().torch, "bool");
  if (!tr.may_be_unbacked() || !v->is(Kind::Tensor)) return nullptr;
  tr.attributes.tensor_operator("__bool__", {v});
  PyObject* t = v->as<TensorVariable>()->value(tr);
  Ref shape = Ref::steal(native::of_tensor(t, "shape"));
  for (Py_ssize_t d = 0; shape && d < PyTuple_GET_SIZE(shape.get()); ++d) {
    PyObject* size = PyTuple_GET_ITEM(shape.get(), d);
    if (!PyLong_CheckExact(size) || PyLong_AsLong(size) != 1) return nullptr;  // an error of its own, perhaps
  }
  Ref dtype = Ref::steal(native::of_tensor(t, "dtype"));
  Ref known = Ref::steal(tr.tracer().known_number(t));
  PyErr_Clear();
  if (!dtype || dtype.get() != boolean || known) return nullptr;
  return tr.call(tr.getattr(v, "item"), std::vector<Variable*>{});
}

Variable* do_bool(Translator& tr, Args& a) {
  if (a.size() > 1) return nullptr;
  if (a.size() == 1)
    if (Variable* v = truth_in_graph(tr, tr.force(a[0]))) return v;
  return tr.boolean(a.size() == 1 && tr.truth(a[0]), Ground::pure(a));
}

Variable* do_str(Translator& tr, Args& a) {
  if (!a.kw.empty() || a.size() > 1) return nullptr;
  if (a.size() == 0) return tr.string("", Ground::fixed());
  // The method decides, also for a str of a class of its own.
  if (SourceId at; a[0]->is(Kind::Object)) {
    PyObject* own = tr.attributes.lookup_on_type(a[0]->type(), tr.intern("__str__"), &at);
    if (own && PyFunction_Check(own)) {
      Variable* s = tr.force(tr.call(tr.attributes.bind_descriptor(own, at, a[0], a[0]->type(), tr.intern("__str__")),
                                     std::vector<Variable*>{}));
      if (!PyType_IsSubtype(s->type(), &PyUnicode_Type))
        tr.raise(PyExc_TypeError, std::string("__str__ returned non-string (type ") + tr.name_of(s->type()) + ")");
      return s;
    }
  }
  return tr.format(a[0], "", 1);
}

Variable* do_repr(Translator& tr, Args& a) {
  if (a.size() != 1) return nullptr;
  return tr.format(a[0], "", 2);
}

Variable* do_format(Translator& tr, Args& a) {
  if (a.size() < 1 || a.size() > 2) return nullptr;
  std::string spec;
  if (a.size() == 2) {
    PyObject* s = constant_of(a[1]);
    Py_ssize_t length = 0;
    const char* text = s && PyUnicode_Check(s) ? PyUnicode_AsUTF8AndSize(s, &length) : nullptr;
    PyErr_Clear();
    if (!text) return nullptr;
    spec.assign(text, static_cast<size_t>(length));
  }
  return tr.format(a[0], spec, 0);
}

// math's roundings ask an object first.
template <int which>
Variable* do_rounding(Translator& tr, Args& a) {
  constexpr const char* kNames[] = {"__floor__", "__ceil__", "__trunc__"};
  if (a.size() != 1 || !a.kw.empty() || !a[0]->is(Kind::Object)) return nullptr;
  Variable* f = tr.attributes.special_method(a[0], kNames[which]);
  return f && f->is(Kind::Function) ? tr.call(f, a) : nullptr;
}

Variable* do_hash(Translator& tr, Args& a) {
  if (a.size() != 1) return nullptr;
  tr.segment().here_only = "a hash";
  if (a[0]->is(Kind::Constant)) a[0]->hash_key(tr);  // its class may have a say
  if (Variable* f = a[0]->is(Kind::Object) ? tr.attributes.special_method(a[0], "__hash__") : nullptr;
      f && f->is(Kind::Function))
    return tr.integer(hash_said(tr, tr.call(f, {a[0]})), Ground::pure(a));
  if (a[0]->type() == &PyTuple_Type && a[0]->is(Kind::Tuple) && !tr.real.is_python_constant(a[0])) {
    // A tuple of objects with the hashes of its items hashes as it does.
    static PyObject *hash = native::builtin("hash"), *hashed = imported("braze.polyfills", "Hashed");
    Ref like = Ref::steal(PyTuple_New(a[0]->len(tr)));
    Py_ssize_t at = 0;
    for (Variable* e : a[0]->items(tr)) {
      PyObject* number = constant_of(tr.force(tr.call(tr.global_object(hash, Ground::pure(a)), {e})));
      if (!number || !hashed) return nullptr;
      PyTuple_SET_ITEM(like.get(), at++, PyObject_CallOneArg(hashed, number));
    }
    Py_hash_t h = PyObject_Hash(like.get());
    if (h == -1) tr.raise_current();
    return tr.integer(h, Ground::pure(a));
  }
  if (!tr.real.is_python_constant(a[0])) return nullptr;
  Ref k = tr.real.to_python(a[0]);
  Py_hash_t h = PyObject_Hash(k.get());
  if (h == -1) tr.raise_current();
  return tr.integer(h, Ground::pure(a));
}

Variable* do_abs(Translator& tr, Args& a) {
  if (a.size() != 1) return nullptr;
  if (a[0]->is(Kind::Tensor)) return tr.real.call_torch(native::builtin("abs"), a);
  if (a[0]->is(Kind::Array)) return array_operator(tr, "abs", {a[0]});
  if (a[0]->is(Kind::Object))
    if (Variable* f = tr.attributes.special_method(a[0], "__abs__")) return tr.call(f, {a[0]});
  return tr.real.call_pure(native::builtin("abs"), a);
}

Variable* do_pow(Translator& tr, Args& a) {
  if (a.size() == 2 && a.kw.empty()) return tr.binary_op(NB_POWER, a[0], a[1]);
  return tr.real.call_pure(native::builtin("pow"), a);
}

Variable* do_divmod(Translator& tr, Args& a) {
  if (a.size() != 2 || a[0]->is(Kind::Tensor) || a[1]->is(Kind::Tensor)) return nullptr;
  bool numbers = a[0]->is(Kind::Sym) || a[1]->is(Kind::Sym);
  if (!numbers) {
    const std::pair<size_t, const char*> tries[] = {{0, "__divmod__"}, {1, "__rdivmod__"}};
    for (auto [i, name] : tries) {
      Variable* f = a[i]->is(Kind::Object) ? tr.attributes.special_method(a[i], name) : nullptr;
      if (!f || !f->is(Kind::Function)) continue;
      Variable* r = tr.force(tr.call(f, {a[i], a[1 - i]}));
      if (constant_of(r) != Py_NotImplemented) return r;
    }
    return tr.real.call_pure(native::builtin("divmod"), a);
  }
  return tr.tuple({tr.binary_op(NB_FLOOR_DIVIDE, a[0], a[1]), tr.binary_op(NB_REMAINDER, a[0], a[1])});
}

Variable* do_round(Translator& tr, Args& a) {
  if (a.size() >= 1 && a[0]->is(Kind::Tensor)) return tr.real.call_torch(native::builtin("round"), a);
  if (Variable* f =
          a.size() >= 1 && a.kw.empty() && user_class(a[0]) ? tr.attributes.special_method(a[0], "__round__") : nullptr;
      f && f->is(Kind::Function))
    return tr.call(f, a);
  if (a.size() == 2) a.pos[1] = index_of(tr, a[1]);
  return tr.real.call_pure(native::builtin("round"), a);
}

Variable* extreme(Translator& tr, Args& a, int op, const char* name) {
  Variable *key = a.take_kw("key"), *fallback = a.take_kw("default");
  if (key && is_none(tr.force(key))) key = nullptr;
  if (!a.kw.empty() || a.size() == 0 || (a.size() > 1 && fallback)) return nullptr;
  // The key of each item is asked for before the next item is.
  Variable* iterator = a.size() == 1 ? tr.force(tr.iter(a[0])) : nullptr;
  size_t count = 0;
  auto next = [&]() -> Variable* {
    if (count++ > 1000000) tr.unsupported("an iteration of more than a million steps");
    return iterator ? tr.next(iterator) : count <= a.pos.size() ? a.pos[count - 1] : nullptr;
  };
  Variable* best = next();
  if (!best) {
    if (fallback) return fallback;
    tr.raise(PyExc_ValueError, std::string(name) + "() arg is an empty sequence");
  }
  Variable* best_key = key ? tr.call(key, {best}) : best;
  while (Variable* item = next()) {
    Variable* k = key ? tr.call(key, {item}) : item;
    // Symbolic sizes stay symbolic.
    auto integer = [&](Variable* v) { return tr.force(v)->type() == &PyLong_Type; };
    if (!key && (tr.force(k)->is(Kind::Sym) || tr.force(best_key)->is(Kind::Sym)) && integer(k) && integer(best_key)) {
      static PyObject* sym_max = native::attr(Ground::fixed(), library().torch, "sym_max");
      static PyObject* sym_min = native::attr(Ground::fixed(), library().torch, "sym_min");
      best = best_key = tr.real.query_torch(op == Py_GT ? sym_max : sym_min, Args{{best, k}, {}});
      continue;
    }
    if (tr.truth(tr.compare(op, k, best_key))) {
      best = item;
      best_key = k;
    }
  }
  return best;
}
Variable* do_max(Translator& tr, Args& a) { return extreme(tr, a, Py_GT, "max"); }
Variable* do_min(Translator& tr, Args& a) { return extreme(tr, a, Py_LT, "min"); }

// sum() of numbers where the interpreter minds their errors of rounding: what is known is added by it. `waits`: three
// floats or more of which one is known to the run alone. nullptr: one by one.
Variable* sum_of_numbers(Translator& tr, const std::vector<Variable*>& items, Variable* start, bool& waits) {
  size_t inexact = 0;
  bool known = true;
  std::vector<Variable*> all = items;
  all.push_back(start);
  for (Variable* v : all) {
    v = tr.force(v);
    PyObject* c = constant_of(v);
    if (!c && !v->is(Kind::Float) && !v->is(Kind::Sym)) return nullptr;
    known = known && c && (PyLong_CheckExact(c) || PyBool_Check(c) || PyFloat_CheckExact(c) || PyComplex_CheckExact(c));
    inexact += c ? PyFloat_CheckExact(c) || (cpython::kSumsComplex && PyComplex_CheckExact(c))
                 : v->is(Kind::Float) || v->type() != &PyLong_Type;
  }
  static PyObject* sum = native::builtin("sum");
  if (known && inexact) return tr.real.call_pure(sum, Args{{tr.tuple(items), start}, {}});
  waits = !known && inexact > 2;
  return nullptr;
}

Variable* do_sum(Translator& tr, Args& a) {
  if (a.size() < 1 || a.size() > 2) return nullptr;
  Variable* start = a.size() > 1 ? a[1] : a.take_kw("start");
  if (!a.kw.empty()) return nullptr;
  Variable* total = start ? start : tr.integer(0, Ground::fixed());
  if (PyObject* c = tr.force(total)->as_constant();
      c && (PyUnicode_Check(c) || PyBytes_Check(c) || PyByteArray_Check(c)))
    return nullptr;
  std::vector<Variable*> items = tr.unpack(a[0]);
  bool waits = false;
  if (cpython::kSumsFloats)
    if (Variable* sum = sum_of_numbers(tr, items, total, waits)) return sum;
  if (waits) return nullptr;
  for (Variable* v : items) total = tr.binary_op(NB_ADD, total, v);
  return total;
}

Variable* do_any(Translator& tr, Args& a) {
  if (a.size() != 1) return nullptr;
  Variable* it = tr.iter(a[0]);
  while (Variable* v = tr.next(it))
    if (tr.truth(v)) return tr.boolean(true, Ground::pure(a));
  return tr.boolean(false, Ground::pure(a));
}

Variable* do_all(Translator& tr, Args& a) {
  if (a.size() != 1) return nullptr;
  Variable* it = tr.iter(a[0]);
  while (Variable* v = tr.next(it))
    if (!tr.truth(v)) return tr.boolean(false, Ground::pure(a));
  return tr.boolean(true, Ground::pure(a));
}

}  // namespace

void register_number_builtins() {
  const BuiltinRow rows[] = {{"int", do_int},   {"float", do_float},   {"bool", do_bool},   {"str", do_str},
                             {"repr", do_repr}, {"format", do_format}, {"hash", do_hash},   {"abs", do_abs},
                             {"pow", do_pow},   {"divmod", do_divmod}, {"round", do_round}, {"max", do_max},
                             {"min", do_min},   {"sum", do_sum},       {"any", do_any},     {"all", do_all}};
  for (const BuiltinRow& r : rows) register_builtin("builtins", r.name, r.handler);
  register_builtin("_operator", "abs", do_abs);
  register_no_keywords("_operator", "abs");
  register_builtin("math", "floor", do_rounding<0>);
  register_builtin("math", "ceil", do_rounding<1>);
  register_builtin("math", "trunc", do_rounding<2>);
  for (const char* n : {"bool", "repr", "format", "hash", "abs", "divmod", "any", "all"})
    register_no_keywords("builtins", n);
}

}  // namespace braze::capture
