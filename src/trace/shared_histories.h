// What a backward from one result frees of another result's history.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

namespace braze::trace {

// [i][j]: whether a node of autograd's graph that keeps tensors leads to both i and j: a backward from one of them that
// frees what it reads leaves none to the other. [i][i]: whether the history of i keeps any. Empty for a single tensor,
// and where there are too many to tell. Needs the GIL.
std::vector<std::vector<bool>> shared_histories(const std::vector<at::Tensor>& tensors);

}  // namespace braze::trace
