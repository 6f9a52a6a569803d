// Hooks that the captured code registers on leaves that were there before: registered for real when the entry runs,
// since no backward comes before its end.
#pragma once
#include "capture/vars/object.h"

namespace braze::capture {

class TensorVariable;

// What registering gives: a handle, whose use ends the graph.
class HookHandleVariable final : public ObjectVariable {
 public:
  HookHandleVariable(PyTypeObject* cls, PyObject* method, Variable* tensor, Variable* hook, Variable* before)
      : ObjectVariable(cls), method(method), tensor(tensor), hook(hook), before(before) {}
  Variable* getattr(Translator&, PyObject* name) override;
  Reg build(Codegen&) override;
  PyObject* method;  // of Tensor
  Variable *tensor, *hook;
  Variable* before;  // the handle of the hook that runs before this one; nullptr: none was registered here
};

// t.register_hook(hook) and t.register_post_accumulate_grad_hook(hook). nullptr: not for this tensor.
Variable* hook_on_leaf(Translator& tr, TensorVariable* t, const char* method, Variable* hook);

}  // namespace braze::capture
