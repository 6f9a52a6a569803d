// braze::flex_attention: attention whose scores go through functions of the program's, one operator of the dispatcher
// with its backward.
//
// (query, key, value, rows, columns, operands, functions, q_block, kv_block, scale) -> (out, lse, max), as
// torch.ops.higher_order.flex_attention gives them: lse and max are in base 2. `functions` is the text of a
// graph::ScoreGraph and `operands` its operands. `rows` are the kv_num_blocks and kv_indices of a BlockMask, then those
// of full blocks, if it has them; `columns` the same of its transpose; both are empty where nothing is left out.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "codegen/triton/attention.h"

namespace braze::launch::flex {

struct Call {
  at::Tensor query, key, value;
  std::vector<at::Tensor> rows, columns, operands;
  std::string functions;
  int64_t q_block = 0, kv_block = 0;
  double scale = 1;
};
struct Result {
  at::Tensor out, lse, max;
};
struct Saved {                              // what the backward needs besides the call
  at::Tensor out, lse, grad_out, grad_lse;  // grad_lse may be undefined
};
struct Gradients {
  at::Tensor query, key, value;
};

// By PyTorch's operators, for some rows of the scores at a time.
Result forward_by_operators(const Call& call);
Gradients backward_by_operators(const Call& call, const Saved& saved);

// By kernels of Triton's. False: not for this call (`why` says it once), or not on this machine.
bool forward_by_kernels(const Call& call, Result& result);
bool backward_by_kernels(const Call& call, const Saved& saved, Gradients& gradients);

// The kernels' texts: forward, then those of the backward, for a GPU of compute capability 9.0. Needs no GPU.
std::vector<codegen::triton::AttentionSource> kernel_sources(const Call& call, bool backward);

}  // namespace braze::launch::flex
