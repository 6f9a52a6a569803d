#include "capture/eval/markers.h"

namespace braze::capture {

namespace {

thread_local bool t_capturing = false;
thread_local bool t_disabled = false;
PyObject* (*g_unwrap)(PyObject*) = nullptr;

// Scopes alive in all threads, and the flag's dictionary and value before the first of them: kept under the GIL.
// Never destroyed with the process, whose interpreter is gone by then.
int g_scopes = 0;
Ref& g_flag_dict = *new Ref;
Ref& g_flag_before = *new Ref;

PyObject* interned(const char* text) { return PyUnicode_InternFromString(text); }
PyObject* flag_name() {
  static PyObject* name = interned("_is_compiling_flag");
  return name;
}

}  // namespace

Markers& markers() {
  static Markers m;
  return m;
}

const std::array<PyObject*, 2>& disabling_marks() {
  // torch.compiler.disable leaves `_torchdynamo_disable` on what it returns.
  static const std::array<PyObject*, 2> names{interned("_braze_disable"), interned("_torchdynamo_disable")};
  return names;
}

bool is_disabled(PyObject* function) {
  PyObject** dict = _PyObject_GetDictPtr(function);
  if (!dict || !*dict || !PyDict_Check(*dict)) return false;
  for (PyObject* name : disabling_marks())
    if (PyDict_GetItemWithError(*dict, name) == Py_True) return true;
  PyErr_Clear();
  return false;
}

bool capturing() { return t_capturing; }

CapturingScope::CapturingScope() : before_(t_capturing) {
  t_capturing = true;
  if (++g_scopes > 1) return;
  static PyObject* name = interned("torch.compiler");
  Ref module = Ref::steal(PyImport_GetModule(name));
  if (!module) {
    PyErr_Clear();
    return;
  }
  g_flag_dict = Ref::borrow(PyModule_GetDict(module.get()));
  g_flag_before = Ref::borrow(PyDict_GetItemWithError(g_flag_dict.get(), flag_name()));
  if (g_flag_before) PyDict_SetItem(g_flag_dict.get(), flag_name(), Py_True);
}

CapturingScope::~CapturingScope() {
  t_capturing = before_;
  if (--g_scopes > 0) return;
  if (g_flag_before) PyDict_SetItem(g_flag_dict.get(), flag_name(), g_flag_before.get());
  g_flag_before = g_flag_dict = Ref();
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
