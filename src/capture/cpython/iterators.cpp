// The structures are private to CPython's sources; 3.11 to 3.14 share those that are read in place. What __reduce__
// tells is asked of the classes where it needs no look-up of names that a program may have replaced.
#include "capture/cpython/iterators.h"

#include "capture/cpython/fast_function.h"
#include "capture/cpython/imported.h"
#include "capture/cpython/itertool.h"
#include "capture/cpython/ref.h"
#include "capture/cpython/set_table.h"

namespace braze::capture::cpython {
namespace {

struct SequenceIterator {
  PyObject_HEAD Py_ssize_t index;
  PyObject* sequence;  // nullptr: at its end
};

struct DictIterator {
  PyObject_HEAD PyObject* dict;  // nullptr: at its end
  Py_ssize_t size;               // of the dict, when the iterator was made
  Py_ssize_t position;
  PyObject* item;
  Py_ssize_t left;
};

struct OrderedDictIterator {
  PyObject_HEAD int part;  // 1: reversed, 2: keys, 4: values
  PyObject* dict;
};

struct SetIterator {
  PyObject_HEAD PyObject* set;  // nullptr: at its end
  Py_ssize_t size;
  Py_ssize_t position;
};

struct EnumerateIterator {
  PyObject_HEAD Py_ssize_t number;
  PyObject* within;
  PyObject* item;
  PyObject* long_number;  // instead of `number`, beyond its range
};

struct ZipIterator {
  PyObject_HEAD Py_ssize_t count;
  PyObject* within;  // a tuple
  PyObject* item;
  int strict;
};

struct Deque {
  PyObject_VAR_HEAD void *left, *right;
  Py_ssize_t left_index, right_index;
  size_t state;  // another one after each change
};

struct DequeIterator {
  PyObject_HEAD void* block;
  Py_ssize_t index;
  PyObject* deque;
  size_t state;     // of the deque, when the iterator was made
  Py_ssize_t left;  // items to come
};

template <class T>
T* as(PyObject* o) {
  return reinterpret_cast<T*>(o);
}

// By trial: classes that have no name in the API.
PyTypeObject* type_of_iter(PyObject* container) {
  Ref owned = Ref::steal(container), it = Ref::steal(PyObject_GetIter(container));
  return Py_TYPE(it.get());
}

bool is_text(PyTypeObject* t) {
  static PyTypeObject* const ascii = type_of_iter(PyUnicode_FromString("a"));
  static PyTypeObject* const text = type_of_iter(PyUnicode_FromString("\xc3\xa9"));
  static PyTypeObject* const bytes = type_of_iter(PyBytes_FromString("a"));
  return t == ascii || t == text || t == bytes;
}

// The entries of a dict before a place of its table.
Py_ssize_t behind(const DictIterator* it, bool reversed) {
  PyObject *key, *value;
  Py_ssize_t place = 0, n = 0;
  if (reversed) return it->size - it->left;
  while (PyDict_Next(it->dict, &place, &key, &value) && place <= it->position) ++n;
  return n;
}

PyObject* of_dict(PyObject* o, PyTypeObject* t) {
  auto* it = as<DictIterator>(o);
  if (!it->dict) return PyTuple_New(0);
  if (it->size != PyDict_GET_SIZE(it->dict)) return nullptr;
  int part = dict_part(t);
  const Py_ssize_t passed = behind(it, (part & kReversed) != 0);
  // Keys were exchanged: the iterator is going to find that out.
  if (passed + it->left != it->size) return nullptr;
  return Py_BuildValue("(Oni)", it->dict, passed, part);
}

PyObject* reduced(PyObject* o) { return PyObject_CallMethod(o, "__reduce__", nullptr); }

PyObject* of_ordered_dict(PyObject* o) {
  auto* it = as<OrderedDictIterator>(o);
  if (!it->dict) return PyTuple_New(0);
  Ref r = Ref::steal(reduced(o));  // fails where the dict was changed
  PyObject* rest = r && PyTuple_GET_SIZE(r.get()) == 2 ? PyTuple_GET_ITEM(PyTuple_GET_ITEM(r.get(), 1), 0) : nullptr;
  if (!rest || !PyList_CheckExact(rest)) return nullptr;
  int keys_and_values = it->part & 6;
  return Py_BuildValue("(Oni)", it->dict, PyDict_GET_SIZE(it->dict) - PyList_GET_SIZE(rest),
                       (keys_and_values == 6   ? kItems
                        : keys_and_values == 4 ? kValues
                                               : kKeys) |
                           (it->part & 1 ? kReversed : 0));
}

PyObject* of_set(PyObject* o) {
  auto* it = as<SetIterator>(o);
  if (!it->set) return PyTuple_New(0);
  if (it->size != PySet_GET_SIZE(it->set)) return nullptr;
  Py_ssize_t place = 0, n = 0;
  while (next_element(it->set, place) && place <= it->position) ++n;
  return Py_BuildValue("(On)", it->set, n);
}

PyObject* of_deque(PyObject* o) {
  auto* it = as<DequeIterator>(o);
  if (it->state != as<Deque>(it->deque)->state) return nullptr;
  return Py_BuildValue("(On)", it->deque, Py_SIZE(it->deque) - it->left);
}

PyObject* of_range(PyObject* o) {
  Ref r = Ref::steal(reduced(o));
  if (!r) return nullptr;
  PyObject* range = PyTuple_GET_ITEM(PyTuple_GET_ITEM(r.get(), 1), 0);
  PyObject* index = PyTuple_GET_SIZE(r.get()) > 2 ? PyTuple_GET_ITEM(r.get(), 2) : Py_None;
  if (index == Py_None) return PyTuple_Pack(1, range);
  Ref rest = Ref::steal(PySlice_New(index, nullptr, nullptr));
  rest = Ref::steal(PyObject_GetItem(range, rest.get()));
  return rest ? PyTuple_Pack(1, rest.get()) : nullptr;
}

PyObject* of_zip(PyObject* o) {
  auto* it = as<ZipIterator>(o);
  Ref strict = Ref::steal(PyTuple_Pack(1, it->strict ? Py_True : Py_False));
  return strict ? PySequence_Concat(strict.get(), it->within) : nullptr;
}

PyObject* of_call(PyObject* o) {
  Ref r = Ref::steal(reduced(o));
  if (!r || PyTuple_GET_SIZE(r.get()) > 2) return nullptr;  // map(strict=True), which ends otherwise
  return Py_NewRef(PyTuple_GET_ITEM(r.get(), 1));
}

// Of classes that give references and nothing else.
bool skip(PyObject* it, Py_ssize_t n) {
  for (; n > 0; --n) {
    Ref item = Ref::steal(Py_TYPE(it)->tp_iternext(it));
    if (!item) return PyErr_Occurred() == nullptr;
  }
  return true;
}

PyObject* advance(PyObject*, PyObject* const* args, Py_ssize_t) {
  PyObject* it = args[0];
  Py_ssize_t n = PyLong_AsSsize_t(args[1]);
  bool ended = args[2] == Py_True;
  switch (iterator_family(Py_TYPE(it))) {
    case IteratorFamily::Sequence: {
      auto* s = as<SequenceIterator>(it);
      bool back = Py_TYPE(it) == &PyListRevIter_Type || Py_TYPE(it) == &PyReversed_Type;
      // Those of lists have come to their end in 3.13 by the index, before by the sequence.
      s->index = ended && (back || Py_TYPE(it) == &PyListIter_Type) ? -1 : s->index + (back ? -n : n);
      if (ended) Py_CLEAR(s->sequence);
      break;
    }
    case IteratorFamily::Enumerate: as<EnumerateIterator>(it)->number += n; break;
    case IteratorFamily::Range:
    case IteratorFamily::Dict:
    case IteratorFamily::Set:
    case IteratorFamily::Deque:
      if (!skip(it, n + ended)) return nullptr;
      break;
    default:
      PyErr_SetString(PyExc_SystemError, "braze: an iterator of a class that cannot be advanced");
      return nullptr;
  }
  Py_RETURN_NONE;
}

}  // namespace

bool is_iterator_class(PyTypeObject* t) {
  PyObject instance{};
  Py_SET_TYPE(&instance, t);
  return PyIter_Check(&instance);  // which looks at the class alone
}

int dict_part(PyTypeObject* t) {
  if (t == &PyDictRevIterKey_Type || t == &PyDictRevIterValue_Type || t == &PyDictRevIterItem_Type)
    return kReversed | (t == &PyDictRevIterKey_Type ? kKeys : t == &PyDictRevIterValue_Type ? kValues : kItems);
  return t == &PyDictIterValue_Type ? kValues : t == &PyDictIterItem_Type ? kItems : kKeys;
}

PyTypeObject* deque_iterator_type() {
  static PyObject* const type = imported("_collections", "_deque_iterator");
  return reinterpret_cast<PyTypeObject*>(type);
}

PyTypeObject* deque_reverse_iterator_type() {
  static PyObject* const type = imported("_collections", "_deque_reverse_iterator");
  return reinterpret_cast<PyTypeObject*>(type);
}

IteratorFamily iterator_family(PyTypeObject* t) {
  if (t == &PyListIter_Type || t == &PyTupleIter_Type || t == &PyListRevIter_Type || t == &PyReversed_Type ||
      is_text(t))
    return IteratorFamily::Sequence;
  if (t == &PyRangeIter_Type) return IteratorFamily::Range;
  for (PyTypeObject* d : {&PyDictIterKey_Type, &PyDictIterValue_Type, &PyDictIterItem_Type, &PyDictRevIterKey_Type,
                          &PyDictRevIterValue_Type, &PyDictRevIterItem_Type, &PyODictIter_Type})
    if (t == d) return IteratorFamily::Dict;
  if (t == &PySetIter_Type) return IteratorFamily::Set;
  if (t == &PyEnum_Type) return IteratorFamily::Enumerate;
  if (t == &PyZip_Type) return IteratorFamily::Zip;
  if (t == &PyMap_Type || t == &PyFilter_Type) return IteratorFamily::Call;
  if (t == deque_iterator_type()) return IteratorFamily::Deque;
  if (itertool_of(t) != Itertool::None) return IteratorFamily::Itertool;
  return IteratorFamily::None;
}

PyObject* iterator_content(PyObject* o) {
  PyObject* content = nullptr;
  PyTypeObject* t = Py_TYPE(o);
  switch (iterator_family(t)) {
    case IteratorFamily::None: return nullptr;
    case IteratorFamily::Sequence: {
      auto* it = as<SequenceIterator>(o);
      content = it->sequence ? Py_BuildValue("(On)", it->sequence, it->index) : PyTuple_New(0);
      break;
    }
    case IteratorFamily::Range: content = of_range(o); break;
    case IteratorFamily::Dict: content = t == &PyODictIter_Type ? of_ordered_dict(o) : of_dict(o, t); break;
    case IteratorFamily::Set: content = of_set(o); break;
    case IteratorFamily::Enumerate: {
      auto* it = as<EnumerateIterator>(o);
      content = it->long_number ? nullptr : Py_BuildValue("(On)", it->within, it->number);
      break;
    }
    case IteratorFamily::Zip: content = of_zip(o); break;
    case IteratorFamily::Call: content = of_call(o); break;
    case IteratorFamily::Deque: content = of_deque(o); break;
    case IteratorFamily::Itertool: content = itertool_content(o); break;
  }
  if (!content) PyErr_Clear();
  return content;
}

PyObject* iterator_advance() {
  static PyObject* const function = fast_function("advance", advance);
  return function;
}

}  // namespace braze::capture::cpython
