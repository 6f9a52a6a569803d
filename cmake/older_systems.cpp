// Linked into the core of wheels: what libraries of this system have since recently, so that wheels run where they are
// older.
#include <pthread.h>
#include <sys/random.h>

#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <mutex>

// LLVM asks for it; in the C library from 2.36 on.
extern "C" uint32_t arc4random() noexcept {
  uint32_t bits;
  if (getrandom(&bits, sizeof bits, 0) != sizeof bits) std::abort();
  return bits;
}

// In a version of its own of GCC 12's library, from which the C library alone is called.
void std::condition_variable::wait(std::unique_lock<std::mutex>& lock) {
  pthread_cond_wait(native_handle(), lock.mutex()->native_handle());
}
