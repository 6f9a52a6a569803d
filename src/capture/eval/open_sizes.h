// Open sizes on the way out of the capture: PyTorch takes them as they are, everything else gets numbers.
#pragma once
#include <utility>

namespace braze::capture {

// What Translator::to_python makes of open sizes on this thread, wherever in a container these are: their values in
// this call, to which they are then fixed; or, while OpenSizes(true) lives, what PyTorch knows them by.
class OpenSizes {
 public:
  explicit OpenSizes(bool open) : before_(std::exchange(on(), open)) {}
  ~OpenSizes() { on() = before_; }
  OpenSizes(const OpenSizes&) = delete;
  OpenSizes& operator=(const OpenSizes&) = delete;
  static bool& on() {
    thread_local bool open = false;
    return open;
  }

 private:
  bool before_;
};

}  // namespace braze::capture
