// The word of a dict that changes at every store.
#pragma once
#include <Python.h>

namespace braze::capture::cpython {

inline const uint64_t* dict_version(PyObject* dict) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  return &reinterpret_cast<PyDictObject*>(dict)->ma_version_tag;
#pragma GCC diagnostic pop
}

}  // namespace braze::capture::cpython
