// A weak reference made in the capture.
#pragma once
#include "capture/eval/variable.h"

namespace braze::capture {

class WeakrefVariable final : public Variable {
 public:
  explicit WeakrefVariable(Variable* target) : Variable(Kind::Weakref), target(target) {}
  PyTypeObject* type() const override { return &_PyWeakref_RefType; }
  Variable* call(Translator&, Args&) override;
  Reg build(Codegen&) override;
  Variable* target;
};

}  // namespace braze::capture
