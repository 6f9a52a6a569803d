// Nodes of PyTorch's autograd graph that are custom functions in Python (torch.autograd.Function).
#pragma once
#include <torch/csrc/autograd/edge.h>

namespace braze::pytorch {

// `node`: not null. Needs the GIL.
bool is_python_function(const decltype(torch::autograd::Edge::function)& node);

}  // namespace braze::pytorch
