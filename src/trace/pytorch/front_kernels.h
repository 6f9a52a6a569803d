// Operators that PyTorch's own code takes apart in a way that tracing can't follow, taken apart otherwise: by kernels
// on a dispatch key of our own in front of all others, which only a thread that records has on. Calls of other threads,
// and of tensors that are no fakes, never come here.
#pragma once
#include <c10/core/DispatchKeySet.h>

namespace braze::pytorch {

// Of PyTorch's keys that no kernel of its own is for (an experiment outside of it had asked for the name), the one
// before autograd. install_front_kernels() fails where somebody else has registered it.
inline constexpr c10::DispatchKey kFrontKey = c10::DispatchKey::DeferredInit;

// What follows kFrontKey among the keys of a call.
inline c10::DispatchKeySet behind_front(c10::DispatchKeySet keys) {
  return keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kFrontKey);
}

// Once per process, on the thread that registers the kernels of tracing. Throws std::runtime_error before anything is
// registered if the key is taken.
void check_front_key();
void install_front_kernels();

// aten::native_batch_norm in training becomes the operator that says in its schema which running statistics it writes,
// so that functionalisation sees the writes.
void install_batch_norm();

// PyTorch before 2.13 takes aten::matmul apart by the values of its operands' sizes: those of a fake that are symbols
// are taken apart here, to the same products.
void install_symbolic_matmul();

// From PyTorch 2.15 on an integer bound that no element of the tensor's type can reach is no bound; kernels convert it
// to that type, as PyTorch before 2.15 does.
void install_clamp();

// aten::softshrink of 16-bit floats on the CPU takes lambda as this PyTorch's kernel does.
void install_softshrink();

// aten::max_pool1d of what asks for no gradient, on the CPU, refuses integers and gives contiguous results.
void install_max_pool1d();

// What is written to a lazily conjugated or negated fake keeps its bits.
void install_copy();

// F.interpolate, F.grid_sample and F.cosine_similarity take fakes of open sizes.
void install_open_sizes();

// What is written to a fake through aten::expand and aten::unbind arrives as it is; aten::_pad_circular takes fakes of
// open sizes without a batch.
void install_views();

// A tensor with views, or that is one, changes its geometry in place (t_, unsqueeze_, ...), or ends its history
// (detach_), outside of the graph where gradients flow.
void install_geometry();

// In inference mode operators without a schema of views are taken apart as under autograd. Not part of
// install_front_kernels(), since it takes milliseconds: called before fakes meet the mode, or tensors that it made.
void take_composites_apart();

}  // namespace braze::pytorch
