// PTX to machine code through NVIDIA's nvJitLink, which comes with PyTorch; found by dlopen. The environment variable
// BRAZE_NVJITLINK names another library; where it cannot be loaded the driver assembles.
#pragma once
#include <string>

namespace braze::codegen::nvptx {

// Which library assembles: its name, or "driver" where there is none.
const std::string& assembler_name();
// A cubin for `architecture` ("sm_90"). Without nvJitLink the PTX itself, which the driver assembles when it loads it
// (slower, and not in parallel). Thread-safe. Throws InternalError with nvJitLink's words where it refuses the text.
std::string assemble(const std::string& ptx, const std::string& architecture);

}  // namespace braze::codegen::nvptx
