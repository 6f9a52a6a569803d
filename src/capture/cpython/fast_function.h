// Functions of our own that recipes call.
#pragma once
#include <Python.h>

namespace braze::capture::cpython {

// A callable for the life of the process, of positional arguments only. Called once for each function.
inline PyObject* fast_function(const char* name, PyObject* (*f)(PyObject*, PyObject* const*, Py_ssize_t)) {
  auto function = reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(f));
  auto* method = new PyMethodDef{name, function, METH_FASTCALL, nullptr};
  return PyCFunction_New(method, nullptr);
}

}  // namespace braze::capture::cpython
