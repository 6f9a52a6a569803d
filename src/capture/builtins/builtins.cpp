#include "capture/builtins/builtins.h"

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "capture/cpython/once_loaded.h"
#include "capture/cpython/ref.h"

namespace braze::capture {
namespace {

std::unordered_map<PyObject*, BuiltinHandler>& handlers() {
  static std::unordered_map<PyObject*, BuiltinHandler> h;
  return h;
}

std::unordered_set<PyObject*>& pure() {
  static std::unordered_set<PyObject*> p;
  return p;
}

std::unordered_map<PyObject*, const char*>& polyfills() {
  static std::unordered_map<PyObject*, const char*> p;
  return p;
}

// Methods are registered as they lie in their class's dict.
PyObject* find(const char* module, const char* qualname) {
  Ref at = Ref::borrow(PyDict_GetItemString(PyImport_GetModuleDict(), module));
  std::string rest = qualname;
  while (at && !rest.empty()) {
    size_t dot = rest.find('.');
    std::string head = rest.substr(0, dot);
    rest = dot == std::string::npos ? "" : rest.substr(dot + 1);
    if (PyType_Check(at.get())) {
      Ref name = Ref::steal(PyUnicode_InternFromString(head.c_str()));
      PyObject* raw = _PyType_Lookup(reinterpret_cast<PyTypeObject*>(at.get()), name.get());
      if (raw && (Py_TYPE(raw) == &PyMethodDescr_Type || Py_TYPE(raw) == &PyWrapperDescr_Type ||
                  Py_TYPE(raw) == &PyClassMethodDescr_Type || Py_TYPE(raw) == &PyFunction_Type)) {
        at = Ref::borrow(raw);
        continue;
      }
    }
    at = Ref::steal(PyObject_GetAttrString(at.get(), head.c_str()));
  }
  if (!at) PyErr_Clear();
  return at.release();  // kept for the life of the process
}

// A module that is imported a second time has functions of its own with the same definitions: the one that was
// registered.
std::unordered_map<PyMethodDef*, PyObject*>& definitions() {
  static auto* d = new std::unordered_map<PyMethodDef*, PyObject*>;
  return *d;
}

PyMethodDef* definition(PyObject* callable) {
  PyObject* self = PyCFunction_Check(callable) ? PyCFunction_GET_SELF(callable) : nullptr;
  return self && PyModule_Check(self) ? reinterpret_cast<PyCFunctionObject*>(callable)->m_ml : nullptr;
}

PyObject* registered(PyObject* callable) {
  if (PyMethodDef* d = definition(callable))
    if (auto it = definitions().find(d); it != definitions().end()) return it->second;
  return callable;
}

// The same, for a callable that is registered now.
PyObject* to_register(PyObject* callable) {
  PyMethodDef* d = definition(callable);
  return d ? definitions().try_emplace(d, callable).first->second : callable;
}

}  // namespace

BuiltinHandler find_builtin(PyObject* callable) {
  register_loaded();
  auto it = handlers().find(registered(callable));
  return it == handlers().end() ? nullptr : it->second;
}

void register_builtin(PyObject* callable, BuiltinHandler handler) { handlers()[to_register(callable)] = handler; }

void register_builtin(const char* module, const char* qualname, BuiltinHandler handler) {
  once_loaded(module, [=] {
    if (PyObject* o = find(module, qualname)) register_builtin(o, handler);
  });
}

const char* find_polyfill(PyObject* callable) {
  register_loaded();
  auto it = polyfills().find(registered(callable));
  return it == polyfills().end() ? nullptr : it->second;
}

namespace {
std::unordered_map<PyObject*, PyObject*>& substitutes() {
  static std::unordered_map<PyObject*, PyObject*> s;
  return s;
}
std::unordered_set<PyObject*>& allowed_in_graph() {
  static std::unordered_set<PyObject*> a;
  return a;
}
}  // namespace

PyObject* find_substitute(PyObject* callable) {
  auto it = substitutes().find(callable);
  return it == substitutes().end() ? nullptr : it->second;
}

void substitute(PyObject* callable, PyObject* by) {
  substitutes()[Py_NewRef(callable)] = Py_NewRef(by);  // references of the process
}

bool is_allowed_in_graph(PyObject* callable) {
  if (allowed_in_graph().count(callable)) return true;
  Ref ids = Ref::steal(pytorch::loaded(pytorch::Name::allowed_in_graph));
  if (!ids) return false;
  Ref id = Ref::steal(PyLong_FromVoidPtr(callable));
  int has = id ? PySequence_Contains(ids.get(), id.get()) : -1;
  if (has < 0) PyErr_Clear();
  return has == 1;
}

bool has_program_rules() { return !substitutes().empty() || !allowed_in_graph().empty(); }

void allow_in_graph(PyObject* callable) {
  if (allowed_in_graph().insert(callable).second) Py_INCREF(callable);
}

void register_polyfill(const char* module, const char* qualname, const char* name) {
  once_loaded(module, [=] {
    if (PyObject* o = find(module, qualname)) polyfills()[to_register(o)] = name;
  });
}

namespace {
std::unordered_set<PyObject*>& keywordless() {
  static std::unordered_set<PyObject*> p;
  return p;
}
}  // namespace

bool takes_no_keywords(PyObject* callable) {
  register_loaded();
  return keywordless().count(registered(callable)) != 0;
}

void register_no_keywords(const char* module, const char* qualname) {
  once_loaded(module, [=] {
    if (PyObject* o = find(module, qualname)) keywordless().insert(to_register(o));
  });
}

bool is_pure(PyObject* callable) { return pure().count(registered(callable)) != 0; }

void register_pure(const char* module, const char* qualname) {
  once_loaded(module, [=] {
    if (PyObject* o = find(module, qualname)) pure().insert(to_register(o));
  });
}

void register_builtin(pytorch::Name name, BuiltinHandler handler) {
  register_builtin(pytorch::row(name).module, pytorch::row(name).path, handler);
}
void register_polyfill(pytorch::Name of, const char* name) {
  register_polyfill(pytorch::row(of).module, pytorch::row(of).path, name);
}
void register_pure(pytorch::Name name) { register_pure(pytorch::row(name).module, pytorch::row(name).path); }

}  // namespace braze::capture
