// The nests of a program to machine code, each by the target of the device that it runs on.
#pragma once
#include "codegen/codegen.h"

namespace braze::driver {

// In the order of the program's items. Throws Unsupported for a device without target.
codegen::Compiled compile_nests(const loop::Program& program, const Options& options);
// The target that is to show a nest's code; where its GPU is not here, that of a common architecture.
codegen::Target& target_for_text(const loop::Program& program, const loop::Nest& nest, const Options& options);

}  // namespace braze::driver
