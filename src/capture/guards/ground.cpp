#include "capture/guards/ground.h"

namespace braze::capture {

const char* describe(ProcessState s) {
  static constexpr const char* what[] = {
#define BRAZE_PROCESS_STATE(name, what, how) what,
#include "capture/guards/process_state.def"
#undef BRAZE_PROCESS_STATE
  };
  return what[static_cast<size_t>(s)];
}

}  // namespace braze::capture
