// NVIDIA's driver API as far as programs need it: libcuda.so.1, found by dlopen when a GPU is first used. No CUDA
// headers.
//
// Kernels live in the primary contexts of the devices, which PyTorch uses, too.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "base/target.h"

namespace braze::runtime::cuda {

// What the driver says of a GPU; asked once. Throws Unsupported, saying what was looked for, without driver or device.
const Target& target(int device);
// 90 for compute capability 9.0. Throws as `target` does.
int compute_capability(int device);
// Loads a cubin or PTX text and finds a kernel in it; the same image is loaded once per device. The result (a
// CUfunction) stays valid for ever. `shared`: as its launches will ask for. Throws Unsupported where the driver
// refuses, with its words.
void* load(const std::string& image, const std::string& symbol, uint32_t shared, int device);
struct Grid {
  uint32_t blocks, threads;
  uint32_t shared = 0;  // bytes of shared memory besides the kernel's own
  bool early =
      false;  // the kernel waits for what precedes it (griddepcontrol.wait): it may start while that still ends
  bool elsewhere = false;  // the device may not be the current one: its context is made current for the launch
};
// Parameters as cuLaunchKernel takes them. Throws Unsupported with the driver's words.
void launch(void* function, const Grid& grid, void* stream, void** parameters, int device);
// What times depend on besides `target`: the GPU's name and the driver's version.
std::string identity(int device);
// Whether the stream is being recorded for a CUDA Graph: then nothing may be timed or waited for.
bool is_recording(void* stream, int device);
// Milliseconds that what `run` puts on the stream takes there. Waits for it.
double milliseconds(void* stream, int device, const std::function<void()>& run);
// A 32-bit word of host memory that kernels set to 1 where an index was out of range.
void* error_word();
// Whether one did since the last call. Kernels run later than their launch: a program's error may be seen by a later
// one.
bool take_error();

}  // namespace braze::runtime::cuda
