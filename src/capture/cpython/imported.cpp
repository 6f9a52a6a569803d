#include "capture/cpython/imported.h"

#include <string>

#include "base/check.h"
#include "capture/cpython/ref.h"

namespace braze::capture {

PyObject* imported(const char* module, const char* path, bool optional) {
  Ref at = Ref::steal(PyImport_ImportModule(module));
  std::string rest = path ? path : "";
  while (at && !rest.empty()) {
    size_t dot = rest.find('.');
    std::string head = rest.substr(0, dot);
    rest = dot == std::string::npos ? "" : rest.substr(dot + 1);
    at = Ref::steal(PyObject_GetAttrString(at.get(), head.c_str()));
  }
  if (!at) {
    PyErr_Clear();
    if (optional) return nullptr;
    throw InternalError(std::string("cannot import ") + module + "." + (path ? path : ""));
  }
  return at.release();
}

PyTypeObject* union_type() {
  static PyTypeObject* const type = [] {
    Ref u = Ref::steal(
        PyNumber_Or(reinterpret_cast<PyObject*>(&PyLong_Type), reinterpret_cast<PyObject*>(&PyUnicode_Type)));
    return Py_TYPE(u.get());
  }();
  return type;
}

PyObject* partial_placeholder() {
  static PyObject* const placeholder = imported("functools", "Placeholder", true);
  return placeholder;
}

PyTypeObject* method_wrapper_type() {
  static PyObject* const type = imported("types", "MethodWrapperType");
  return reinterpret_cast<PyTypeObject*>(type);
}

}  // namespace braze::capture
