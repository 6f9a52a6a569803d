// Plans as bytes and back, for what is kept on disk (symbolic/archive.h).
#pragma once
#include "plan/plan.h"
#include "symbolic/archive.h"

namespace braze::plan {

// Throws sym::UnknownSymbol for a plan that mentions other symbols than the archive knows.
void pack(sym::Packer& out, const Plan& plan);
// A plan in the archive's arena. Verified: ids in range, and whatever else plan::verify asks for. Throws InternalError.
Plan unpack(sym::Unpacker& in, std::shared_ptr<sym::ExprArena> arena);

}  // namespace braze::plan
