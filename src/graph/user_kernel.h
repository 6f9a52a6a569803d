// The operator that launches a kernel of the program's own.
#pragma once

namespace braze::graph {

constexpr const char kLaunchKernel[] = "braze::launch_kernel";

}  // namespace braze::graph
