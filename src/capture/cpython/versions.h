// Words in CPython's objects that change whenever what they stand for may have changed, and never take an earlier value again. One
// interpreter's: 3.11 to 3.13 keep them for every dict and class, and nobody has to be told in advance what is of interest. From 3.14 on
// dicts have none; there is a watcher to be registered instead.
#pragma once
#include <Python.h>

#if PY_VERSION_HEX >= 0x030E0000
#error "dicts of this CPython have no version"
#endif

namespace braze::capture::cpython {

// Changes at every store, also of an equal value.
inline const uint64_t* dict_version(PyObject* dict) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  return &reinterpret_cast<PyDictObject*>(dict)->ma_version_tag;
#pragma GCC diagnostic pop
}

// Changes at every store to the class or one of its bases. 0: the class has none at present; looking an attribute up gives it one, as long
// as there are any left.
inline const unsigned* type_version(PyTypeObject* type) { return &type->tp_version_tag; }

}  // namespace braze::capture::cpython
