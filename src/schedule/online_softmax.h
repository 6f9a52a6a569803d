// The maximum of a row and the sum of the exponentials relative to it, in one read of the row.
//
//     m = max x;  s = sum exp(x - m)     becomes     s = exp_sum x, m = max x     (loop/reduce_kinds.def)
//
// where the row is too long to stay where the threads that share it have it at hand: then the second reduction would
// read all of it from memory again. A shorter one is read once as it is, and needs no scaling of what was summed up.
// The sum may be relative to 0 where m is infinite, as that of logsumexp is.
#pragma once
#include "graph/targets.h"
#include "loop/loop.h"

namespace braze::schedule {

// Of normalised nests, before reductions are split.
void online_softmax(loop::Program& program, const Targets& targets);

}  // namespace braze::schedule
