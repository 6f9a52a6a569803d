// Nests of a program that may run at the same time.
//
// Neighbours on one GPU between which nothing else happens may share a launch if no result of one is used by another
// and none writes memory that another touches, as the memory plan placed it: a buffer that took the place of one that
// was dead by then keeps its nest apart.
#pragma once
#include <vector>

#include "schedule/memory.h"

namespace braze::schedule {

// The program's nests (by their number among nests) cut into runs of neighbours, in order; each nest is in one run, on
// a CPU alone. `apart`: items that are alone, too; empty: none.
std::vector<std::vector<uint32_t>> concurrent_nests(const loop::Program& program, const MemoryPlan& memory,
                                                    const std::vector<bool>& apart = {});

}  // namespace braze::schedule
