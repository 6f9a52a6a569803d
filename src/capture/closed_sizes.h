// Open sizes on the way to functions that are not PyTorch's.
#pragma once
#include <utility>

namespace braze::capture {

// While one lives on a thread, Translator::to_python gives numbers for open sizes, wherever in a container these are.
class ClosedSizes {
 public:
  ClosedSizes() : before_(std::exchange(on(), true)) {}
  ~ClosedSizes() { on() = before_; }
  ClosedSizes(const ClosedSizes&) = delete;
  ClosedSizes& operator=(const ClosedSizes&) = delete;
  static bool& on() {
    thread_local bool closed = false;
    return closed;
  }

 private:
  bool before_;
};

}  // namespace braze::capture
