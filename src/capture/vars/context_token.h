// The token that contextvars.ContextVar.set() gave in the capture; making it sets the variable.
#pragma once
#include "capture/eval/variable.h"

namespace braze::capture {

class ContextTokenVariable final : public Variable {
 public:
  ContextTokenVariable(PyObject* var, Variable* value, ContextTokenVariable* below)
      : Variable(Kind::ContextToken), var(var), value(value), below(below) {}
  PyTypeObject* type() const override { return &PyContextToken_Type; }
  Reg build(Codegen&) override;

  PyObject* var;  // borrowed: guarded, or a constant of the program
  Variable* value;
  ContextTokenVariable* below;  // whose value was replaced; nullptr: that of before the capture
  bool used = false;            // given to reset()
  bool in_pure_part = false;
};

}  // namespace braze::capture
