// Preparations that run beside the program: each begins on a thread of its own, and whoever needs its result waits for
// it.
#pragma once
#include <atomic>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace braze {

// Awaited also before the process forks and before it ends: neither a child nor the destructors at exit find it at
// work. Lives as long as the process, so it is made with `new`. The work must not need what a waiting thread may hold
// (Python's GIL).
class Background {
 public:
  // Begins at once where the machine has a second core and a thread can be had; else, if `needed`, when it is first
  // awaited.
  explicit Background(std::function<void()> work, bool needed);
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // Until the work is done. Throws what it threw, every time.
  void wait();

 private:
  void finish() noexcept;
  void join() noexcept;
  void run() noexcept;

  std::function<void()> work_;
  std::mutex mutex_;
  std::thread thread_;
  std::exception_ptr error_;
  bool needed_, begun_ = false;
  std::atomic<bool> done_ = false;
};

// Waits for all of it at exit before what the calling thread has registered until now is destroyed.
void finish_background_at_exit();

}  // namespace braze
