#include "capture/frames/run_failures.h"

#include <algorithm>

#include "base/log_topics.h"
#include "capture/frames/compilations.h"
#include "capture/frames/report.h"

namespace braze::capture {

void RunFailures::ended(const std::string& name) {
  constexpr uint32_t kTries = 4, kLongest = 16;  // a pause is two to the number of failures
  if (++in_a_row_ >= kTries) pause_ = uint32_t{1} << std::min(in_a_row_, kLongest);
  ++counters().runs_made_again;
  std::string how = take_exception();
  if (!logs(Topic::GraphBreaks)) return;
  std::string pause = pause_ ? ", as are the next " + std::to_string(pause_) : std::string();
  tell(Topic::GraphBreaks, name + ": a run ended in " + how + "; the call is made again uncompiled" + pause);
}

}  // namespace braze::capture
