// The names that functions written in C have in their own tables, which a program cannot change.
#pragma once
#include <Python.h>

#include <string_view>

namespace braze::trace {

// Of a function, a method or an operator's slot; empty for what is not written in C.
inline std::string_view c_function_name(PyObject* fn) {
  if (PyCFunction_Check(fn)) return reinterpret_cast<PyCFunctionObject*>(fn)->m_ml->ml_name;
  if (PyObject_TypeCheck(fn, &PyMethodDescr_Type)) return reinterpret_cast<PyMethodDescrObject*>(fn)->d_method->ml_name;
  if (PyObject_TypeCheck(fn, &PyWrapperDescr_Type)) return reinterpret_cast<PyWrapperDescrObject*>(fn)->d_base->name;
  return {};
}

}  // namespace braze::trace
