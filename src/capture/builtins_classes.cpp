// Classes that the captured code defines.
#include "capture/builtins.h"
#include "capture/known.h"
#include "capture/translator.h"
#include "capture/vars/all.h"

namespace braze::capture {
namespace {

// Keyword arguments and classes as real objects.
Ref real_arguments(Translator& tr, const Args& a, size_t from, PyObject* first) {
  Ref t = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(a.size() - from + (first ? 1 : 0))));
  Py_ssize_t at = 0;
  if (first) PyTuple_SET_ITEM(t.get(), at++, Ref::borrow(first).release());
  for (size_t i = from; i < a.size(); ++i) {
    if (!tr.is_python_constant(a[i])) tr.unsupported("a class made from " + tr.force(a[i])->describe());
    PyTuple_SET_ITEM(t.get(), at++, tr.to_python(a[i]).release());
  }
  return t;
}

Ref real_keywords(Translator& tr, const Args& a) {
  Ref d = Ref::steal(PyDict_New());
  for (auto& [k, v] : a.kw) {
    if (!tr.is_python_constant(v)) tr.unsupported("a class made from " + tr.force(v)->describe());
    PyDict_SetItem(d.get(), k, tr.to_python(v).get());
  }
  return d;
}

// The body runs natively; it must not see anything that only exists in the capture.
Variable* do_build_class(Translator& tr, Args& a) {
  if (a.size() < 2 || !a[0]->is(Kind::Function)) return nullptr;
  auto* body = a[0]->as<FunctionVariable>();
  if (body->real || body->closure) tr.unsupported("a class whose body uses variables of the function around it");
  Ref fn = Ref::steal(PyFunction_New(body->code.get(), body->globals));
  Ref args = real_arguments(tr, a, 1, fn.get()), kw = real_keywords(tr, a);
  static PyObject* build = PyDict_GetItemString(PyEval_GetBuiltins(), "__build_class__");
  Ref cls = Ref::steal(PyObject_Call(build, args.get(), kw.get()));
  if (!cls) tr.raise_current();
  return tr.made_class(cls);
}

Variable* do_namedtuple(Translator& tr, Args& a) {
  Ref args = real_arguments(tr, a, 0, nullptr), kw = real_keywords(tr, a);
  static PyObject* make = [] {
    Ref m = Ref::steal(PyImport_ImportModule("collections"));
    return PyObject_GetAttrString(m.get(), "namedtuple");
  }();
  Ref cls = Ref::steal(PyObject_Call(make, args.get(), kw.get()));
  if (!cls) tr.raise_current();
  return tr.made_class(cls);
}

// A decorator of a class that was just made: the class changes in place.
Variable* do_dataclass(Translator& tr, Args& a) {
  if (a.size() != 1 || !a.kw.empty() || !a[0]->as_constant() || !PyType_Check(a[0]->as_constant())) return nullptr;
  try {
    tr.check_rebuild(reinterpret_cast<PyTypeObject*>(a[0]->as_constant()));
  } catch (const CannotRebuild&) {
    static PyObject* dataclass = [] {
      Ref m = Ref::steal(PyImport_ImportModule("dataclasses"));
      return PyObject_GetAttrString(m.get(), "dataclass");
    }();
    Ref cls = Ref::steal(PyObject_CallOneArg(dataclass, a[0]->as_constant()));
    if (!cls) tr.raise_current();
    return a[0];
  }
  return nullptr;
}

}  // namespace

void register_class_builtins() {
  register_builtin("builtins", "__build_class__", do_build_class);
  register_builtin("collections", "namedtuple", do_namedtuple);
  register_builtin("dataclasses", "dataclass", do_dataclass);
}

}  // namespace braze::capture
