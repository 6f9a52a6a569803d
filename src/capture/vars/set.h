// set and frozenset. The keys are kept in a real set that goes through the same operations as the program's, so that
// the order of iteration is CPython's own; what is built from it gets the same table (set_table.h).
#pragma once
#include <unordered_map>

#include "capture/eval/variable.h"

namespace braze::capture {

class SetVariable final : public Variable {
 public:
  explicit SetVariable(PyTypeObject* t = &PySet_Type);
  // A pre-existing set, or the result of an operation on keys: `keys` is taken over, `known` names the variables of its
  // keys.
  SetVariable(PyTypeObject* t, Ref keys, std::unordered_map<PyObject*, Variable*> known);
  // Of `elements`, which stand for those of `like`, and iterates as it does.
  SetVariable(Translator&, PyTypeObject* t, PyObject* like, const std::vector<Variable*>& elements);
  PyTypeObject* type() const override { return cls; }
  Variable* call_method(Translator&, const char* name, Args&) override;
  bool contains(Translator&, Variable* item) override;
  Variable* iter(Translator&) override;
  bool has_len(Translator&) override { return true; }
  int64_t len(Translator&) override { return PySet_GET_SIZE(keys_.get()); }
  bool truth(Translator&) override { return PySet_GET_SIZE(keys_.get()) != 0; }
  // Why the order of what follows from hashes is no other process's.
  static constexpr const char* kOrder = "the order of a set";
  // The order is looked at.
  void look_at_order(Translator&) const;
  std::vector<Variable*> items(Translator&) override;
  Ref hash_key(Translator&) override;
  Reg build(Codegen&) override;

  std::vector<Variable*> elements() const;        // in the order of iteration
  PyObject* keys() const { return keys_.get(); }  // borrowed: the set of their hash keys
  bool add(Translator&, Variable* v);             // without noting a change: for building. False: was there
  bool remove(Translator&, Variable* v);
  void merge(Translator&, Variable* iterable);            // as set.update, without noting a change
  SetVariable* copy(Translator&, PyTypeObject* t) const;  // iterates as this one
  // What set_becomes takes (set_table.h): a constant with this one's table, then the elements. Appended to `args`.
  void add_content(Codegen&, std::vector<Reg>& args);
  void change(Translator&);
  bool changed = false;  // since the capture began
  uint64_t changes = 0;
  PyTypeObject* cls;

 private:
  // The hash keys of something iterable, as the class that CPython's algorithm tells apart: set, dict or list.
  Ref operand(Translator&, Variable* v);
  Variable* made(Translator&, PyTypeObject* t, Ref keys);
  void become(Translator&, Ref keys);

  Ref keys_;                                     // a real set
  std::unordered_map<PyObject*, Variable*> of_;  // by address of the key, of all keys ever met
};

}  // namespace braze::capture
