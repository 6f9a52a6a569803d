#include "capture/cpython/set_table.h"

#include <algorithm>

namespace braze::capture {
namespace {

PySetObject* cast(PyObject* set) { return reinterpret_cast<PySetObject*>(set); }
bool active(const setentry& e) { return e.key && e.hash != -1; }  // -1: what a removed element leaves

template <class F>
void for_each_active(PyObject* set, F&& f) {
  for (Py_ssize_t i = 0; i <= cast(set)->mask; ++i)
    if (active(cast(set)->table[i])) f(cast(set)->table[i]);
}

// The table of `like`, dummies included, with `elements` for its keys. `set` is empty and its table the small one.
bool copy_table(PyObject* set, PyObject* like, const std::vector<PyObject*>& elements) {
  PySetObject *to = cast(set), *from = cast(like);
  auto size = static_cast<size_t>(from->mask) + 1;
  setentry* table = size == PySet_MINSIZE ? to->smalltable : PyMem_New(setentry, size);
  if (!table) {
    PyErr_NoMemory();
    return false;
  }
  std::copy_n(from->table, size, table);
  size_t next = 0;
  for (size_t i = 0; i < size; ++i)
    if (active(table[i])) table[i].key = Py_NewRef(elements[next++]);
  to->table = table;
  to->mask = from->mask;
  to->fill = from->fill;
  to->used = from->used;
  to->finger = from->finger;
  return true;
}

}  // namespace

PyObject* next_element(PyObject* set, Py_ssize_t& place) {
  while (place <= cast(set)->mask)
    if (const setentry& e = cast(set)->table[place++]; active(e)) return e.key;
  return nullptr;
}

Ref set_like(PyTypeObject* type, PyObject* like) {
  Ref set = Ref::steal(type == &PyFrozenSet_Type ? PyFrozenSet_New(nullptr) : PySet_New(nullptr));
  std::vector<PyObject*> keys;
  for_each_active(like, [&](const setentry& e) { keys.push_back(e.key); });
  return set && copy_table(set.get(), like, keys) ? set : Ref();
}

bool set_becomes(PyObject* set, PyObject* like, const std::vector<PyObject*>& elements) {
  std::vector<Py_hash_t> hashes;
  for (PyObject* e : elements) {
    hashes.push_back(PyObject_Hash(e));
    if (hashes.back() == -1) return false;
  }
  if (PySet_Check(set) && PySet_Clear(set) < 0) return false;
  size_t next = 0;
  bool same = static_cast<size_t>(PySet_GET_SIZE(like)) == elements.size();
  for_each_active(like, [&](const setentry& e) { same = same && hashes[next++] == e.hash; });
  if (same) return copy_table(set, like, elements);
  for (PyObject* e : elements)
    if (PySet_Add(set, e) < 0) return false;
  return true;
}

}  // namespace braze::capture
