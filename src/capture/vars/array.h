// An array of NumPy, or a scalar of it that is no constant: its memory is a tensor's. What is done with it is recorded
// as calls of torch._numpy (python/braze/_arrays.py); what that cannot say, or says otherwise than NumPy, is a graph
// break.
#pragma once
#include "capture/vars/tensor.h"

namespace braze::capture {

class ArrayVariable final : public Variable {
 public:
  ArrayVariable(TensorVariable* tensor, PyTypeObject* cls, bool scalar, bool readonly = false)
      : Variable(Kind::Array), tensor(tensor), cls(cls), scalar(scalar), readonly(readonly) {}
  PyTypeObject* type() const override { return cls; }
  std::string describe() const override { return scalar ? "a scalar of NumPy" : "an array of NumPy"; }
  Variable* getattr(Translator&, PyObject* name) override;
  Variable* call_method(Translator&, const char* name, Args&) override;
  Variable* getitem(Translator&, Variable* key) override;
  void setitem(Translator&, Variable* key, Variable* value) override;
  Variable* iter(Translator&) override;
  bool has_len(Translator&) override { return !scalar; }
  int64_t len(Translator&) override;
  bool truth(Translator&) override;
  std::vector<Variable*> items(Translator&) override;
  Reg build(Codegen&) override;

  TensorVariable* const tensor;
  PyTypeObject* const cls;  // numpy.ndarray, or the scalar's
  const bool scalar;
  const bool readonly;  // a view that NumPy refuses to write through
};

// The tensor on the memory of an array that existed before (borrowed, see array_tensor()), as a variable. nullptr: not
// for this one.
ArrayVariable* wrap_array(Translator&, PyObject* array, SourceId source);

bool has_array(Translator&, const Args&);
// Whether a callable is one of NumPy's functions.
bool of_numpy(PyObject* callable);
// A function of NumPy (a real callable) on these arguments; nullptr: it has no counterpart, or they are numbers to a
// ufunc.
Variable* call_numpy(Translator&, PyObject* callable, const Args& args);
// An operator by its name in module operator; at least one operand is an array.
Variable* array_operator(Translator&, const char* name, std::vector<Variable*> operands);
// Tensor.numpy(); nullptr: not for this tensor.
Variable* array_of(Translator&, TensorVariable* tensor, bool force);
// A tensor on the memory of the array, as torch.from_numpy gives it.
TensorVariable* tensor_of(Translator&, ArrayVariable* array);

}  // namespace braze::capture
