// Factories that leave their dtype to the process.
#pragma once
#include <vector>

#include "graph/graph.h"
#include "trace/op_info.h"

namespace braze::trace {

// For a call while the program has set another default dtype, which is not there when the graph runs: a factory's dtype
// becomes that of its result.
void name_dtype(const OpInfo& info, std::vector<graph::Arg>& args, const TensorType& result);

}  // namespace braze::trace
