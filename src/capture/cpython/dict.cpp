#include "capture/cpython/dict.h"

#include "capture/cpython/imported.h"
#include "capture/cpython/ref.h"

namespace braze::capture::cpython {
namespace {

bool compares_natively(PyObject* key) {
  return PyUnicode_CheckExact(key) || PyLong_CheckExact(key) || PyBool_Check(key) || key == Py_None ||
         PyFloat_CheckExact(key) || PyBytes_CheckExact(key);
}

// The head of a dict's table, the same in 3.11 to 3.14. The kind is 0 for keys of any class.
struct Keys {
  Py_ssize_t references;
  uint8_t log2_size, log2_index_bytes, kind;
};

uint8_t kind_of(PyObject* dict) {
  return reinterpret_cast<const Keys*>(reinterpret_cast<PyDictObject*>(dict)->ma_keys)->kind;
}

// A trial says whether this CPython has it like that.
bool knows_kinds() {
  static const bool known = [] {
    Ref names = Ref::steal(Py_BuildValue("{s:i}", "a", 1)), numbers = Ref::steal(Py_BuildValue("{i:i}", 1, 1)),
        mixed = Ref::steal(Py_BuildValue("{s:i,i:i}", "a", 1, 1, 1));
    return kind_of(names.get()) != 0 && kind_of(numbers.get()) == 0 && kind_of(mixed.get()) == 0;
  }();
  return known;
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
  PyObject* v = by_address ? _PyDict_GetItem_KnownHash(dict, key, reinterpret_cast<Py_hash_t>(key))
                           : PyDict_GetItemWithError(dict, key);
  if (!v && PyErr_Occurred()) PyErr_Clear();
  return v;
}

bool lookups_run_no_code(PyObject* dict) {
  if (knows_kinds() && kind_of(dict) != 0) return true;  // strings alone
  constexpr Py_ssize_t kFew = 64;                        // more keys than that are not worth the look
  if (PyDict_GET_SIZE(dict) > kFew) return false;
  PyObject *key, *value;
  for (Py_ssize_t pos = 0; PyDict_Next(dict, &pos, &key, &value);)
    if (!compares_natively(key)) return false;
  return true;
}

bool defaultdict_keeps_stored() {
  static const bool keeps = [] {
    Ref trial = Ref::steal(PyObject_CallNoArgs(imported("collections", "defaultdict")));
    Ref update = Ref::steal(PyObject_GetAttrString(trial.get(), "update"));
    // Stores 1 under "a", and gives None.
    Ref stored = Ref::steal(Py_BuildValue("{s:i}", "a", 1));
    Ref factory =
        Ref::steal(PyObject_CallFunctionObjArgs(imported("functools", "partial"), update.get(), stored.get(), nullptr));
    Ref key = Ref::steal(PyUnicode_FromString("a"));
    PyObject_SetAttrString(trial.get(), "default_factory", factory.get());
    return PyLong_Check(Ref::steal(PyObject_GetItem(trial.get(), key.get())).get());
  }();
  return keeps;
}

}  // namespace braze::capture::cpython
