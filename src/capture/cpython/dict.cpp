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

}  // namespace

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
