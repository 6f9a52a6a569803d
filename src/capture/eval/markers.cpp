#include "capture/eval/markers.h"

#include "trace/pytorch/names.h"

namespace braze::capture {

namespace {

thread_local bool t_capturing = false;
thread_local bool t_disabled = false;
PyObject* (*g_unwrap)(PyObject*) = nullptr;

}  // namespace

Markers& markers() {
  static Markers m;
  return m;
}

const std::array<PyObject*, 2>& disabling_marks() {
  // The second is what torch.compiler.disable leaves on what it returns.
  static const std::array<PyObject*, 2> names{PyUnicode_InternFromString("_braze_disable"),
                                              pytorch::interned(pytorch::Attribute::disabled)};
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

std::string why_disabled(PyObject* function) {
  PyObject** dict = _PyObject_GetDictPtr(function);
  if (!dict || !*dict || !PyDict_Check(*dict)) return {};
  PyObject* why = PyDict_GetItem(*dict, pytorch::interned(pytorch::Attribute::disabled_because));
  const char* text = why && PyUnicode_Check(why) ? PyUnicode_AsUTF8(why) : nullptr;
  return text ? std::string(": ") + text : std::string();
}

bool has_constant_result(PyObject* function) {
  PyObject** dict = _PyObject_GetDictPtr(function);
  if (!dict || !*dict || !PyDict_Check(*dict)) return false;
  return PyDict_GetItem(*dict, pytorch::interned(pytorch::Attribute::constant_result)) == Py_True;
}

bool capturing() { return t_capturing; }

CapturingScope::CapturingScope() : before_(t_capturing) { t_capturing = true; }
CapturingScope::~CapturingScope() { t_capturing = before_; }

bool set_disabled(bool on) {
  bool before = t_disabled;
  t_disabled = on;
  return before;
}
bool disabled() { return t_disabled; }

PyObject* wrapped_function(PyObject* callable) { return g_unwrap ? g_unwrap(callable) : nullptr; }
void set_wrapped_function(PyObject* (*unwrap)(PyObject*)) { g_unwrap = unwrap; }

}  // namespace braze::capture
