#include "capture/eval/native.h"

#include "capture/cpython/imported.h"
#include "trace/global_state.h"
#include "trace/pytorch/names.h"

namespace braze::capture::native {

static bool is_tensor(PyObject* o) {
  static PyTypeObject* base = pytorch::get_type(pytorch::Name::TensorBase);
  return PyObject_TypeCheck(o, base);
}

PyObject* attr(Ground, PyObject* o, const char* name) {
  return is_tensor(o) ? of_tensor(o, name) : PyObject_GetAttrString(o, name);
}
PyObject* attr(Ground, PyObject* o, PyObject* name) {
  return is_tensor(o) ? of_tensor(o, name) : PyObject_GetAttr(o, name);
}
PyObject* of_tensor(PyObject* tensor, const char* name) {
  trace::WithoutTorchFunctions own_question(2);
  return PyObject_GetAttrString(tensor, name);
}
PyObject* of_tensor(PyObject* tensor, PyObject* name) {
  trace::WithoutTorchFunctions own_question(2);
  return PyObject_GetAttr(tensor, name);
}
PyObject* type_attr(Ground, PyTypeObject* type, PyObject* name) { return _PyType_Lookup(type, name); }
PyObject* type_attr(Ground g, PyTypeObject* type, const char* name) {
  PyObject* interned = PyUnicode_InternFromString(name);
  PyObject* found = type_attr(g, type, interned);
  Py_DECREF(interned);
  return found;
}
PyObject* item(Ground, PyObject* dict, PyObject* key) { return PyDict_GetItemWithError(dict, key); }
PyObject* item(Ground, PyObject* dict, const char* key) { return PyDict_GetItemString(dict, key); }
int is_instance(Ground, PyObject* o, PyObject* cls) { return PyObject_IsInstance(o, cls); }
int is_subclass(Ground, PyObject* derived, PyObject* cls) { return PyObject_IsSubclass(derived, cls); }
PyObject* builtin(const char* name) { return imported("builtins", name); }

}  // namespace braze::capture::native
