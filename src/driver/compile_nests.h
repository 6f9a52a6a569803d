// The nests of a program to machine code, each by a code generator for the device that it runs on.
#pragma once
#include <unordered_map>

#include "codegen/codegen.h"
#include "graph/targets.h"
#include "schedule/schedule.h"

namespace braze::driver {

// In the order of the program's items. `runs`: which nests may share a launch (schedule/concurrent.h). Throws
// Unsupported for a device that no code generator writes for, or that is not here.
codegen::Compiled compile_nests(const loop::Program& program, const std::vector<std::vector<uint32_t>>& runs,
                                const Options& options, const Targets& targets);
// What is generated, as text.
std::string sources_of(const loop::Program& program, const std::vector<std::vector<uint32_t>>& runs,
                       const Options& options, const Targets& targets);

// What the generators of these targets take.
schedule::Takes taken(const Options& options, const Targets& targets);

// The generators of programs' nests, each asked for once.
class Generators {
 public:
  Generators(const Options& options, const Targets& targets) : options_(options), targets_(targets) {}
  // Throws Unsupported for a device that no code generator writes for.
  codegen::CodeGenerator& of(const loop::Program& program, const loop::Nest& nest);

 private:
  const Options& options_;
  const Targets& targets_;
  std::unordered_map<const Target*, codegen::CodeGenerator*> llvm_, triton_, cpp_;
};

}  // namespace braze::driver
