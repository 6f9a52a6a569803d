// Ranges in PyTorch's profiles, with the names that torch.compile gives them.
#pragma once
#include <memory>
#include <string>

#include "runtime/program.h"

namespace braze::launch {

// While it lives, what this thread does is a range of the profile (torch.profiler, or whoever listens to
// at::RecordFunction); a few nanoseconds where nobody listens.
class ProfilerRange {
 public:
  explicit ProfilerRange(const std::string& name);
  ~ProfilerRange();
  ProfilerRange(const ProfilerRange&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The same as a kernel's launch has it.
struct KernelRange : runtime::HostRange {
  explicit KernelRange(const std::string& name) : range(name) {}
  ProfilerRange range;
};

// Whether somebody listens to this thread.
bool is_profiled();

}  // namespace braze::launch
