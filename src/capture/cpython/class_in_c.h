#pragma once
#include <Python.h>

namespace braze::capture {

// The nearest class, from this one upwards, that is written in C: it lays out what classes of Python's below it hold.
inline PyTypeObject* class_in_c(PyTypeObject* cls) {
  while ((cls->tp_flags & Py_TPFLAGS_HEAPTYPE) && cls->tp_base) cls = cls->tp_base;
  return cls;
}

}  // namespace braze::capture
