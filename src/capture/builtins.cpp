#include "capture/builtins.h"

#include <string>
#include <unordered_map>
#include <unordered_set>

#include "capture/ref.h"

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
  Ref at = Ref::steal(PyImport_ImportModule(module));
  std::string rest = qualname;
  while (at && !rest.empty()) {
    size_t dot = rest.find('.');
    std::string head = rest.substr(0, dot);
    rest = dot == std::string::npos ? "" : rest.substr(dot + 1);
    if (PyType_Check(at.get())) {
      Ref name = Ref::steal(PyUnicode_InternFromString(head.c_str()));
      PyObject* raw = _PyType_Lookup(reinterpret_cast<PyTypeObject*>(at.get()), name.get());
      if (raw && (Py_TYPE(raw) == &PyMethodDescr_Type || Py_TYPE(raw) == &PyWrapperDescr_Type || Py_TYPE(raw) == &PyClassMethodDescr_Type ||
                  Py_TYPE(raw) == &PyFunction_Type)) {
        at = Ref::borrow(raw);
        continue;
      }
    }
    at = Ref::steal(PyObject_GetAttrString(at.get(), head.c_str()));
  }
  if (!at) PyErr_Clear();
  return at.release();  // kept for the life of the process
}

}  // namespace

BuiltinHandler find_builtin(PyObject* callable) {
  auto it = handlers().find(callable);
  return it == handlers().end() ? nullptr : it->second;
}

void register_builtin(PyObject* callable, BuiltinHandler handler) { handlers()[callable] = handler; }

void register_builtin(const char* module, const char* qualname, BuiltinHandler handler) {
  if (PyObject* o = find(module, qualname)) register_builtin(o, handler);
}

const char* find_polyfill(PyObject* callable) {
  auto it = polyfills().find(callable);
  return it == polyfills().end() ? nullptr : it->second;
}

void register_polyfill(const char* module, const char* qualname, const char* name) {
  if (PyObject* o = find(module, qualname)) polyfills()[o] = name;
}

namespace {
std::unordered_set<PyObject*>& keywordless() {
  static std::unordered_set<PyObject*> p;
  return p;
}
}  // namespace

bool takes_no_keywords(PyObject* callable) { return keywordless().count(callable) != 0; }

void register_no_keywords(const char* module, const char* qualname) {
  if (PyObject* o = find(module, qualname)) keywordless().insert(o);
}

bool is_pure(PyObject* callable) { return pure().count(callable) != 0; }

void register_pure(const char* module, const char* qualname) {
  if (PyObject* o = find(module, qualname)) pure().insert(o);
}

}  // namespace braze::capture
