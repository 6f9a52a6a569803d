// Classes that the captured code defines.
#include "capture/builtins/builtins.h"
#include "capture/builtins/class_bodies.h"
#include "capture/code/bytecode.h"
#include "capture/eval/calls.h"
#include "capture/eval/library_objects.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"

namespace braze::capture {
namespace {

// Keyword arguments and classes as real objects.
Ref real_arguments(Translator& tr, const Args& a, size_t from, PyObject* first) {
  Ref t = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(a.size() - from + (first ? 1 : 0))));
  Py_ssize_t at = 0;
  if (first) PyTuple_SET_ITEM(t.get(), at++, Ref::borrow(first).release());
  for (size_t i = from; i < a.size(); ++i) {
    if (!tr.real.is_python_constant(a[i])) tr.unsupported("a class made from " + tr.force(a[i])->describe());
    PyTuple_SET_ITEM(t.get(), at++, tr.real.to_python(a[i]).release());
  }
  return t;
}

Ref real_keywords(Translator& tr, const Args& a) {
  Ref d = Ref::steal(PyDict_New());
  for (auto& [k, v] : a.kw) {
    if (!tr.real.is_python_constant(v)) tr.unsupported("a class made from " + tr.force(v)->describe());
    PyDict_SetItem(d.get(), k, tr.real.to_python(v).get());
  }
  return d;
}

// Whether the annotations of a class's body, which CPython 3.14 makes in a function of their own, read this variable of
// the function around it.
bool annotations_read(const Bytecode& body, PyObject* name) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(body.code->co_consts); ++i) {
    PyObject* constant = PyTuple_GET_ITEM(body.code->co_consts, i);
    if (!PyCode_Check(constant)) continue;
    auto* made = reinterpret_cast<PyCodeObject*>(constant);
    if (PyUnicode_CompareWithASCIIString(made->co_name, "__annotate__") != 0) continue;
    for (int k = made->co_nlocalsplus - made->co_nfreevars; k < made->co_nlocalsplus; ++k)
      if (PyUnicode_Compare(PyTuple_GET_ITEM(made->co_localsplusnames, k), name) == 0) return true;
  }
  return false;
}

// Real cells for the closure of a class's body. The capture takes each for the cell that it knows; what the body itself
// reads must be there for real.
Ref real_closure(Translator& tr, FunctionVariable* body) {
  const auto& cells = tr.force(body->closure)->as<TupleVariable>()->elements;
  const Bytecode& code = decode(body->code_object());
  int first = code.num_locals_plus - code.num_frees;
  Ref out = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(cells.size())));
  for (size_t i = 0; i < cells.size(); ++i) {
    auto* cell = tr.force(cells[i])->as<CellVariable>();
    bool read = annotations_read(code, code.local_name(first + static_cast<int>(i)));
    for (const Instruction& in : code.instructions)
      read = read ||
             ((in.op == Opcode::LoadDeref || in.op == Opcode::LoadClassDeref) && in.arg == first + static_cast<int>(i));
    Variable* v = cell->get(tr);
    Ref content;
    if (read && v) {
      v = tr.force(v);
      if (v->as_constant())
        content = Ref::borrow(v->as_constant());
      else if (tr.real.is_python_constant(v))
        content = tr.real.to_python(v);
      else
        tr.unsupported("a class whose body uses " + v->describe() + " of the function around it");
    }
    Ref real = Ref::steal(PyCell_New(content.get()));
    tr.keep(real);
    tr.stands_for(real.get(), cell);
    PyTuple_SET_ITEM(out.get(), static_cast<Py_ssize_t>(i), real.release());
  }
  return out;
}

