#include "capture/cpython/dict.h"

#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030E0000
#define Py_BUILD_CORE
#include <internal/pycore_dict.h>
#else
#error "the kinds of dict tables of this CPython are not known"
#endif

namespace braze::capture::cpython {
namespace {

bool compares_natively(PyObject* key) {
  return PyUnicode_CheckExact(key) || PyLong_CheckExact(key) || PyBool_Check(key) || key == Py_None || PyFloat_CheckExact(key) || PyBytes_CheckExact(key);
}

PyObject* g_address_hash = nullptr;

bool is_hashed_by_address(PyObject* key) {
  static PyObject* name = PyUnicode_InternFromString("__hash__");
  return _PyType_Lookup(Py_TYPE(key), name) == g_address_hash;
}

}  // namespace

void hashes_by_address(PyObject* function) { g_address_hash = Py_NewRef(function); }

PyObject* dict_get(PyObject* dict, PyObject* key) {
  bool by_address = g_address_hash && (Py_TYPE(key)->tp_flags & Py_TPFLAGS_HEAPTYPE) && is_hashed_by_address(key);
  // An address fits into a hash as it is.
  PyObject* v = by_address ? _PyDict_GetItem_KnownHash(dict, key, reinterpret_cast<Py_hash_t>(key)) : PyDict_GetItemWithError(dict, key);
  if (!v && PyErr_Occurred()) PyErr_Clear();
  return v;
}

bool lookups_run_no_code(PyObject* dict) {
  if (DK_IS_UNICODE(reinterpret_cast<PyDictObject*>(dict)->ma_keys)) return true;
  constexpr Py_ssize_t kFew = 64;  // more keys than that are not worth the look
  if (PyDict_GET_SIZE(dict) > kFew) return false;
  PyObject *key, *value;
  for (Py_ssize_t pos = 0; PyDict_Next(dict, &pos, &key, &value);)
    if (!compares_natively(key)) return false;
  return true;
}

}  // namespace braze::capture::cpython
