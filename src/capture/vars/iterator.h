// Iterators. Each advances by calling next() on what it wraps. Those that were there before are read where they stand,
// and the real ones advanced at the end.
#pragma once
#include "capture/eval/variable.h"

namespace braze::capture {

class DictVariable;
class SeenSizes;
class SequenceVariable;
class SetVariable;

class IteratorVariable : public Variable {
 public:
  IteratorVariable() : Variable(Kind::Iterator) {}
  Variable* iter(Translator&) override { return this; }
  Variable* call_method(Translator&, const char* name, Args&) override;  // __next__, __iter__
  Variable* getattr(Translator&, PyObject* name) override;
  // Of one that was there before: the real one becomes what this is now.
  virtual void emit_advance(Codegen&, Reg self);

 protected:
  void advance(Translator&);  // before each change
  // How far it has come in what it goes through itself, and whether it let go of that. Iterators over others go through
  // nothing.
  struct Place {
    int64_t at = 0;
    bool ended = false;
  };
  virtual Place place() const { return {}; }
  // What it goes through was changed in a way that the real one would notice.
  virtual bool went_wrong(Translator&) { return false; }

 private:
  friend Variable* wrap_iterator(Translator&, SeenSizes*, PyObject*, SourceId);
  Place first_;  // of one that was there before: where it was found
};

// One that was there before, read at where it is, with its guards. nullptr: nothing is known of its class, or it was
// met in too many places.
Variable* wrap_iterator(Translator&, SeenSizes* seen, PyObject* iterator, SourceId source);

// Over a list (live), a tuple, or a snapshot of something else.
class SequenceIterator final : public IteratorVariable {
 public:
  SequenceIterator(Variable* sequence, std::vector<Variable*> snapshot)
      : sequence(sequence), snapshot(std::move(snapshot)) {}
  PyTypeObject* type() const override;
  Variable* next(Translator&) override;
  Reg build(Codegen&) override;
  Place place() const override { return {static_cast<int64_t>(index), done}; }
  Variable* sequence;  // whose iter() this is; for a list its elements are read as they are at each step
  std::vector<Variable*> snapshot;
  size_t index = 0;
  bool done = false;
  uint64_t changes = 0;  // of a deque: as it was at first
};

// Over a dict or a view of it: notices that the dict grew or shrank meanwhile.
class DictIterator final : public IteratorVariable {
 public:
  enum class What : uint8_t { Keys, Values, Items };
  DictIterator(Translator& tr, DictVariable* dict, What what, bool reversed);
  PyTypeObject* type() const override;
  Variable* next(Translator&) override;
  Reg build(Codegen&) override;
  Place place() const override { return {static_cast<int64_t>(index), done}; }
  bool went_wrong(Translator&) override;
  DictVariable* dict;
  What what;
  bool reversed;
  uint64_t structure, clears;     // of the dict, as they were at first
  std::vector<Variable*> keys;    // as they were at first
  std::vector<uint64_t> serials;  // theirs
  uint64_t visited = 0;           // the serial of the last one, once keys were exchanged; 0: as `index` says
  int64_t size;
  size_t index = 0;
  bool done = false;
};

// Over a set: likewise.
class SetIterator final : public IteratorVariable {
 public:
  SetIterator(SetVariable* set, std::vector<Variable*> elements);
  PyTypeObject* type() const override { return &PySetIter_Type; }
  Variable* next(Translator&) override;
  Reg build(Codegen&) override;
  Place place() const override { return {static_cast<int64_t>(index), done}; }
  bool went_wrong(Translator&) override;
  SetVariable* set;
  std::vector<Variable*> elements;
  size_t index = 0;
  bool done = false;
  uint64_t changes;  // of the set, when the elements were last what they are
};

// reversed() of a list (live) or of another sequence whose items are fixed.
class ReversedIterator final : public IteratorVariable {
 public:
  explicit ReversedIterator(SequenceVariable* s);
  PyTypeObject* type() const override;
  Variable* next(Translator&) override;
  Reg build(Codegen&) override;
  Place place() const override { return {-index, done}; }
  SequenceVariable* sequence;
  int64_t index;      // of the next item
  uint64_t changes;   // of a deque: as it was at first
  bool done = false;  // it was asked for an item after the last
};

// An iterator of a class of the standard library that is evaluated as a generator.
class WrappedIterator final : public IteratorVariable {
 public:
  WrappedIterator(PyTypeObject* cls, Variable* inner, Args of) : cls(cls), inner(inner), of(std::move(of)) {}
  PyTypeObject* type() const override { return cls; }
  Variable* next(Translator&) override;
  Reg build(Codegen&) override;  // before its first item: made by its class of the same arguments
  PyTypeObject* cls;
  Variable* inner;
  Args of;
  bool advanced = false;
};

// Over a range: no variable per item in advance.
class RangeIterator final : public IteratorVariable {
 public:
  RangeIterator(int64_t start, int64_t step, int64_t count) : start(start), step(step), count(count) {}
  PyTypeObject* type() const override { return &PyRangeIter_Type; }
  Variable* next(Translator&) override;
  Reg build(Codegen&) override;
  Place place() const override { return {-count, count <= 0}; }
  int64_t start, step, count;
};

class EnumerateIterator final : public IteratorVariable {
 public:
  EnumerateIterator(Variable* inner, int64_t start) : inner(inner), index(start) {}
  PyTypeObject* type() const override { return &PyEnum_Type; }
  Variable* next(Translator&) override;
  Reg build(Codegen&) override;
  Place place() const override { return {index, false}; }
  Variable* inner;
  int64_t index;
};

class ZipIterator final : public IteratorVariable {
 public:
  ZipIterator(std::vector<Variable*> inner, bool strict) : inner(std::move(inner)), strict(strict) {}
  PyTypeObject* type() const override { return &PyZip_Type; }
  Variable* next(Translator&) override;
  Reg build(Codegen&) override;
  std::vector<Variable*> inner;
  bool strict;
};

class MapIterator final : public IteratorVariable {
 public:
  MapIterator(Variable* fn, std::vector<Variable*> inner) : fn(fn), inner(std::move(inner)) {}
  PyTypeObject* type() const override { return &PyMap_Type; }
  Variable* next(Translator&) override;
  Reg build(Codegen&) override;
  Variable* fn;
  std::vector<Variable*> inner;
};

class FilterIterator final : public IteratorVariable {
 public:
  FilterIterator(Variable* fn, Variable* inner) : fn(fn), inner(inner) {}
  PyTypeObject* type() const override { return &PyFilter_Type; }
  Variable* next(Translator&) override;
  Variable* fn;  // None: truth
  Variable* inner;
};

// iter(callable, sentinel), and sequences by __getitem__.
class CallIterator final : public IteratorVariable {
 public:
  CallIterator(Variable* fn, Variable* sentinel) : fn(fn), sentinel(sentinel) {}
  PyTypeObject* type() const override { return &PyCallIter_Type; }
  Variable* next(Translator&) override;
  Variable* fn;  // with sentinel nullptr: an object whose __getitem__ is called with 0, 1, ... until IndexError
  Variable* sentinel;
  int64_t index = 0;
  bool done = false;
};

}  // namespace braze::capture
