// Python's global lock, given up for a while.
#pragma once
#include <Python.h>

#include <mutex>

namespace braze::launch {

// Gives the lock up while it lives, if this thread holds it and `wanted`. A thread that finds the interpreter at its
// end when it wants the lock back stays here for ever instead of being unwound: destructors on its stack would touch
// Python's objects without the lock.
class GilRelease {
 public:
  explicit GilRelease(bool wanted = true);
  ~GilRelease();
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;

 private:
  PyThreadState* state_;
};

// The mutex, for which others are waited for without the GIL: whoever holds it may need that to go on.
inline std::unique_lock<std::mutex> lock_without_gil(std::mutex& mutex) {
  std::unique_lock<std::mutex> lock(mutex, std::try_to_lock);
  if (lock) return lock;
  GilRelease others_go_on;
  lock.lock();
  return lock;
}

}  // namespace braze::launch
