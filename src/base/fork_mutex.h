// What a fork finds: locks that nobody holds.
#pragma once
#include <functional>
#include <mutex>

namespace braze {

// A mutex that no other thread holds at the moment of a fork, so that the child, which has none of them, can take it.
// For short work that takes no other such mutex. Lives as long as the process, so it is made with `new`, or is part of
// what is.
class ForkMutex {
 public:
  ForkMutex();
  ForkMutex(const ForkMutex&) = delete;
  ForkMutex& operator=(const ForkMutex&) = delete;
  void lock() { mutex_.lock(); }
  bool try_lock() { return mutex_.try_lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

// Called before each fork of the process, before those mutexes are taken; for ever.
void run_before_fork(std::function<void()> job);

}  // namespace braze
