// Faults that are found before an input is written where it is (update_inputs.h).
//
// A run that finds a fault in its data is made again uncompiled (capture/frames/execute.cpp), from inputs that are what
// they were: results are only copied over them in the end. What is stored to their own memory can't wait for that, and
// would be stored to wrong places, or would be wrong values. So such a nest commits: it is not run once a fault was
// found, and what can be asked of the data by then is asked by nests of their own before the first one.
#pragma once
#include "loop/loop.h"

namespace braze::schedule {

// Of normalised nests, after update_inputs, before fusion. CPUs only: a fault on a GPU is known when all has run.
void check_updates(loop::Program& program);

}  // namespace braze::schedule
