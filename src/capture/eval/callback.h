// Functions of PyTorch that call functions of the user (transforms, autograd.Function, hooks) run for real while capturing, on fake
// tensors; what they call back is evaluated symbolically.
#pragma once
#include <memory>

#include "capture/cpython/ref.h"

namespace braze::capture {

class Translator;
class Variable;

// A Python callable that evaluates `callee` in the capture that `owner` points to. Once that is over (*owner is null) a call of it
// is a graph break. New reference.
PyObject* new_callback(std::shared_ptr<Translator*> owner, Variable* callee);

// Whether a function of PyTorch's keeps one of the user's in its closure, as the results of torch.func.grad(f) and torch.vmap(f) do: what
// that reads is to be guarded, so that it may not run on fakes unseen.
bool wraps_user_code(PyObject* function);

}  // namespace braze::capture
