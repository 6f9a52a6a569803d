// The gradients of tensors: what `.grad` holds, what a backward inside of the captured code accumulates.
#pragma once
#include "capture/vars/tensor.h"

namespace braze::capture {

// Makes the fake's `.grad` what the real tensor has (guarded). Does nothing for tensors made in the capture.
void read_gradient(Translator&, TensorVariable*);
// t.grad
Variable* get_gradient(Translator&, TensorVariable*);
// t.grad = value (None, a tensor, or nullptr: deleted)
void set_gradient(Translator&, TensorVariable*, Variable* value);
// Calls fn, which runs the autograd engine on graphs that the capture has recorded. `accumulates`: into `.grad` of
// leaves. `roots`: what is differentiated, a tensor or a sequence. Unless it `retains` them, what their graphs have
// saved is gone after it (history_is_freed).
// `wanted`: by what, if the call says so, else nullptr.
Variable* run_engine(Translator&, PyObject* fn, const Args& args, Variable* roots, Variable* wanted, bool accumulates,
                     bool retains);
// Whether a tensor that existed before is written here whose hooks, or the gradient that it retains, stay with what it
// was, or go to what it is now: a compiled graph's uses of what it wrote pass by both. Guarded where not.
bool leaves_history_behind(Translator&, TensorVariable*);
// Whether a backward from this fake would come to a part of a graph whose saved tensors a backward has freed.
bool history_is_freed(Translator&, PyObject* fake);

}  // namespace braze::capture
