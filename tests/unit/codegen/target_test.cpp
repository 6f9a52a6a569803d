// Code for CPUs that are described: its text can be had everywhere, and it runs where the CPU has its instructions.
#include <gtest/gtest.h>

#include "base/check.h"
#include "base/cpu.h"
#include "codegen/codegen.h"
#include "loop/loop.h"

namespace braze::codegen {
namespace {

const loop::Program& program() {
  static const loop::Program p = loop::parse(R"(program
buffer %0 "x" f32 cpu input 0 sizes [64] strides [1]
buffer %1 "y" f32 cpu output sizes [64] strides [1]
nest "twice" outer [i0: 64] vector outer tile 0 grain 64 locs [] {
  stage [] {
    v0 = load f32 %0[i0]
    v1 = add f32 v0, v0
    store %1[i0] = v1
  }
}
output view %1 f32 sizes [64] strides [1] offset 0
)");
  return p;
}
const loop::Nest& nest() { return std::get<loop::Nest>(program().items[0]); }

TEST(CpuTargets, TextOfEveryArchitecture) {
  auto has = [](const Target& target, const char* text) {
    return cpu_generator(target).assembly(program(), nest()).find(text) != std::string::npos;
  };
  EXPECT_TRUE(has(neon_target(), "fadd\tv"));
  EXPECT_TRUE(has(x86_target(CpuLevel::Avx2), "%ymm"));
  EXPECT_FALSE(has(x86_target(CpuLevel::Avx2), "%zmm"));
  EXPECT_TRUE(has(x86_target(CpuLevel::Avx512), "%zmm"));
  EXPECT_NE(cpu_generator(neon_target()).source(program(), {&nest()}, {}).find("fadd <4 x float>"), std::string::npos);
}

TEST(CpuTargets, CodeOfAnotherCpuIsRefused) {
  Target foreign = kHostArchitecture == Target::Architecture::AArch64 ? x86_target(CpuLevel::Avx2) : neon_target();
  Options options;
  options.disk_cache = false;
  try {
    cpu_generator(foreign).compile(program(), {{&nest()}}, options);
    FAIL() << "it was compiled to be run";
  } catch (const InternalError& e) {
    EXPECT_NE(std::string(e.what()).find("this CPU does not"), std::string::npos) << e.what();
  }
}

TEST(CpuTargets, HaveFingerprintsOfTheirOwn) {
  Target other = x86_target(CpuLevel::Avx2);
  other.cache_bytes *= 2;
  std::vector<std::string> prints;
  for (const Target& t : {x86_target(CpuLevel::Avx2), other, x86_target(CpuLevel::Avx512), neon_target()})
    prints.push_back(cpu_generator(t).fingerprint());
  for (size_t i = 0; i < prints.size(); ++i)
    for (size_t k = 0; k < i; ++k) EXPECT_NE(prints[i], prints[k]);
}

TEST(GpuTargets, HaveFingerprintsOfTheirOwn) {
  Target fewer = h200();
  fewer.multiprocessors = 114;
  EXPECT_NE(nvptx_generator(h200()).fingerprint(), nvptx_generator(fewer).fingerprint());
  EXPECT_NE(triton_generator(h200()).fingerprint(), triton_generator(fewer).fingerprint());
}

// How a kernel is spread follows the GPU: one that is small has fewer threads to fill.
TEST(GpuTargets, KernelsFollowTheMultiprocessors) {
  loop::Program p = loop::parse(R"(program
buffer %0 "x" f32 cuda:0 input 0 sizes [262144] strides [1]
buffer %1 "y" f32 cuda:0 output sizes [262144] strides [1]
nest "twice" outer [i0: 262144] vector outer tile 0 grain 64 locs [] {
  stage [] {
    v0 = load f32 %0[i0]
    v1 = add f32 v0, v0
    store %1[i0] = v1
  }
}
output view %1 f32 sizes [262144] strides [1] offset 0
)");
  Target small = h200();
  small.multiprocessors = 16;
  auto text = [&](const Target& t) { return nvptx_generator(t).source(p, {&std::get<loop::Nest>(p.items[0])}, {}); };
  EXPECT_NE(text(h200()).find("vectors of 1,"), std::string::npos) << text(h200()).substr(0, 200);
  EXPECT_NE(text(small).find("vectors of 4,"), std::string::npos) << text(small).substr(0, 200);
}

}  // namespace
}  // namespace braze::codegen
