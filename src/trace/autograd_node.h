// Nodes of PyTorch's autograd graph: its versions hold them by shared_ptr or by intrusive_ptr.
#pragma once
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

#include <memory>
#include <type_traits>
#include <utility>

namespace braze::trace {

template <class T, class Pointer = decltype(torch::autograd::Edge::function), class... Args>
auto make_node(Args&&... args) {
  if constexpr (std::is_same_v<Pointer, std::shared_ptr<torch::autograd::Node>>) return std::make_shared<T>(std::forward<Args>(args)...);
  else return c10::make_intrusive<T>(std::forward<Args>(args)...);
}

}  // namespace braze::trace
