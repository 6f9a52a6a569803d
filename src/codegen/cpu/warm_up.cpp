// LLVM's tables, a target machine and the pages of its code, made ready while the program is still captured.
#include "codegen/warm_up.h"

#include <mutex>
#include <string>
#include <vector>

#include "base/background.h"
#include "base/fork_mutex.h"
#include "codegen/codegen.h"
#include "codegen/disk_cache.h"
#include "codegen/distinct_kernels.h"

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
    Compiled made = cpu_generator().compile(program, {{&std::get<loop::Nest>(program.items[0])}}, options);
    cpu_loader().load(made.blobs[0], {made.kernels[0].symbol});
  } catch (...) {
    // Whoever compiles something real meets the same failure and reports it.
  }
}

struct Notes {
  ForkMutex mutex;
  std::vector<std::string> keys;
};
Notes& notes() {
  static auto* n = new Notes;
  return *n;
}

}  // namespace

void warm_up(std::string_view program) {
  if (!program.empty()) {
    std::string key = cpu_generator().fingerprint() + "\nprogram\n" + std::string(program);
    if (DiskCache().find(symbol_of("program", key), key)) return;
    std::lock_guard lock(notes().mutex);
    notes().keys.push_back(std::move(key));
  }
  static auto* work = new Background(run, false);
  (void)work;
}

void note_programs(DiskCache& cache) {
  std::vector<std::string> keys;
  {
    std::lock_guard lock(notes().mutex);
    keys.swap(notes().keys);
  }
  for (const std::string& key : keys) cache.keep(symbol_of("program", key), key, {});
}

}  // namespace braze::codegen
