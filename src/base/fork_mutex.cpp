#include "base/fork_mutex.h"

#include <pthread.h>

#include <vector>

namespace braze {
namespace {

struct Registry {
  std::mutex mutex;
  std::vector<ForkMutex*> locks;
  std::vector<std::function<void()>> jobs;
};
Registry& registry();

void prepare() {
  std::vector<std::function<void()>> jobs;
  {
    std::lock_guard lock(registry().mutex);
    jobs = registry().jobs;
  }
  for (auto& job : jobs) job();  // they may take such mutexes, and make some
  registry().mutex.lock();
  for (ForkMutex* m : registry().locks) m->lock();
}
void release() {
  for (ForkMutex* m : registry().locks) m->unlock();
  registry().mutex.unlock();
}

Registry& registry() {
  static auto* r = [] {
    pthread_atfork(prepare, release, release);
    return new Registry;
  }();
  return *r;
}

}  // namespace

ForkMutex::ForkMutex() {
  std::lock_guard lock(registry().mutex);
  registry().locks.push_back(this);
}

void run_before_fork(std::function<void()> job) {
  std::lock_guard lock(registry().mutex);
  registry().jobs.push_back(std::move(job));
}

}  // namespace braze
