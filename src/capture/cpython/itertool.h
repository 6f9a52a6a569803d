// The iterators of itertools that go on from what a few fields hold: what an iterator holds, looked at without
// advancing it, new ones, and giving one another state. The classes that count through combinations, groupby and tee
// are not among them.
#pragma once
#include <Python.h>

#include <cstddef>
#include <vector>

namespace braze::capture::cpython {

enum class Itertool : uint8_t {
  Accumulate,
  Chain,
  Compress,
  Count,
  Cycle,
  DropWhile,
  FilterFalse,
  Islice,
  Pairwise,
  Repeat,
  StarMap,
  TakeWhile,
  ZipLongest,
  None
};

// What a field holds. Count has two fields, the next number and the step, whatever its structure makes of them.
enum class ItertoolField : uint8_t {
  Object,    // nullptr at the end only
  Empty,     // an object; nullptr at first
  Optional,  // an object; nullptr for None
  Number,    // of the iterator's own: where it is, how far it goes
  Objects    // the rest: any number of objects, nullptr for each that ended
};

struct ItertoolRow {
  const char* name;  // of the class in itertools
  std::vector<ItertoolField> fields;
};

const ItertoolRow& itertool_row(Itertool tool);
// The kind of a field, among them those of the rest.
ItertoolField itertool_field(Itertool tool, size_t index);
// None: no class of this table.
Itertool itertool_of(PyTypeObject* type);
PyTypeObject* itertool_type(Itertool tool);

// A new reference: the fields in the order of the row, empty_slot() for nullptr; a count() whose step is 1 tells of its
// number alone. Runs no code.
PyObject* itertool_content(PyObject* iterator);

// A callable (borrowed) of an iterator and its fields: it becomes what itertool_content() would tell of with these.
PyObject* itertool_set();
// A callable (borrowed) of a class and the fields of a new iterator.
PyObject* itertool_made();

}  // namespace braze::capture::cpython