// Whether code of the user's runs when a class is made from these: of a metaclass, or of a base that wants to know.
bool others_take_part(Translator& tr, const Args& a) {
  auto users = [](PyTypeObject* cls, const char* name) {
    Ref n = Ref::steal(PyUnicode_InternFromString(name));
    PyObject* f = native::type_attr(Ground::conservative(), cls, n.get());
    Ref inner;
    if (f && (Py_TYPE(f) == &PyClassMethod_Type || Py_TYPE(f) == &PyStaticMethod_Type)) {
      inner = Ref::steal(native::attr(Ground::conservative(), f, "__func__"));
      f = inner.get();
    }
    PyErr_Clear();
    return f && PyFunction_Check(f) && !of_library(f);
  };
  auto of_meta = [&](PyTypeObject* meta) {
    return users(meta, "__new__") || users(meta, "__init__") || users(meta, "__prepare__") ||
           users(Py_TYPE(meta), "__call__");
  };
  for (size_t i = 1; i < a.size(); ++i) {
    PyObject* base = tr.force(a[i])->as_constant();
    if (!base || !PyType_Check(base)) continue;
    if (of_meta(Py_TYPE(base)) || users(reinterpret_cast<PyTypeObject*>(base), "__init_subclass__")) return true;
  }
  for (auto& [name, v] : a.kw) {
    if (PyUnicode_CompareWithASCIIString(name, "metaclass") != 0) continue;
    PyObject* meta = tr.force(v)->as_constant();
    if (!meta || !PyType_Check(meta) || of_meta(reinterpret_cast<PyTypeObject*>(meta))) return true;
  }
  return false;
}

Variable* do_type_call(Translator& tr, Args& a) {
  PyObject* c = a.size() ? a[0]->as_constant() : nullptr;
  if (!c || !PyType_Check(c)) return nullptr;
  Variable* cls = a[0];
  a.pos.erase(a.pos.begin());
  return Py_TYPE(c) == &PyType_Type ? tr.call(cls, a) : type_call(tr, reinterpret_cast<PyTypeObject*>(c), a);
}

// The body runs natively; it must not see anything that only exists in the capture.
Variable* do_build_class(Translator& tr, Args& a) {
  if (a.size() < 2 || !a[0]->is(Kind::Function)) return nullptr;
  auto* body = a[0]->as<FunctionVariable>();
  if (body->real || others_take_part(tr, a)) return nullptr;
  check_class_body(tr, body);
  Ref fn = Ref::steal(PyFunction_New(body->code.get(), body->globals));
  if (body->closure) {
    Ref closure = real_closure(tr, body);
    PyFunction_SetClosure(fn.get(), closure.get());
  }
  Ref args = real_arguments(tr, a, 1, fn.get()), kw = real_keywords(tr, a);
  static PyObject* build = native::builtin("__build_class__");
  Ref cls = Ref::steal(PyObject_Call(build, args.get(), kw.get()));
  if (!cls) tr.raise_current();
  return tr.made_class(cls);
}

// type(name, bases, dict), where all of these are real.
Variable* class_of_parts(Translator& tr, Args& a) {
  Args bases{{a[0]}, {}};
  Variable* given = tr.force(a[1]);
  if (!given->is(Kind::Tuple)) return nullptr;
  const auto& classes = given->as<TupleVariable>()->elements;
  bases.pos.insert(bases.pos.end(), classes.begin(), classes.end());
  if (others_take_part(tr, bases)) return nullptr;
  Ref args = real_arguments(tr, a, 0, nullptr);
  Ref cls = Ref::steal(PyObject_Call(reinterpret_cast<PyObject*>(&PyType_Type), args.get(), nullptr));
  if (!cls) tr.raise_current();
  return tr.made_class(cls);
}

Variable* do_type(Translator& tr, Args& a) {
  if (a.size() == 3) return class_of_parts(tr, a);
  if (a.size() != 1) return nullptr;
  // A module is known by its identity, and may be given another class.
  if (PyObject* o = a[0]->as_constant(); o && PyModule_Check(o) && a[0]->source.valid())
    tr.guards().type_is(a[0]->source, Py_TYPE(o), tr.line());
  return tr.global_object(reinterpret_cast<PyObject*>(a[0]->type()), Ground::pure(a));
}

Variable* do_namedtuple(Translator& tr, Args& a) {
  Ref args = real_arguments(tr, a, 0, nullptr), kw = real_keywords(tr, a);
  static PyObject* make = [] {
    Ref m = Ref::steal(PyImport_ImportModule("collections"));
    return native::attr(Ground::fixed(), m.get(), "namedtuple");
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
      return native::attr(Ground::fixed(), m.get(), "dataclass");
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
  register_builtin("builtins", "type", do_type);
  register_builtin("builtins", "type.__call__", do_type_call);
  register_builtin("collections", "namedtuple", do_namedtuple);
  register_builtin("dataclasses", "dataclass", do_dataclass);
}

}  // namespace braze::capture
