// In-place operators on meta tensors while recording.
//
// Before it rewrites an in-place operator, functionalisation tries it on meta tensors, for the errors that only the
// in-place form has. Nobody reads the result. PyTorch's Meta kernels of most such operators are Python, whose import
// alone takes half a second.
#pragma once
#include "trace/op_info.h"
#include "trace/recorder.h"

namespace braze::trace {

enum class Trial : uint8_t {
  Succeeds,  // by our own shape rules, and no tensor's metadata changes: the result is the first operand
  Refused,   // eager refuses what PyTorch's Meta kernels let pass: elements are written that share their memory
  Unknown,   // PyTorch's kernel is to be asked
};
// An in-place operator on one tensor of open sizes, which no other argument is to fit: gives it those of this call,
// with no guard, since they only decide about errors. False: another, which is left as it is.
bool with_shown_sizes(const c10::OperatorHandle& op, const OpInfo& info, c10::IValue* args);

// Throws eager's error where the result cannot be cast to the first operand's dtype.
Trial try_in_place(Recorder& recorder, const c10::OperatorHandle& op, const OpInfo& info, const c10::IValue* args);

}  // namespace braze::trace
