// Immutable real objects: operations on them are carried out by CPython itself.
#pragma once
#include "capture/eval/variable.h"
#include "capture/guards/ground.h"

namespace braze::capture {

class TensorVariable;

class LazyVariable final : public Variable {
 public:
  explicit LazyVariable(PyObject* o) : Variable(Kind::Lazy), object(Ref::borrow(o)) {}
  PyTypeObject* type() const override { return Py_TYPE(object.get()); }
  std::string describe() const override;
  Ref object;
  Variable* forced = nullptr;
  // Of a number that was computed from such, or from sizes: by this function of one argument or two (`right` nullptr:
  // one) from these. As long as nobody looks at it, no guard says what its value is: counters count without compiling
  // again.
  PyObject* function = nullptr;
  Variable *left = nullptr, *right = nullptr;
  Reg made = kNoReg;
};

class ConstantVariable final : public Variable {
 public:
  ConstantVariable(PyObject* o, Ground g) : Variable(Kind::Constant), value(Ref::borrow(o)), ground(g) {}
  PyTypeObject* type() const override { return Py_TYPE(value.get()); }
  PyObject* as_constant() const override { return value.get(); }
  std::string describe() const override;
  Variable* getattr(Translator&, PyObject* name) override;
  Variable* call_method(Translator&, const char* name, Args&) override;
  Variable* getitem(Translator&, Variable* key) override;
  bool contains(Translator&, Variable* item) override;
  Variable* iter(Translator&) override;
  bool has_len(Translator&) override;
  int64_t len(Translator&) override;
  bool truth(Translator&) override;
  Ref hash_key(Translator&) override;
  std::vector<Variable*> items(Translator&) override;
  Reg build(Codegen&) override;
  const Ref value;
  const Ground ground;
};

// A slice with a part that is no constant.
class SliceVariable final : public Variable {
 public:
  SliceVariable(Variable* a, Variable* b, Variable* c) : Variable(Kind::Slice), parts{a, b, c} {}
  PyTypeObject* type() const override { return &PySlice_Type; }
  Variable* getattr(Translator&, PyObject* name) override;
  Variable* call_method(Translator&, const char* name, Args&) override;
  Reg build(Codegen&) override;
  Variable* parts[3];
};

// A torch.SymInt, SymFloat or SymBool: arithmetic goes through PyTorch, whose calls for a truth value become guards.
class SymVariable final : public Variable {
 public:
  explicit SymVariable(PyObject* o) : Variable(Kind::Sym), value(Ref::borrow(o)) {}
  PyTypeObject* type() const override;
  Variable* getattr(Translator&, PyObject* name) override;
  bool truth(Translator&) override;
  Ref hash_key(Translator&) override;
  Reg build(Codegen&) override;
  // Fixed to its value in this call.
  Variable* specialise(Translator&);
  Ref value;
};

// A float that only the run knows: the value of a 0-dim float64 tensor on the CPU (vars/tensor_float.h).
class FloatVariable final : public Variable {
 public:
  explicit FloatVariable(TensorVariable* t) : Variable(Kind::Float), tensor(t) {}
  PyTypeObject* type() const override { return &PyFloat_Type; }
  std::string describe() const override { return "a float that is read from a tensor or drawn"; }
  bool truth(Translator&) override;  // v != 0
  Reg build(Codegen&) override;
  TensorVariable* const tensor;
};

inline PyObject* constant_of(Variable* v) {
  return v->kind == Kind::Constant ? static_cast<ConstantVariable*>(v)->value.get() : nullptr;
}
inline bool is_none(Variable* v) { return constant_of(v) == Py_None; }

}  // namespace braze::capture
