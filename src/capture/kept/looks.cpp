#include "capture/kept/looks.h"

#include "base/bytes.h"
#include "base/hash.h"
#include "capture/cpython/dict.h"
#include "capture/cpython/wrappers.h"
#include "capture/eval/library_objects.h"

namespace braze::capture {

std::string_view text_of(PyObject* o) {
  if (!o || !PyUnicode_Check(o)) return {};
  Py_ssize_t n = 0;
  const char* s = PyUnicode_AsUTF8AndSize(o, &n);
  if (!s) PyErr_Clear();
  return s ? std::string_view(s, static_cast<size_t>(n)) : std::string_view();
}

namespace {

void add_constant(Hasher& h, PyObject* o);

void add_code(Hasher& h, PyCodeObject* code) {
  auto bytes = [&](PyObject* o) {
    h.add(o && PyBytes_Check(o) ? std::string_view(PyBytes_AS_STRING(o), static_cast<size_t>(PyBytes_GET_SIZE(o)))
                                : std::string_view());
  };
  Ref instructions = Ref::steal(PyCode_GetCode(code));
  bytes(instructions.get());
  for (PyObject* names : {code->co_names, code->co_localsplusnames, code->co_consts}) {
    h.add(PyTuple_GET_SIZE(names));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); ++i) add_constant(h, PyTuple_GET_ITEM(names, i));
  }
  bytes(code->co_localspluskinds);
  bytes(code->co_linetable);
  bytes(code->co_exceptiontable);
  for (PyObject* text : {code->co_filename, code->co_qualname}) h.add(text_of(text));
  for (int n : {code->co_flags, code->co_argcount, code->co_posonlyargcount, code->co_kwonlyargcount,
                code->co_firstlineno, code->co_stacksize})
    h.add(n);
}

// Of a code object's constants.
void add_constant(Hasher& h, PyObject* o) {
  h.add(std::string_view(Py_TYPE(o)->tp_name));
  if (PyCode_Check(o)) return add_code(h, reinterpret_cast<PyCodeObject*>(o));
  if (PyTuple_CheckExact(o)) {
    h.add(PyTuple_GET_SIZE(o));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); ++i) add_constant(h, PyTuple_GET_ITEM(o, i));
  } else if (PyFrozenSet_CheckExact(o)) {
    // Its order differs from process to process.
    Ref all = Ref::steal(PySequence_Tuple(o));
    uint64_t sum = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(all.get()); ++i) {
      Hasher one;
      add_constant(one, PyTuple_GET_ITEM(all.get(), i));
      sum += one.value();
    }
    h.add(sum);
  } else if (PyBytes_CheckExact(o)) {
    h.add(std::string_view(PyBytes_AS_STRING(o), static_cast<size_t>(PyBytes_GET_SIZE(o))));
  } else if (PyFloat_CheckExact(o)) {
    h.add(PyFloat_AS_DOUBLE(o));
  } else if (PyUnicode_CheckExact(o)) {
    Ref bytes = Ref::steal(PyUnicode_AsEncodedString(o, "utf-8", "surrogatepass"));
    if (bytes) add_constant(h, bytes.get());
    PyErr_Clear();
  } else {
    Ref repr = Ref::steal(PyObject_Repr(o));
    h.add(text_of(repr.get()));
    PyErr_Clear();
  }
}

PyObject* own(PyTypeObject* t, const char* name) {
  PyObject* dict = cpython::type_dict(t);
  return dict ? PyDict_GetItemString(dict, name) : nullptr;
}

std::string_view module_of(PyTypeObject* t) {
  if (PyObject* m = t->tp_flags & Py_TPFLAGS_HEAPTYPE ? own(t, "__module__") : nullptr) return text_of(m);
  std::string_view name = t->tp_name;
  size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? "builtins" : name.substr(0, dot);
}

std::string qualname_of(PyTypeObject* t) {
  if (t->tp_flags & Py_TPFLAGS_HEAPTYPE)
    return std::string(text_of(reinterpret_cast<PyHeapTypeObject*>(t)->ht_qualname));
  std::string_view name = t->tp_name;
  size_t dot = name.rfind('.');
  return std::string(dot == std::string_view::npos ? name : name.substr(dot + 1));
}

bool is_descriptor(PyTypeObject* t) {
  return t == &PyMethodDescr_Type || t == &PyWrapperDescr_Type || t == &PyGetSetDescr_Type ||
         t == &PyMemberDescr_Type || t == &PyClassMethodDescr_Type;
}

