// The thread's modes that calls of PyTorch's functions run under.
#pragma once
#include <cstdint>

namespace braze::trace {

struct Ambient {
  bool grad = false, autocast_cpu = false, autocast_cuda = false;
  int8_t dtype_cpu = 0, dtype_cuda = 0, default_dtype = 0;  // c10::ScalarType
  friend bool operator==(const Ambient&, const Ambient&) = default;
};

Ambient current_ambient();

// While it lives, the thread's modes are these.
class AmbientScope {
 public:
  explicit AmbientScope(const Ambient& wanted);
  ~AmbientScope();
  AmbientScope(const AmbientScope&) = delete;

 private:
  Ambient before_;
};

}  // namespace braze::trace
