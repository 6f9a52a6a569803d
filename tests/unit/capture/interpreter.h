// An interpreter for tests of code that needs one: started at the first use, and never ended.
#pragma once
#include <Python.h>
#include <gtest/gtest.h>

#include <string>

#include "capture/cpython/ref.h"

namespace braze::capture {

inline void start_interpreter() {
  if (!Py_IsInitialized()) Py_InitializeEx(0);
}

// The value of an expression after these statements.
inline Ref evaluate(const std::string& expression, const std::string& statements = {}) {
  start_interpreter();
  Ref globals = Ref::steal(PyDict_New());
  PyDict_SetItemString(globals.get(), "__builtins__", PyEval_GetBuiltins());
  Ref none = Ref::steal(PyRun_String(statements.c_str(), Py_file_input, globals.get(), globals.get()));
  Ref value =
      Ref::steal(none ? PyRun_String(expression.c_str(), Py_eval_input, globals.get(), globals.get()) : nullptr);
  if (!value) PyErr_Print();
  EXPECT_TRUE(value) << statements << expression;
  return value;
}

inline PyCodeObject* code_of(PyObject* function) {
  return reinterpret_cast<PyCodeObject*>(reinterpret_cast<PyFunctionObject*>(function)->func_code);
}

inline std::string repr(PyObject* o) {
  Ref text = Ref::steal(o ? PyObject_Repr(o) : nullptr);
  return text ? PyUnicode_AsUTF8(text.get()) : "NULL";
}

}  // namespace braze::capture
