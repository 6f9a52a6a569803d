// Layouts of objects around functions, which CPython has in no public header.
#pragma once
#include <Python.h>

namespace braze::capture::cpython {

struct PropertyLayout {
  PyObject_HEAD PyObject *get, *set, *del;
};

// staticmethod and classmethod share it.
struct StaticLayout {
  PyObject_HEAD PyObject* callable;
};

}  // namespace braze::capture::cpython
