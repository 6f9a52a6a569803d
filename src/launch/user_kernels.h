// The program's own Triton kernels in compiled graphs.
#pragma once

namespace braze::launch {

// braze::launch_kernel, before the first capture: what writes has its functional form for the whole of one
// (trace/mutable_op.h). No torch header.
void register_launch_kernel();

}  // namespace braze::launch
