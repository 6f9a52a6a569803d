#include "capture/markers.h"

namespace braze::capture {

namespace {

thread_local bool t_capturing = false;
thread_local bool t_disabled = false;
PyObject* (*g_unwrap)(PyObject*) = nullptr;

PyObject* interned(const char* text) { return PyUnicode_InternFromString(text); }

}  // namespace

Markers& markers() {
  static Markers m;
  return m;
}

bool is_disabled(PyObject* function) {
  // torch.compiler.disable leaves `_torchdynamo_disable` on what it returns.
  static PyObject* names[] = {interned("_braze_disable"), interned("_torchdynamo_disable")};
  PyObject** dict = _PyObject_GetDictPtr(function);
  if (!dict || !*dict || !PyDict_Check(*dict)) return false;
  for (PyObject* name : names)
    if (PyDict_GetItemWithError(*dict, name) == Py_True) return true;
  PyErr_Clear();
  return false;
}

bool capturing() { return t_capturing; }

CapturingScope::CapturingScope() : before_(t_capturing) {
  t_capturing = true;
  static PyObject* modules_name = interned("torch.compiler");
  static PyObject* flag = interned("_is_compiling_flag");
  flag_holder_ = Ref::steal(PyImport_GetModule(modules_name));
  if (!flag_holder_) {
    PyErr_Clear();
    return;
  }
  PyObject* dict = PyModule_GetDict(flag_holder_.get());
  flag_before_ = Ref::borrow(PyDict_GetItemWithError(dict, flag));
  if (flag_before_) PyDict_SetItem(dict, flag, Py_True);
}

CapturingScope::~CapturingScope() {
  t_capturing = before_;
  static PyObject* flag = interned("_is_compiling_flag");
  if (flag_before_) PyDict_SetItem(PyModule_GetDict(flag_holder_.get()), flag, flag_before_.get());
}

bool set_disabled(bool on) {
  bool before = t_disabled;
  t_disabled = on;
  return before;
}
bool disabled() { return t_disabled; }

PyObject* wrapped_function(PyObject* callable) { return g_unwrap ? g_unwrap(callable) : nullptr; }
void set_wrapped_function(PyObject* (*unwrap)(PyObject*)) { g_unwrap = unwrap; }

}  // namespace braze::capture
