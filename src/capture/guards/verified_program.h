// A second opinion on guards, under BRAZE_VERIFY=1.
#pragma once
#include "capture/guards/guards.h"

namespace braze::capture {

// Checks like `program`, and each time that it says that all guards hold, evaluates every one of them again: from its
// source, step by step, with no watched table, version tag, cache or remembered value. Where the two differ, throws
// InternalError under BRAZE_STRICT=1; else it says so on stderr and takes the guards for broken. The arguments are
// those of GuardProgram::compile.
std::unique_ptr<GuardProgram> verified(std::unique_ptr<GuardProgram> program, std::shared_ptr<const Sources> sources,
                                       const GuardSet& guards, std::vector<SourceId> wanted, uint64_t global_state,
                                       size_t num_locals_plus, SizeGuards sizes);

}  // namespace braze::capture
