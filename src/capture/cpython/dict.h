// What the C API does not tell of dicts: the word that changes at every store, and the order of keys whatever the class.
#pragma once
#include <Python.h>

namespace braze::capture::cpython {

inline const uint64_t* dict_version(PyObject* dict) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  return &reinterpret_cast<PyDictObject*>(dict)->ma_version_tag;
#pragma GCC diagnostic pop
}

// Whether looking a string, a number or another key of PyTorch's or CPython's own up in it runs no code of the user's: it does where a key
// that has the same hash is compared by a method of its class. May say false where it would be true.
bool lookups_run_no_code(PyObject* dict);

// The keys as a new tuple, in the order that dict or OrderedDict itself keeps: no method of a subclass is called.
inline PyObject* keys_in_order(PyObject* dict) {
  if (PyODict_Check(dict)) {
    PyObject* it = PyODict_Type.tp_iter(dict);
    PyObject* keys = it ? PySequence_Tuple(it) : nullptr;
    Py_XDECREF(it);
    return keys;
  }
  PyObject *keys = PyTuple_New(PyDict_GET_SIZE(dict)), *key, *value;
  Py_ssize_t pos = 0;
  for (Py_ssize_t i = 0; PyDict_Next(dict, &pos, &key, &value); ++i) PyTuple_SET_ITEM(keys, i, Py_NewRef(key));
  return keys;
}

}  // namespace braze::capture::cpython
