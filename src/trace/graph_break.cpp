#include "trace/graph_break.h"

#include <torch/csrc/Exceptions.h>

#include "trace/trace.h"

namespace braze::trace {
namespace {

// A BaseException: library code that catches Exception around torch calls must not swallow it.
PyObject* signal_type() {
  static PyObject* type = PyErr_NewExceptionWithDoc(
      "braze._C.GraphBreakSignal", "Ends tracing of a call that cannot be traced; never leaves the compiler.",
      PyExc_BaseException, nullptr);
  return type;
}

}  // namespace

void set_graph_break(Reason reason, const std::string& detail) {
  PyErr_Clear();
  if (PyObject* args = Py_BuildValue("(is)", static_cast<int>(reason), detail.c_str())) {
    PyErr_SetObject(signal_type(), args);
    Py_DECREF(args);
  }
}

void throw_graph_break(Reason reason, const std::string& detail) {
  pybind11::gil_scoped_acquire gil;
  set_graph_break(reason, detail);
  python_error error;
  error.persist();
  throw error;
}

void signal_graph_break(Reason reason, const std::string& detail) { set_graph_break(reason, detail); }

bool is_graph_break_exception(PyObject* exc, Reason* reason, std::string* detail) {
  if (!exc || !PyObject_TypeCheck(exc, reinterpret_cast<PyTypeObject*>(signal_type()))) return false;
  PyObject* args = PyObject_GetAttrString(exc, "args");
  if (args && PyTuple_Check(args) && PyTuple_GET_SIZE(args) == 2) {
    if (reason) *reason = static_cast<Reason>(PyLong_AsLong(PyTuple_GET_ITEM(args, 0)));
    const char* text = PyUnicode_AsUTF8(PyTuple_GET_ITEM(args, 1));
    if (detail) *detail = text ? text : "";
  }
  Py_XDECREF(args);
  PyErr_Clear();
  return true;
}

}  // namespace braze::trace