// `module` and `path` for what is found by walking the attributes of a loaded module; runs no code.
PyObject* named(std::string_view module, std::string_view path) {
  PyObject* modules = PyImport_GetModuleDict();
  PyObject* at = PyDict_GetItemString(modules, std::string(module).c_str());
  if (!at || path.empty()) return at;
  while (at && !path.empty()) {
    size_t dot = path.find('.');
    std::string part(path.substr(0, dot));
    path = dot == std::string_view::npos ? std::string_view() : path.substr(dot + 1);
    if (PyModule_Check(at))
      at = PyDict_GetItemString(PyModule_GetDict(at), part.c_str());
    else
      at = PyType_Check(at) ? own(reinterpret_cast<PyTypeObject*>(at), part.c_str()) : nullptr;
  }
  return at;
}

// Of a class whose instances hold nothing but what Python's own fields show.
bool is_plain_class(PyTypeObject* t) {
  if (!(t->tp_flags & Py_TPFLAGS_HEAPTYPE) || Py_TYPE(t)->tp_call != PyType_Type.tp_call) return false;
  PyTypeObject* base = t;
  while (base && base->tp_flags & Py_TPFLAGS_HEAPTYPE) base = base->tp_base;
  if (base != &PyBaseObject_Type) return false;
  if (PyType_IsSubtype(t, library().module) || PyType_IsSubtype(t, library().optimizer)) return true;
  std::string_view module = module_of(t);
  return module != "torch" && !module.starts_with("torch.") && !module.starts_with("braze");
}

}  // namespace

std::vector<PyObject*> inner_codes(PyObject* code) {
  std::vector<PyObject*> out;
  PyObject* constants = reinterpret_cast<PyCodeObject*>(code)->co_consts;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(constants); ++i)
    if (PyObject* c = PyTuple_GET_ITEM(constants, i); PyCode_Check(c)) out.push_back(c);
  return out;
}

std::string name_of(PyObject* o) {
  std::string module, path;
  if (PyModule_CheckExact(o)) {
    const char* n = PyModule_GetName(o);
    if (!n) PyErr_Clear();
    module = n ? n : "";
  } else if (PyType_Check(o)) {
    auto* t = reinterpret_cast<PyTypeObject*>(o);
    module = module_of(t), path = qualname_of(t);
  } else if (PyFunction_Check(o)) {
    auto* f = reinterpret_cast<PyFunctionObject*>(o);
    module = text_of(f->func_module), path = text_of(f->func_qualname);
  } else if (PyCFunction_Check(o)) {
    auto* f = reinterpret_cast<PyCFunctionObject*>(o);
    module = text_of(f->m_module), path = f->m_ml->ml_name;
    if (module.empty() && f->m_self && PyModule_Check(f->m_self)) module = PyModule_GetName(f->m_self);
    if (module.empty() && f->m_self && PyType_Check(f->m_self)) {
      auto* t = reinterpret_cast<PyTypeObject*>(f->m_self);
      module = module_of(t), path = qualname_of(t) + "." + path;
    }
    if (module.empty()) module = "torch";  // its functions know no module
  } else if (is_descriptor(Py_TYPE(o))) {
    auto* d = reinterpret_cast<PyDescrObject*>(o);
    module = module_of(d->d_type), path = qualname_of(d->d_type) + "." + std::string(text_of(d->d_name));
  } else if (Py_TYPE(o) == library().dtype || Py_TYPE(o) == library().layout || Py_TYPE(o) == library().memory_format) {
    Ref s = Ref::steal(PyObject_Repr(o));
    std::string_view all = text_of(s.get());
    if (all.starts_with("torch.")) module = "torch", path = all.substr(6);
    PyErr_Clear();
  } else if (PyDict_CheckExact(o)) {
    module = text_of(PyDict_GetItemString(o, "__name__"));
    PyObject* m = module.empty() ? nullptr : named(module, "");
    return m && PyModule_Check(m) && PyModule_GetDict(m) == o ? module + "\n{}" : "";
  }
  return !module.empty() && named(module, path) == o ? module + "\n" + path : "";
}

PyObject* at_name(const std::string& name) {
  size_t line = name.find('\n');
  std::string path = name.substr(line + 1);
  if (path != "{}") return named(name.substr(0, line), path);
  PyObject* m = named(name.substr(0, line), "");
  return m && PyModule_Check(m) ? PyModule_GetDict(m) : nullptr;
}

