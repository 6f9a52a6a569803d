#include "capture/guards/guard_cost.h"

#include <algorithm>
#include <chrono>

namespace braze::capture {

GuardCost measure(GuardProgram& program, size_t num_guards, PyObject* const* slots) {
  using Clock = std::chrono::steady_clock;
  constexpr int kBatches = 10, kChecks = 20;
  double seconds = 1e9;
  for (int b = 0; b < kBatches; ++b) {
    auto from = Clock::now();
    for (int i = 0; i < kChecks; ++i) {
      GuardValues values;
      program.check(slots, values);
    }
    seconds = std::min(seconds, std::chrono::duration<double>(Clock::now() - from).count() / kChecks);
  }
  // As they are after some calls (followed_argument.h).
  return {num_guards, program.num_watched(), program.num_steps(), seconds};
}

}  // namespace braze::capture
