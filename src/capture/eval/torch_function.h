// __torch_function__ of the user's: classes of tensors, other objects, and modes that take over the functions of torch.
//
// PyTorch's own dispatch decides whom to ask, in which order and for what function. While capturing it meets stand-ins: fakes
// of a subclass made for the capture, objects in place of the user's, modes in place of those on the stack. Their
// __torch_function__ evaluates the user's in the capture.
#pragma once
#include "capture/eval/variable.h"

namespace braze::capture {

// How a class answers for torch functions.
enum class TorchFunction : uint8_t {
  None,      // no torch function
  Plain,     // Tensor's own, or the disabled one: PyTorch carries it out itself
  Own,       // the user's
};
// Why tensors of this subclass of Tensor can't be captured; nullptr: they can.
const char* refuse_tensor_class(PyTypeObject* cls);

void register_torch_function_builtins();

}  // namespace braze::capture
