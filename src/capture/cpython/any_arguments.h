// A call of a function for what the call itself does, whatever its parameters.
#pragma once
#include <Python.h>

#include <vector>

#include "capture/cpython/ref.h"

namespace braze::capture::cpython {

// Arguments that any function with this code takes: None for each parameter, as PyObject_Vectorcall() wants them.
struct AnyArguments {
  explicit AnyArguments(PyCodeObject* code)
      : values(static_cast<size_t>(code->co_argcount + code->co_kwonlyargcount) + 1, Py_None),
        positional(static_cast<size_t>(code->co_argcount)) {
    if (!code->co_kwonlyargcount) return;
    names = Ref::steal(PyTuple_New(code->co_kwonlyargcount));
    for (int i = 0; names && i < code->co_kwonlyargcount; ++i)
      PyTuple_SET_ITEM(names.get(), i, Py_NewRef(PyTuple_GET_ITEM(code->co_localsplusnames, code->co_argcount + i)));
  }

  std::vector<PyObject*> values;  // borrowed
  size_t positional;
  Ref names;  // of those behind them; none: there are none
};

}  // namespace braze::capture::cpython
