// A head start for the code generator.
#pragma once

namespace braze::codegen {

// To be called when it is known that something will be compiled for the CPU: begins, once and on a thread of its own, what the
// first compilation would have to wait for. The thread is awaited where the process forks or ends.
void warm_up();

}  // namespace braze::codegen
