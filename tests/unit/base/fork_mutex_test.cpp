// A fork finds locks that nobody holds, whatever other threads do with them.
#include "base/fork_mutex.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

namespace braze {
namespace {

// TSan's own runtime is not to be used in a child of a process with threads.
#if defined(__SANITIZE_THREAD__)
constexpr int kForks = 0;
#else
constexpr int kForks = 100;
#endif

TEST(ForkMutex, IsFreeInTheChild) {
  auto *a = new ForkMutex, *b = new ForkMutex;
  std::atomic<bool> end{false};
  long counted = 0;  // under a
  std::vector<std::thread> threads;
  for (ForkMutex* m : {a, a, b})
    threads.emplace_back([&end, &counted, m, a] {
      while (!end) {
        std::lock_guard lock(*m);
        if (m == a) ++counted;
        std::this_thread::yield();
      }
    });
  for (int i = 0; i < kForks; ++i) {
    pid_t child = fork();
    if (child == 0) {
      alarm(10);
      std::lock_guard la(*a), lb(*b);
      _exit(0);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "fork " << i;
  }
  end = true;
  for (std::thread& t : threads) t.join();
  EXPECT_GT(counted, 0);
}

TEST(ForkMutex, JobsComeBeforeTheLocks) {
  static auto* mutex = new ForkMutex;
  static std::atomic<int> runs{0};
  run_before_fork([] {
    std::lock_guard lock(*mutex);
    ++runs;
  });
  pid_t child = fork();
  if (child == 0) _exit(runs == 1 ? 0 : 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace braze
