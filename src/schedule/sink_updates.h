// Counters and other single elements that a program writes to its inputs, computed last and together.
//
// Where every reader of an input has run and nothing can fail any more, its new value may be written to its memory at
// once (write_through.h) and costs no copy at the end; and the many counters of a program (one for each layer's cache,
// or each parameter's optimizer state) are one kernel.
#pragma once
#include "loop/loop.h"

namespace braze::schedule {

void sink_updates(loop::Program& program);

}  // namespace braze::schedule
