// LLVM's tables, a target machine and the pages of its code, made ready while the program is still captured.
#include <pthread.h>
#include <signal.h>

#include <cstdlib>
#include <mutex>
#include <system_error>
#include <thread>

#include "codegen/codegen.h"
#include "codegen/warm_up.h"

namespace braze::codegen {
namespace {

// A small kernel of the usual kind: what its compilation touches, that of a real one does, too.
constexpr const char* kProgram = R"(program
buffer %0 "x" f32 cpu input 0 sizes [8, 64] strides [64, 1]
buffer %1 "y" f32 cpu output sizes [8] strides [1]
nest "warm_up" outer [i0: 8] vector inner tile 0 grain 8 locs [] {
  stage [r0: 64] {
    v0 = load f32 %0[r0 + 64*i0]
    v1 = mul f32 v0, v0
    v2 = reduce f32 sum v1
  }
  stage [] {
    v3 = sqrt f32 v2
    store %1[i0] = v3
  }
}
output view %1 f32 sizes [8] strides [1] offset 0
)";

void run() {
  try {
    loop::Program program = loop::parse(kProgram);
    Options options;
    options.disk_cache = false;
    Compiled made = cpu_target().compile(program, {&std::get<loop::Nest>(program.items[0])}, options);
    cpu_loader().load(made.blobs[0], {made.kernels[0].symbol});
  } catch (...) {
    // Whoever compiles something real meets the same failure and reports it.
  }
}

std::thread& worker() {
  static auto* thread = new std::thread;  // never destroyed: finish() may come late
  return *thread;
}

// Neither a forked child nor the destructors at exit may find the thread at work.
void finish() {
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  if (worker().joinable()) worker().join();
}

void start() {
  if (std::thread::hardware_concurrency() < 2) return;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are for the program's own threads
  try {
    worker() = std::thread(run);
  } catch (const std::system_error&) {
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_atfork(finish, nullptr, nullptr);
  std::atexit(finish);
}

}  // namespace

void warm_up() {
  static std::once_flag once;
  std::call_once(once, start);
}

}  // namespace braze::codegen
