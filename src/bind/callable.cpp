#include "bind/callable.h"

#include <structmember.h>

#include <vector>

#include "capture/eval/markers.h"

namespace braze::bind {

namespace {

struct Compiled {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* function;
  PyObject* bound;
  PyObject* dict;
  PyObject* weakrefs;
  bool replaces_first;
  std::shared_ptr<capture::Region> region;
};

PyTypeObject* g_type = nullptr;

PyObject* call(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  auto* c = reinterpret_cast<Compiled*>(self);
  auto* function = reinterpret_cast<PyFunctionObject*>(c->function);
  if (!c->bound) return c->region->call(function, args, nargsf, kwnames);
  size_t nargs = static_cast<size_t>(PyVectorcall_NARGS(nargsf));
  size_t total = nargs + (kwnames ? static_cast<size_t>(PyTuple_GET_SIZE(kwnames)) : 0);
  size_t skip = c->replaces_first && nargs ? 1 : 0;
  constexpr size_t kInline = 24;
  PyObject* small[kInline];
  std::vector<PyObject*> large;
  PyObject** all = small;
  if (total + 2 > kInline) {
    large.resize(total + 2);
    all = large.data();
  }
  all[0] = nullptr;  // room for PY_VECTORCALL_ARGUMENTS_OFFSET
  all[1] = c->bound;
  for (size_t i = skip; i < total; ++i) all[2 + i - skip] = args[i];
  return c->region->call(function, all + 1, (nargs - skip + 1) | PY_VECTORCALL_ARGUMENTS_OFFSET, kwnames);
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  auto* c = reinterpret_cast<Compiled*>(self);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(c->function);
  Py_VISIT(c->bound);
  Py_VISIT(c->dict);
  return c->region ? c->region->traverse(visit, arg) : 0;
}

int clear(PyObject* self) {
  auto* c = reinterpret_cast<Compiled*>(self);
  Py_CLEAR(c->bound);
  Py_CLEAR(c->dict);
  if (c->region) c->region->clear();
  return 0;
}

void dealloc(PyObject* self) {
  auto* c = reinterpret_cast<Compiled*>(self);
  PyObject_GC_UnTrack(self);
  if (c->weakrefs) PyObject_ClearWeakRefs(self);
  clear(self);
  Py_CLEAR(c->function);
  c->region.~shared_ptr();
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* get(PyObject* self, PyObject* object, PyObject*) {
  if (!object || object == Py_None) return Py_NewRef(self);
  return PyMethod_New(self, object);
}

PyObject* repr(PyObject* self) {
  return PyUnicode_FromFormat("<compiled %R>", reinterpret_cast<Compiled*>(self)->function);
}

PyObject* reduce(PyObject* self, PyObject*) {
  // As functions do: by name.
  return PyObject_GetAttrString(reinterpret_cast<Compiled*>(self)->function, "__qualname__");
}

PyObject* unwrap(PyObject* callable) {
  if (Py_TYPE(callable) != g_type) return nullptr;
  auto* c = reinterpret_cast<Compiled*>(callable);
  return c->bound && !c->replaces_first ? nullptr : c->function;
}

PyMemberDef members[] = {{"__dictoffset__", T_PYSSIZET, offsetof(Compiled, dict), READONLY, nullptr},
                         {"__weaklistoffset__", T_PYSSIZET, offsetof(Compiled, weakrefs), READONLY, nullptr},
                         {"__vectorcalloffset__", T_PYSSIZET, offsetof(Compiled, vectorcall), READONLY, nullptr},
                         {nullptr, 0, 0, 0, nullptr}};
PyMethodDef methods[] = {{"__reduce__", reduce, METH_NOARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};
PyObject* wrapped(PyObject* self, void*) { return Py_NewRef(reinterpret_cast<Compiled*>(self)->function); }
// functools.update_wrapper stores what it wraps; that is known already.
int set_wrapped(PyObject*, PyObject*, void*) { return 0; }

PyGetSetDef getset[] = {{"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
                        {"__wrapped__", wrapped, set_wrapped, nullptr, nullptr},
                        {nullptr, nullptr, nullptr, nullptr, nullptr}};

template <class F>
void* slot(F f) {
  return reinterpret_cast<void*>(f);
}

}  // namespace

bool init_callable(PyObject* module) {
  PyType_Slot slots[] = {{Py_tp_dealloc, slot(dealloc)}, {Py_tp_traverse, slot(traverse)},
                         {Py_tp_clear, slot(clear)},     {Py_tp_call, slot(PyVectorcall_Call)},
                         {Py_tp_descr_get, slot(get)},   {Py_tp_repr, slot(repr)},
                         {Py_tp_members, members},       {Py_tp_methods, methods},
                         {Py_tp_getset, getset},         {0, nullptr}};
  PyType_Spec spec = {"braze._C.Compiled", sizeof(Compiled), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                          Py_TPFLAGS_METHOD_DESCRIPTOR | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                      slots};
  g_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  if (!g_type || PyModule_AddObjectRef(module, "Compiled", reinterpret_cast<PyObject*>(g_type)) < 0) return false;
  capture::set_wrapped_function(unwrap);
  return true;
}

PyObject* new_callable(std::shared_ptr<capture::Region> region, PyObject* function, PyObject* bound,
                       bool replaces_first) {
  auto* c = reinterpret_cast<Compiled*>(g_type->tp_alloc(g_type, 0));
  if (!c) return nullptr;
  c->vectorcall = call;
  c->function = Py_NewRef(function);
  c->bound = Py_XNewRef(bound);
  c->replaces_first = replaces_first;
  new (&c->region) std::shared_ptr<capture::Region>(std::move(region));
  return reinterpret_cast<PyObject*>(c);
}

capture::Region* region_of(PyObject* callable) {
  if (Py_TYPE(callable) == g_type) return reinterpret_cast<Compiled*>(callable)->region.get();
  PyErr_SetString(PyExc_TypeError, "not a function compiled by braze");
  return nullptr;
}

}  // namespace braze::bind
