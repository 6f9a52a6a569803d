#include "base/background.h"

#include <pthread.h>
#include <signal.h>

#include <cstdlib>
#include <mutex>
#include <system_error>
#include <vector>

#include "base/fork_mutex.h"

namespace braze {
namespace {

struct All {
  ForkMutex mutex;
  std::vector<std::function<void()>> finish;
};
All& all() {
  static auto* a = new All;  // a fork or an exit may come late
  return *a;
}

void finish_all() {
  std::vector<std::function<void()>> finish;
  {
    std::lock_guard lock(all().mutex);
    finish = all().finish;
  }
  for (auto& f : finish) f();
}

}  // namespace

Background::Background(std::function<void()> work, bool needed) : work_(std::move(work)), needed_(needed) {
  if (std::thread::hardware_concurrency() < 2) return;
  sigset_t every, before;
  sigfillset(&every);
  pthread_sigmask(SIG_SETMASK, &every, &before);  // signals are for the program's own threads
  try {
    thread_ = std::thread([this] { run(); });
    begun_ = true;
  } catch (const std::system_error&) {
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!begun_) return;
  static std::once_flag once;
  std::call_once(once, [] {
    run_before_fork(finish_all);
    finish_background_at_exit();
  });
  std::lock_guard lock(all().mutex);
  all().finish.push_back([this] { finish(); });
}

void finish_background_at_exit() { std::atexit(finish_all); }

void Background::run() noexcept {
  try {
    work_();
  } catch (...) {
    error_ = std::current_exception();
  }
}

void Background::finish() noexcept {
  if (done_.load(std::memory_order_acquire)) return;
  std::lock_guard lock(mutex_);
  join();
}

void Background::join() noexcept {
  if (!thread_.joinable()) return;
  thread_.join();
  done_.store(true, std::memory_order_release);
}

void Background::wait() {
  // Once it is done nobody takes the mutex, which a fork might find held.
  if (!done_.load(std::memory_order_acquire)) {
    std::lock_guard lock(mutex_);
    join();
    if (!begun_ && needed_) {
      begun_ = true;
      run();
      done_.store(true, std::memory_order_release);
    }
  }
  if (error_) std::rethrow_exception(error_);
}

}  // namespace braze
