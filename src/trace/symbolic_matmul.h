#pragma once

namespace braze::trace {

// PyTorch before 2.13 takes aten::matmul apart by the values of its operands' sizes. Where those of a fake are symbols,
// it is then taken apart here, to the same products. Other tensors' matmul stays PyTorch's. Once per process.
void install_symbolic_matmul();

}  // namespace braze::trace
