// What the C API does not tell of dicts: the word that changes at every store, and the order of keys whatever the
// class.
#pragma once
#include <Python.h>

namespace braze::capture::cpython {

// Whether looking a string, a number or another key of PyTorch's or CPython's own up in it runs no code of the user's:
// it does where a key that has the same hash is compared by a method of its class. May say false where it would be
// true.
bool lookups_run_no_code(PyObject* dict);

// What is under a key, borrowed; nullptr for nothing, without an exception. The hash of a key whose class has the
// method that hashes_by_address() named is computed without calling it.
PyObject* dict_get(PyObject* dict, PyObject* key);
// `function`: a method __hash__, in Python, that returns id(self).
void hashes_by_address(PyObject* function);

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

// Whether a defaultdict whose factory stored under the missing key itself keeps that value. Earlier releases put the
// factory's result over it.
bool defaultdict_keeps_stored();

// A class's own dict, borrowed. Static classes of 3.12 and later keep theirs elsewhere than in the class.
inline PyObject* type_dict(PyTypeObject* t) {
#if PY_VERSION_HEX >= 0x030C0000
  PyObject* d = PyType_GetDict(t);
  Py_XDECREF(d);
  return d;
#else
  return t->tp_dict;
#endif
}

}  // namespace braze::capture::cpython
