#include "launch/warn_once.h"

#include <Python.h>

#include <unordered_set>

namespace braze::launch {

void warn_once(const std::string& text) {
  if (!Py_IsInitialized()) return;
  PyGILState_STATE gil = PyGILState_Ensure();
  static auto* said = new std::unordered_set<std::string>();  // under the GIL
  if (said->insert(text).second) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyObject* logging = PyImport_ImportModule("logging");
    PyObject* logger = logging ? PyObject_CallMethod(logging, "getLogger", "s", "braze") : nullptr;
    PyObject* none = logger ? PyObject_CallMethod(logger, "warning", "ss", "%s", text.c_str()) : nullptr;
    if (!none) PyErr_WriteUnraisable(nullptr);
    Py_XDECREF(none);
    Py_XDECREF(logger);
    Py_XDECREF(logging);
    PyErr_Restore(type, value, trace);
  }
  PyGILState_Release(gil);
}

}  // namespace braze::launch
