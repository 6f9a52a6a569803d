// The nests of a program to machine code, each by a code generator for the device that it runs on.
#pragma once
#include "codegen/codegen.h"
#include "graph/targets.h"

namespace braze::driver {

// In the order of the program's items. Throws Unsupported for a device that no code generator writes for, or that is
// not here.
codegen::Compiled compile_nests(const loop::Program& program, const Options& options, const Targets& targets);
// The generator of a nest's code.
codegen::CodeGenerator& generator_for(const loop::Program& program, const loop::Nest& nest, const Options& options,
                                      const Targets& targets);

}  // namespace braze::driver
