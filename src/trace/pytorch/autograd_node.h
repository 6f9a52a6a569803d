// Nodes of PyTorch's autograd graph, which its versions hold by shared_ptr or by intrusive_ptr, and what they keep.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>

namespace braze::pytorch {

template <class T, class Pointer = decltype(torch::autograd::Edge::function), class... Args>
auto make_node(Args&&... args) {
  if constexpr (std::is_same_v<Pointer, std::shared_ptr<torch::autograd::Node>>)
    return std::make_shared<T>(std::forward<Args>(args)...);
  else
    return c10::make_intrusive<T>(std::forward<Args>(args)...);
}

// The same memory and version counter.
inline at::Tensor without_history(const at::Tensor& t) {
  return at::Tensor(
      t.unsafeGetTensorImpl()->shallow_copy_and_detach(t.unsafeGetTensorImpl()->version_counter(), false));
}

// What tensors that count writes together have in common: the address of their counter, in this process.
inline const void* version_counter(const at::Tensor& t) {
  static_assert(sizeof(c10::VariableVersion) == sizeof(void*), "a VariableVersion is a pointer to its counter");
  const void* counter = nullptr;
  std::memcpy(&counter, &t.unsafeGetTensorImpl()->version_counter(), sizeof counter);
  return counter;
}

// How many tensors count writes together with this one, itself and what autograd keeps among them. Not of inference
// tensors, which count none.
inline uint32_t count_with(const at::Tensor& t) {
  auto* counter = static_cast<c10::intrusive_ptr_target*>(const_cast<void*>(version_counter(t)));
  return static_cast<uint32_t>(c10::raw::intrusive_ptr::use_count(counter));
}

}  // namespace braze::pytorch
