// The structure behind functools.lru_cache is private to _functoolsmodule.c; 3.11 to 3.14 share it, and a trial at the
// first use says whether the one at hand does.
#include "capture/cpython/lru_cache.h"

#include "capture/cpython/ref.h"

namespace braze::capture::cpython {
namespace {

struct Link {
  PyObject_HEAD Link *previous, *next;
  Py_hash_t hash;
  PyObject *key, *result;
};

struct Cache {
  Link root;
  void* wrapper;
  int typed;
  PyObject* entries;
  Py_ssize_t hits;
  PyObject* function;
  Py_ssize_t capacity;  // negative: no bound
  Py_ssize_t misses;
  PyObject* keywords_mark;
};

Cache* of(PyObject* cache) { return reinterpret_cast<Cache*>(cache); }

bool try_it() {
  Ref functools = Ref::steal(PyImport_ImportModule("functools"));
  Ref make = functools ? Ref::steal(PyObject_GetAttrString(functools.get(), "lru_cache")) : Ref();
  for (Py_ssize_t capacity : {3, -1}) {
    Ref decorate =
        Ref::steal(make ? PyObject_CallFunction(make.get(), "O",
                                                capacity < 0 ? Py_None : Ref::steal(PyLong_FromSsize_t(capacity)).get())
                        : nullptr);
    Ref cache =
        Ref::steal(decorate ? PyObject_CallOneArg(decorate.get(), reinterpret_cast<PyObject*>(&PyList_Type)) : nullptr);
    if (!cache || Py_TYPE(cache.get())->tp_basicsize < static_cast<Py_ssize_t>(sizeof(Cache))) return false;
    Cache* c = of(cache.get());
    if (c->typed || c->capacity != capacity || c->hits || c->misses || !c->entries || !PyDict_CheckExact(c->entries) ||
        c->function != reinterpret_cast<PyObject*>(&PyList_Type))
      return false;
    Ref args = Ref::steal(Py_BuildValue("(s)", "ab")),
        result = Ref::steal(PyObject_Call(cache.get(), args.get(), nullptr));
    if (!result || c->misses != 1 || PyDict_GET_SIZE(c->entries) != 1) return false;
    PyObject *key, *value;
    Py_ssize_t pos = 0;
    if (!PyDict_Next(c->entries, &pos, &key, &value) || key != PyTuple_GET_ITEM(args.get(), 0)) return false;
    if (capacity < 0 ? value != result.get() : reinterpret_cast<Link*>(value)->result != result.get()) return false;
  }
  return true;
}

}  // namespace

bool knows_lru_cache() {
  static const bool known = [] {
    bool ok = try_it();
    PyErr_Clear();
    return ok;
  }();
  return known;
}

PyObject* lru_function(PyObject* cache) {
  return knows_lru_cache() ? Py_NewRef(of(cache)->function) : PyObject_GetAttrString(cache, "__wrapped__");
}

void lru_uncount(PyObject* cache) { --of(cache)->hits; }

bool lru_full(PyObject* cache) {
  Cache* c = of(cache);
  return c->capacity >= 0 && PyDict_GET_SIZE(c->entries) >= c->capacity;
}

bool lru_keeps(PyObject* cache) { return of(cache)->capacity != 0; }

PyObject* lru_key(PyObject* cache, PyObject* args, PyObject* kwargs) {
  Cache* c = of(cache);
  Py_ssize_t named = kwargs ? PyDict_GET_SIZE(kwargs) : 0;
  if (!c->typed && !named && PyTuple_GET_SIZE(args) == 1) {
    PyObject* only = PyTuple_GET_ITEM(args, 0);
    if (PyUnicode_CheckExact(only) || PyLong_CheckExact(only)) return Py_NewRef(only);
  }
  Ref list = Ref::steal(PySequence_List(args));
  PyObject *key, *value;
  if (named) {
    PyList_Append(list.get(), c->keywords_mark);
    for (Py_ssize_t pos = 0; PyDict_Next(kwargs, &pos, &key, &value);) {
      PyList_Append(list.get(), key);
      PyList_Append(list.get(), value);
    }
  }
  if (c->typed) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); ++i)
      PyList_Append(list.get(), reinterpret_cast<PyObject*>(Py_TYPE(PyTuple_GET_ITEM(args, i))));
    for (Py_ssize_t pos = 0; named && PyDict_Next(kwargs, &pos, &key, &value);)
      PyList_Append(list.get(), reinterpret_cast<PyObject*>(Py_TYPE(value)));
  }
  Ref made = Ref::steal(PyList_AsTuple(list.get()));
  if (!made || PyObject_Hash(made.get()) == -1) return nullptr;
  return made.release();
}

PyObject* lru_peek(PyObject* cache, PyObject* key) {
  Cache* c = of(cache);
  PyObject* found = PyDict_GetItemWithError(c->entries, key);
  if (!found) PyErr_Clear();
  if (!found || c->capacity < 0) return found;
  return reinterpret_cast<Link*>(found)->result;
}

}  // namespace braze::capture::cpython
