// set and frozenset, with insertion order for determinism.
#pragma once
#include "capture/variable.h"

namespace braze::capture {

class SetVariable final : public Variable {
 public:
  explicit SetVariable(PyTypeObject* t = &PySet_Type) : Variable(Kind::Set), cls(t), index_(Ref::steal(PyDict_New())) {}
  PyTypeObject* type() const override { return cls; }
  Variable* call_method(Translator&, const char* name, Args&) override;
  bool contains(Translator&, Variable* item) override;
  Variable* iter(Translator&) override;
  bool has_len(Translator&) override { return true; }
  int64_t len(Translator&) override { return static_cast<int64_t>(elements.size()); }
  bool truth(Translator&) override { return !elements.empty(); }
  std::vector<Variable*> items(Translator&) override { return elements; }
  Ref hash_key(Translator&) override;
  Reg build(Codegen&) override;

  bool add(Translator&, Variable* v);     // without noting a change: for building
  bool remove(Translator&, Variable* v);
  void change(Translator&);
  PyTypeObject* cls;
  std::vector<Variable*> elements;

 private:
  Ref index_;                             // hash key -> True
  std::vector<Ref> keys_;
};

}  // namespace braze::capture
