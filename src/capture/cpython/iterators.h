// What iterators of CPython's own classes hold, looked at without advancing them, and advancing them without what they
// give.
#pragma once
#include <Python.h>

namespace braze::capture::cpython {

// Whether instances have a next item, as the class's slot has it.
bool is_iterator_class(PyTypeObject*);

// The families of classes that are known here, by what a tuple of iterator_content() has.
enum class IteratorFamily : uint8_t {
  None,
  Sequence,  // of list, tuple, str, bytes, and reversed(): the sequence, the index of the next item; nothing when it
             // came to its end
  Range,     // a range of what is left
  Dict,  // of keys, values, items, in either direction: the dict, how many of its keys are behind, DictPart; nothing
         // when it came to its end
  Set,   // the set, how many of its elements are behind; nothing when it came to its end
  Enumerate,  // the iterator within, the next number
  Zip,        // whether it is strict, the iterators within
  Call,       // of map() and filter(): the function, the iterators within
  Deque,      // the deque, how many of its items are behind
  Itertool,   // itertool_content()
};
enum DictPart { kKeys, kValues, kItems, kReversed = 4 };
// Of the iterators of dict; of OrderedDict's only the iterator itself knows.
int dict_part(PyTypeObject*);

IteratorFamily iterator_family(PyTypeObject*);
// Of collections.deque.
PyTypeObject* deque_iterator_type();
PyTypeObject* deque_reverse_iterator_type();
// A new reference. nullptr, without an exception: of no family, or it would raise when it is advanced. Runs no code of
// the program's.
PyObject* iterator_content(PyObject* iterator);
// A callable (borrowed) of an iterator of the families Sequence, Range, Dict, Set and Enumerate, n, and a bool: it
// becomes what it is after it has given n more items, and, if the bool says so, has come to its end. Of an enumerate()
// the iterator within stays.
PyObject* iterator_advance();

}  // namespace braze::capture::cpython
