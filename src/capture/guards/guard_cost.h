// What guards cost, for reports.
#pragma once
#include "capture/guards/guards.h"

namespace braze::capture {

struct GuardCost {
  size_t guards = 0, watched = 0,
         steps = 0;    // watched: words of the table; steps: what is fetched or compared besides, in every check
  double seconds = 0;  // of a check that holds
};

// Checks some hundred times, which must hold at `slots`.
GuardCost measure(GuardProgram& program, size_t num_guards, PyObject* const* slots);

}  // namespace braze::capture
