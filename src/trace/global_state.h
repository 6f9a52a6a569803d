// State of PyTorch's outside of arguments that decides which operators run. No torch header.
#pragma once
#include <cstdint>

namespace braze::trace {

// Whether a TorchDispatchMode is on: it wants to see every operator that runs.
bool dispatch_mode_active();
// Whether torch.jit.trace records the operators of this thread.
bool recorded_by_jit();
// Whether operators on this thread record no history although grad mode is on, since they are below autograd (as in
// `__torch_dispatch__`).
bool below_autograd();
// Whether they skip functionalisation, which a capture is made of.
bool below_functionalisation();
// While it lives, torch functions on this thread are off: those of classes and objects (1), those of modes as well (2);
// 0: no change.
class WithoutTorchFunctions {
 public:
  explicit WithoutTorchFunctions(int which);
  ~WithoutTorchFunctions();
  WithoutTorchFunctions(const WithoutTorchFunctions&) = delete;

 private:
  int before_ = -1;
};

// One word that changes whenever global state that tracing depends on changes: grad mode, inference mode, autocast
// state and dtypes, default dtype and device, deterministic mode, torch function modes, functorch levels, backend
// switches that choose operators (scaled dot product attention, cuDNN, oneDNN), the current GPU.
uint64_t global_state_key();
// The same at the beginning of a capture: from now on the key holds the current GPU if the process has used CUDA, since
// the capture may find that it matters. Needs the GIL.
uint64_t global_state_of_capture();

// The number of the device that "cuda" means on this thread; -1: PyTorch has no CUDA. From the first call on it is part
// of global_state_key(), if it is not 0.
int current_gpu();

}  // namespace braze::trace
