// A real object that PyTorch made while capturing, and that only the capture knows: the ctx of an autograd.Function,
// the function that a transform returned, the handle of a hook. It is used for real at once; it cannot leave the
// capture.
#pragma once
#include "capture/eval/variable.h"

namespace braze::capture {

class HostVariable final : public Variable {
 public:
  explicit HostVariable(PyObject* o) : Variable(Kind::Host), object(Ref::borrow(o)) {}
  PyTypeObject* type() const override { return Py_TYPE(object.get()); }
  std::string describe() const override;
  Variable* getattr(Translator&, PyObject* name) override;
  void setattr(Translator&, PyObject* name, Variable* value) override;
  Variable* call(Translator&, Args&) override;
  Variable* getitem(Translator&, Variable* key) override;
  Ref hash_key(Translator&) override { return object; }
  Ref object;
  // Values that were put on it and that have no real form while capturing.
  std::vector<std::pair<PyObject*, Variable*>> attributes;
};

}  // namespace braze::capture
