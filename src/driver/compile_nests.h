// The nests of a program to machine code, each by the target of the device that it runs on.
#pragma once
#include "codegen/codegen.h"

namespace braze::driver {

// In the order of the program's items. Throws Unsupported for a device without target.
codegen::Compiled compile_nests(const loop::Program& program, const Options& options);
// The device's target; where that GPU is not here, the one of a common architecture.
codegen::Target& target_for_text(Device device);

}  // namespace braze::driver
