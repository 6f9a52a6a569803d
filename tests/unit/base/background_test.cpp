// Work beside the program: done once, its failure told to all who wait, over before a fork.
#include "base/background.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <stdexcept>

namespace braze {
namespace {

using std::chrono::milliseconds;

TEST(Background, IsDoneOnceWhenItIsAwaited) {
  std::atomic<int> runs{0};
  auto* work = new Background([&] { ++runs; }, true);
  for (int i = 0; i < 3; ++i) work->wait();
  EXPECT_EQ(runs, 1);
}

TEST(Background, TellsItsFailureToEveryoneWhoWaits) {
  auto* work = new Background([] { throw std::runtime_error("no"); }, true);
  for (int i = 0; i < 2; ++i) EXPECT_THROW(work->wait(), std::runtime_error);
}

TEST(Background, IsOverBeforeTheProcessForks) {
  static std::atomic<int> state{0};
  auto* work = new Background(
      [] {
        state = 1;
        std::this_thread::sleep_for(milliseconds(50));
        state = 2;
      },
      false);
  bool begun = std::thread::hardware_concurrency() > 1;
  pid_t child = fork();
  if (child == 0) {
    work->wait();
    _exit(state == (begun ? 2 : 0) ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace braze
