#include "codegen/llvm/start.h"

#include <mutex>

#include "base/background.h"
#include "base/fork_mutex.h"

namespace {
using Initialiser = void (*)(int, char**, char**);
}

// Of the linker's script; null where it was linked without. Not hidden: an undefined weak symbol that is has no address
// to compare.
extern "C" {
[[gnu::weak]] extern const Initialiser braze_llvm_start_begin[];
[[gnu::weak]] extern const Initialiser braze_llvm_start_end[];
}

namespace braze::codegen::ir {

void start_llvm() {
  static auto* mutex = new ForkMutex;
  static bool started = false;
  std::lock_guard lock(*mutex);
  if (started) return;
  started = true;
  for (const Initialiser* i = braze_llvm_start_begin; i != braze_llvm_start_end; ++i) (*i)(0, nullptr, nullptr);
  // The objects go as the process ends, the last ones first: work that uses them has to be over before.
  finish_background_at_exit();
}

}  // namespace braze::codegen::ir
