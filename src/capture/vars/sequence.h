// Tuples (with named tuples, torch.Size, results of torch functions) and lists.
#pragma once
#include "capture/eval/variable.h"

namespace braze::capture {

class SequenceVariable : public Variable {
 public:
  using Variable::Variable;
  Variable* getattr(Translator&, PyObject* name) override;
  Variable* getitem(Translator&, Variable* key) override;
  bool contains(Translator&, Variable* item) override;
  Variable* iter(Translator&) override;
  bool has_len(Translator&) override { return true; }
  int64_t len(Translator&) override { return static_cast<int64_t>(elements.size()); }
  bool truth(Translator&) override { return !elements.empty(); }
  std::vector<Variable*> items(Translator&) override { return elements; }
  std::vector<Variable*> elements;  // lazy ones among them

  Variable* shared_method(Translator&, const char* name, Args&);  // index, count, __len__, __getitem__, ...
};

// The value of an int-like key; raises TypeError for others, which says `what` is indexed. nullptr: nothing is, a
// method takes a number.
int64_t sequence_index(Translator&, Variable* key, const char* what);
// The place of an index, which may count from the end; raises IndexError.
size_t checked_index(Translator&, int64_t i, size_t size, const char* message);

class TupleVariable final : public SequenceVariable {
 public:
  explicit TupleVariable(std::vector<Variable*> v, PyTypeObject* t = &PyTuple_Type)
      : SequenceVariable(Kind::Tuple), cls(t) {
    elements = std::move(v);
  }
  PyTypeObject* type() const override { return cls; }
  Variable* getattr(Translator&, PyObject* name) override;
  Variable* call_method(Translator&, const char* name, Args&) override;
  Ref hash_key(Translator&) override;
  Reg build(Codegen&) override;
  PyTypeObject* cls;
  Ref real;  // of one that was there before
};

// Whether objects of this class of tuples are their items and nothing more: without an instance dict, and without
// methods of the user's in place of the tuple's own. Guarded.
bool is_plain_tuple_class(Translator&, PyTypeObject*);
// The item that a field of a named tuple stands for.
Variable* tuple_field(Translator&, PyObject* getter, TupleVariable*);

class ListVariable final : public SequenceVariable {
 public:
  explicit ListVariable(std::vector<Variable*> v, PyTypeObject* t = &PyList_Type)
      : SequenceVariable(Kind::List), cls(t) {
    elements = std::move(v);
  }
  PyTypeObject* type() const override { return cls; }
  Variable* call_method(Translator&, const char* name, Args&) override;
  void setitem(Translator&, Variable* key, Variable* value) override;
  void delitem(Translator&, Variable* key) override;
  Reg build(Codegen&) override;
  void change(Translator&);   // before each change
  void replace(Translator&);  // before a change of items alone, none of which comes or goes
  PyTypeObject* cls;          // list or collections.deque
  Ref real;                   // of one that was there before
  int64_t maxlen = -1;        // of a deque
  uint64_t changes = 0;       // of its structure, which end iterators over a deque
};

}  // namespace braze::capture
