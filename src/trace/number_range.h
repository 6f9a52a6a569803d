// Numbers that eager's kernels convert to the dtype of the result.
#pragma once
#include <string>
#include <vector>

#include "graph/graph.h"

namespace braze::trace {

// Throws eager's error where such an argument is out of that dtype's range: masked_fill(mask, -1e9) of a float16
// tensor. Throws Unsupported for booleans, and factors of another kind, that sums and differences refuse. PyTorch's
// Meta kernels do not look.
void refuse_out_of_range(const sym::ExprArena& arena, graph::Op op, const std::vector<graph::Arg>& args, DType result);

// What that error says of a number that is above all of the dtype's; empty: of none.
std::string overflow_error(DType dtype);

}  // namespace braze::trace