std::string printable(const std::string& bytes) {
  std::string out;
  for (char c : bytes) out += c >= ' ' && c < 127 ? c : ' ';
  return out;
}

uint64_t content_of_code(PyCodeObject* code) {
  Hasher h;
  add_code(h, code);
  return h.value();
}

std::optional<Looks> looks_of(PyObject* o) {
  PyTypeObject* t = Py_TYPE(o);
  Looks out;
  ByteWriter w;
  auto done = [&]() -> std::optional<Looks> {
    out.text = w.take();
    return std::move(out);
  };
  auto object = [&](auto* p) { return reinterpret_cast<PyObject*>(p); };
  w.text(t->tp_name);
  if (PyType_Check(o)) {
    auto* cls = reinterpret_cast<PyTypeObject*>(o);
    constexpr unsigned long kTold = Py_TPFLAGS_HEAPTYPE | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_IMMUTABLETYPE |
                                    Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IS_ABSTRACT;
    w.text(module_of(cls)), w.text(qualname_of(cls));
    w.integer(cls->tp_basicsize), w.integer(cls->tp_itemsize), w.integer(cls->tp_dictoffset);
    w.number(cls->tp_flags & kTold);
    out.parts.push_back(object(t));
    if (PyObject* mro = cls->tp_mro)
      for (Py_ssize_t i = 1; i < PyTuple_GET_SIZE(mro); ++i) out.parts.push_back(PyTuple_GET_ITEM(mro, i));
    return done();
  }
  if (PyModule_Check(o)) {
    const char* n = PyModule_GetName(o);
    if (!n) PyErr_Clear();
    w.text(n ? n : "");
    return done();
  }
  if (PyCode_Check(o)) {
    w.number(content_of_code(reinterpret_cast<PyCodeObject*>(o)));
    out.parts = inner_codes(o);
    return done();
  }
  if (PyFunction_Check(o)) {
    auto* f = reinterpret_cast<PyFunctionObject*>(o);
    for (PyObject* text : {f->func_name, f->func_qualname, f->func_module}) w.text(text_of(text));
    w.number(content_of_code(reinterpret_cast<PyCodeObject*>(f->func_code)));
    out.parts.push_back(f->func_globals);
    return done();
  }
  if (PyCFunction_Check(o)) {
    auto* f = reinterpret_cast<PyCFunctionObject*>(o);
    w.text(f->m_ml->ml_name), w.text(text_of(f->m_module));
    w.integer(f->m_ml->ml_flags);
    out.parts.push_back(f->m_self);
    return done();
  }
  if (is_descriptor(t)) {
    auto* d = reinterpret_cast<PyDescrObject*>(o);
    w.text(text_of(d->d_name));
    out.parts.push_back(object(d->d_type));
    return done();
  }
  if (t == &PyStaticMethod_Type || t == &PyClassMethod_Type) {
    out.parts.push_back(reinterpret_cast<cpython::StaticLayout*>(o)->callable);
    return done();
  }
  if (t == &PyProperty_Type) {
    auto* p = reinterpret_cast<cpython::PropertyLayout*>(o);
    out.parts = {p->get, p->set, p->del};
    return done();
  }
  if (PyMethod_Check(o)) {
    out.parts = {PyMethod_GET_FUNCTION(o), PyMethod_GET_SELF(o)};
    return done();
  }
  if (t == library().dtype || t == library().layout || t == library().memory_format) {
    Ref s = Ref::steal(PyObject_Repr(o));
    w.text(text_of(s.get()));
    return done();
  }
  if (PyObject_TypeCheck(o, library().enum_)) {
    PyObject** dict = _PyObject_GetDictPtr(o);
    if (!dict || !*dict) return {};
    out.parts = {object(t), PyDict_GetItemString(*dict, "_name_"), PyDict_GetItemString(*dict, "_value_")};
    return done();
  }
  // What they hold is read from them where it matters; guards on tensors say of what kind they are.
  if (t == library().tensor || t == library().parameter || t == &PyDict_Type || t == &PyList_Type ||
      t == &PyCell_Type || t == library().ordered_dict || is_plain_class(t)) {
    out.parts.push_back(object(t));
    return done();
  }
  // A holder of functions has no fields.
  if (!(t->tp_flags & Py_TPFLAGS_HEAPTYPE) && t->tp_basicsize == sizeof(PyObject) && !t->tp_itemsize) {
    out.parts.push_back(object(t));
    return done();
  }
  return {};
}

}  // namespace braze::capture
