// The linker for kernels: what runs after it, and objects that it must refuse.
#include <elf.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/check.h"
#include "codegen/codegen.h"
#include "loop/loop.h"

namespace braze::codegen {
namespace {

// A sum with a constant, a call of the C library per element and the parallel loop: addresses inside the object and
// outside.
constexpr const char* kSum = R"(program
buffer %0 "x" f64 cpu input 0 sizes [64, 8] strides [8, 1]
buffer %1 "y" f64 cpu output sizes [64] strides [1]
nest "sum" outer [i0: 64] vector inner tile 0 grain 1 locs [] {
  stage [r0: 8] {
    v0 = load f64 %0[r0 + 8*i0]
    v1 = const f64 2.5
    v2 = mod f64 v0, v1
    v3 = reduce f64 sum v2
  }
  stage [] {
    store %1[i0] = v3
  }
}
output view %1 f64 sizes [64] strides [1] offset 0
)";

Compiled compiled() {
  static const loop::Program program = loop::parse(kSum);
  Options options;
  options.disk_cache = false;
  return cpu_generator().compile(program, {{&std::get<loop::Nest>(program.items[0])}}, options);
}

TEST(Loader, LinksCallsAndConstants) {
  Compiled c = compiled();
  auto kernel =
      reinterpret_cast<void (*)(void* const*, const int64_t*)>(cpu_loader().load(c.blobs[0], {c.kernels[0].symbol})[0]);
  std::vector<double> x(64 * 8), y(64);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i) * 0.75;
  void* pointers[] = {x.data(), y.data()};
  if (c.launches[0].buffers[0].index != 0) std::swap(pointers[0], pointers[1]);
  kernel(pointers, nullptr);
  for (size_t i = 0; i < 64; ++i) {
    double want = 0;
    for (size_t j = 0; j < 8; ++j) want += std::fmod(x[i * 8 + j], 2.5);
    EXPECT_NEAR(y[i], want, 1e-12);
  }
  EXPECT_EQ(reinterpret_cast<void*>(kernel), cpu_loader().load(c.blobs[0], {c.kernels[0].symbol})[0]);
}

TEST(Loader, RefusesWhatIsNoObjectOrHasNoSuchKernel) {
  Compiled c = compiled();
  EXPECT_THROW(cpu_loader().load("", {"nothing"}), InternalError);
  EXPECT_THROW(cpu_loader().load(std::string(4096, 'x'), {"nothing"}), InternalError);
  EXPECT_THROW(cpu_loader().load(c.blobs[0], {"no_such_kernel"}), InternalError);
  for (size_t n = 0; n < c.blobs[0].size(); n += 7)
    EXPECT_THROW(cpu_loader().load(c.blobs[0].substr(0, n), {"cut_" + std::to_string(n)}), InternalError);
}

// Whatever a damaged object says, nothing outside of it is read or written. It may link, and is not run.
TEST(Loader, ReadsAndWritesInsideADamagedObject) {
  Compiled c = compiled();
  const std::string& whole = c.blobs[0];
  Elf64_Ehdr header;
  std::memcpy(&header, whole.data(), sizeof header);
  for (size_t at = 0; at < whole.size(); ++at) {
    bool tables = at < sizeof header || at >= header.e_shoff;
    for (int value : {0x00, 0x7f, 0xff}) {
      if (!tables && value == 0x7f) continue;
      std::string damaged = whole;
      damaged[at] = static_cast<char>(value);
      try {
        cpu_loader().load(damaged, {"damaged_" + std::to_string(at) + "_" + std::to_string(value)});
        ADD_FAILURE() << "there is no such kernel";
      } catch (const InternalError&) {
      }
    }
  }
}

TEST(Loader, RefusesARelocationOfAnotherKind) {
  Compiled c = compiled();
  std::string object = c.blobs[0];
  Elf64_Ehdr header;
  std::memcpy(&header, object.data(), sizeof header);
  size_t changed = 0;
  for (size_t i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    std::memcpy(&section, object.data() + header.e_shoff + i * sizeof section, sizeof section);
    if (section.sh_type != SHT_RELA) continue;
    for (size_t at = section.sh_offset; at < section.sh_offset + section.sh_size; at += sizeof(Elf64_Rela), ++changed) {
      Elf64_Rela r;
      std::memcpy(&r, object.data() + at, sizeof r);
      r.r_info = ELF64_R_INFO(ELF64_R_SYM(r.r_info), R_X86_64_TPOFF32);
      std::memcpy(object.data() + at, &r, sizeof r);
    }
  }
  EXPECT_GT(changed, 0u);
  // Another name than that under which the first test may have linked the kernel.
  std::string symbol = c.kernels[0].symbol, other = symbol;
  other.back() = other.back() == '0' ? '1' : '0';
  for (size_t at = object.find(symbol); at != std::string::npos; at = object.find(symbol, at))
    object.replace(at, symbol.size(), other);
  EXPECT_THROW(cpu_loader().load(object, {other}), InternalError);
}

}  // namespace
}  // namespace braze::codegen
