// How the extension's function-local statics are initialised, once, when several threads come to them: in place of the
// C++ library's own functions of the ABI, for the code of this extension alone. Initialisers here may run Python code,
// which gives up the GIL and wants it back; a thread that held the GIL while it waited for them would never let them
// end. And in a forked child nobody goes on with what another thread had begun: it is begun anew.
#include <Python.h>

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "launch/gil.h"

namespace {

// The guard of one static: its first byte is read by compiled code, the rest is ours.
struct Guard {
  std::atomic<uint8_t> done;
  std::atomic<uint32_t> busy;
};
static_assert(sizeof(Guard) == sizeof(long long));

Guard* of(long long* word) { return reinterpret_cast<Guard*>(word); }

// Those that are being initialised, and by whom.
constinit std::mutex g_mutex;
std::vector<std::pair<Guard*, pthread_t>>* g_begun = nullptr;

// Whether this thread is to initialise it. It is busy and known to be so at once for whoever forks.
bool begin(Guard* guard) {
  std::lock_guard lock(g_mutex);
  if (!g_begun) {
    g_begun = new std::vector<std::pair<Guard*, pthread_t>>;
    pthread_atfork([] { g_mutex.lock(); }, [] { g_mutex.unlock(); },
                   [] {
                     std::erase_if(*g_begun, [](const auto& b) {
                       if (pthread_equal(b.second, pthread_self())) return false;
                       b.first->busy.store(0, std::memory_order_relaxed);
                       return true;
                     });
                     g_mutex.unlock();
                   });
  }
  if (guard->done.load(std::memory_order_acquire) || guard->busy.load(std::memory_order_relaxed)) return false;
  g_begun->emplace_back(guard, pthread_self());
  guard->busy.store(1, std::memory_order_relaxed);
  return true;
}

void end(Guard* guard) noexcept {
  std::lock_guard lock(g_mutex);
  std::erase_if(*g_begun, [&](const auto& b) { return b.first == guard; });
  guard->busy.store(0, std::memory_order_release);
  guard->busy.notify_all();
}

}  // namespace

extern "C" {

// 1: the caller is to initialise, and then to release or abort. 0: it was done.
int __cxa_guard_acquire(long long* word) {
  Guard* guard = of(word);
  for (;;) {
    if (guard->done.load(std::memory_order_acquire)) return 0;
    if (begin(guard)) return 1;
    if (guard->done.load(std::memory_order_acquire)) return 0;
    braze::launch::GilRelease others_go_on;
    guard->busy.wait(1, std::memory_order_acquire);
  }
}

void __cxa_guard_release(long long* word) noexcept {
  of(word)->done.store(1, std::memory_order_release);
  end(of(word));
}

void __cxa_guard_abort(long long* word) noexcept { end(of(word)); }
}
