#include "launch/profile.h"

#include <ATen/record_function.h>

namespace braze::launch {

struct ProfilerRange::State {
  at::RecordFunction record{at::RecordScope::FUNCTION};
};

ProfilerRange::ProfilerRange(const std::string& name) {
  if (!is_profiled()) return;
  state_ = std::make_unique<State>();
  if (state_->record.isActive()) state_->record.before(name);
}

ProfilerRange::~ProfilerRange() = default;

bool is_profiled() { return at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION).has_value(); }

}  // namespace braze::launch
