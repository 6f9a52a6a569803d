// Places of inputs that a program writes, written where they are.
//
// The graph has no tensors that change: an index_copy_ into a cache of keys and values is a copy of the cache, stores
// to a few places of that, and the copy of all of it back over the input. Where the input is read by that first copy
// alone, and what is stored does not depend on it, the stores go to the input, and both copies go.
//
// A run that fails later may be made again: the same values are stored to the same places. (Compare write_through.h,
// whose buffers may depend on what they replace.)
#pragma once
#include "loop/loop.h"

namespace braze::schedule {

// Of normalised nests, after coalesce_copies.
void update_inputs(loop::Program& program);

}  // namespace braze::schedule
