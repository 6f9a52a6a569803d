// Partitions as bytes and back (symbolic/archive.h).
#pragma once
#include "autodiff/partition.h"
#include "graph/archive.h"

namespace braze::autodiff {

void pack(sym::Packer& out, const Partition& parts);
// Of `joint`, whose arena and locations its graphs have. Verified; throws InternalError.
Partition unpack(sym::Unpacker& in, const Joint& joint);

}  // namespace braze::autodiff
