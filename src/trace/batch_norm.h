#pragma once

namespace braze::trace {

// While a capture records, aten::native_batch_norm in training becomes the operator that says in its schema which
// running statistics it writes, so that functionalisation sees the writes. Other functionalised calls go on as before.
// Once per process.
void install_batch_norm();

}  // namespace braze::trace
