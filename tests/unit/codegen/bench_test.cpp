// Speed of six typical kernels; off by default:
//   test_codegen --gtest_also_run_disabled_tests --gtest_filter='*Bench*'
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "run_program.h"

namespace braze::codegen::testing {
namespace {

double now() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Bench {
  const char* name;
  std::string text;
  int64_t elements;
};

std::string buffers(std::initializer_list<const char*> list) {
  std::string out = "program\n";
  int i = 0;
  for (const char* b : list) out += "buffer %" + std::to_string(i++) + " " + b + "\n";
  return out;
}

#define M "sizes [4096, 1024] strides [1024, 1]"

std::vector<Bench> benches() {
  std::vector<Bench> out;
  out.push_back({"K1 gelu_tanh",
                 buffers({"\"x\" f32 cpu input 0 " M, "\"y\" f32 cpu input 1 " M,
                          "\"b\" f32 cpu input 2 sizes [1024] strides [1]", "\"o\" f32 cpu output " M}) +
                     R"(nest "k1" outer [i0: 4096, i1: 1024] vector outer tile 0 grain 1 locs [] { stage [] {
      v0 = load f32 %0[i1 + 1024*i0]  v1 = const f32 1.1  v2 = mul f32 v0, v1  v3 = const f32 0.3  v4 = add f32 v2, v3
      v5 = const f32 0  v6 = max f32 v4, v5  v7 = load f32 %1[i1 + 1024*i0]  v8 = mul f32 v6, v7  v9 = load f32 %2[i1]
      v10 = add f32 v8, v9  v11 = mul f32 v10, v10  v12 = mul f32 v11, v10  v13 = const f32 0.044715  v14 = mul f32 v12, v13
      v15 = add f32 v10, v14  v16 = const f32 0.7978845608028654  v17 = mul f32 v15, v16  v18 = tanh f32 v17
      v19 = const f32 1  v20 = add f32 v18, v19  v21 = const f32 0.5  v22 = mul f32 v10, v21  v23 = mul f32 v22, v20
      store %3[i1 + 1024*i0] = v23 } })",
                 4096 * 1024});
  out.push_back({"K2 softmax",
                 buffers({"\"x\" f32 cpu input 0 " M, "\"e\" f32 cpu local sizes [1024] strides [1]",
                          "\"o\" f32 cpu output " M}) +
                     R"(nest "k2" outer [i0: 4096] vector inner tile 0 grain 1 locs [] {
      stage [r0: 1024] { v0 = load f32 %0[r0 + 1024*i0]  v1 = reduce f32 max v0 }
      stage [r1: 1024] { v2 = load f32 %0[r1 + 1024*i0]  v3 = sub f32 v2, v1  v4 = exp f32 v3  store %1[r1] = v4  v5 = reduce f32 sum v4 }
      stage [r2: 1024] { v6 = load f32 %1[r2]  v7 = div f32 v6, v5  store %2[r2 + 1024*i0] = v7 } })",
                 4096 * 1024});
  out.push_back({"K2b softmax twice exp",
                 buffers({"\"x\" f32 cpu input 0 " M, "\"o\" f32 cpu output " M}) +
                     R"(nest "k2" outer [i0: 4096] vector inner tile 0 grain 1 locs [] {
      stage [r0: 1024] { v0 = load f32 %0[r0 + 1024*i0]  v1 = reduce f32 max v0 }
      stage [r1: 1024] { v2 = load f32 %0[r1 + 1024*i0]  v3 = sub f32 v2, v1  v4 = exp f32 v3  v5 = reduce f32 sum v4 }
      stage [r2: 1024] { v6 = load f32 %0[r2 + 1024*i0]  v7 = sub f32 v6, v1  v8 = exp f32 v7  v9 = div f32 v8, v5  store %1[r2 + 1024*i0] = v9 } })",
                 4096 * 1024});
  out.push_back(
      {"K3 layernorm",
       buffers({"\"x\" f32 cpu input 0 sizes [4096, 768] strides [768, 1]",
                "\"w\" f32 cpu input 1 sizes [768] strides [1]", "\"b\" f32 cpu input 2 sizes [768] strides [1]",
                "\"m\" f32 cpu output sizes [4096] strides [1]", "\"r\" f32 cpu output sizes [4096] strides [1]",
                "\"o\" f32 cpu output sizes [4096, 768] strides [768, 1]"}) +
           R"(nest "k3" outer [i0: 4096] vector inner tile 0 grain 1 locs [] {
      stage [r0: 768] { v0 = load f32 %0[r0 + 768*i0]  v1 = reduce f32 sum v0 }
      stage [] { v2 = const f32 768  v3 = div f32 v1, v2 }
      stage [r1: 768] { v4 = load f32 %0[r1 + 768*i0]  v5 = sub f32 v4, v3  v6 = mul f32 v5, v5  v7 = reduce f32 sum v6 }
      stage [] { v8 = div f32 v7, v2  v9 = const f32 1e-5  v10 = add f32 v8, v9  v11 = rsqrt f32 v10  store %3[i0] = v3  store %4[i0] = v11 }
      stage [r2: 768] { v12 = load f32 %0[r2 + 768*i0]  v13 = sub f32 v12, v3  v14 = mul f32 v13, v11  v15 = load f32 %1[r2]  v16 = mul f32 v14, v15
        v17 = load f32 %2[r2]  v18 = add f32 v16, v17  store %5[r2 + 768*i0] = v18 } })",
       4096 * 768});
  out.push_back(
      {"K3b layernorm, welford",
       buffers({"\"x\" f32 cpu input 0 sizes [4096, 768] strides [768, 1]",
                "\"w\" f32 cpu input 1 sizes [768] strides [1]", "\"b\" f32 cpu input 2 sizes [768] strides [1]",
                "\"o\" f32 cpu output sizes [4096, 768] strides [768, 1]"}) +
           R"(nest "k3" outer [i0: 4096] vector inner tile 0 grain 1 locs [] {
      stage [r0: 768] { v0 = load f32 %0[r0 + 768*i0]  v1 = reduce f32 welford_mean v0  v2 = reduce f32 welford_m2 v0 }
      stage [r2: 768] { v12 = load f32 %0[r2 + 768*i0]  v13 = sub f32 v12, v1  v3 = const f32 768  v4 = div f32 v2, v3  v5 = const f32 1e-5 v6 = add f32 v4, v5 v7 = rsqrt f32 v6
        v14 = mul f32 v13, v7  v15 = load f32 %1[r2]  v16 = mul f32 v14, v15
        v17 = load f32 %2[r2]  v18 = add f32 v16, v17  store %3[r2 + 768*i0] = v18 } })",
       4096 * 768});
  out.push_back({"K4 a + b.T",
                 buffers({"\"a\" f32 cpu input 0 sizes [2048, 2048] strides [2048, 1]",
                          "\"b\" f32 cpu input 1 sizes [2048, 2048] strides [2048, 1]",
                          "\"o\" f32 cpu output sizes [2048, 2048] strides [2048, 1]"}) +
                     R"(nest "k4" outer [i0: 2048, i1: 2048] vector outer tile 32 grain 1 locs [] { stage [] {
      v0 = load f32 %0[i1 + 2048*i0]  v1 = load f32 %1[i0 + 2048*i1]  v2 = add f32 v0, v1  store %2[i1 + 2048*i0] = v2 } })",
                 2048 * 2048});
  out.push_back({"K5 bf16 silu*y",
                 buffers({"\"x\" bf16 cpu input 0 " M, "\"y\" bf16 cpu input 1 " M, "\"o\" bf16 cpu output " M}) +
                     R"(nest "k5" outer [i0: 4194304] vector outer tile 0 grain 1 locs [] { stage [] {
      v0 = load bf16 %0[i0]  v1 = cast f32 v0  v2 = sigmoid f32 v1  v3 = mul f32 v1, v2  v4 = load bf16 %1[i0]  v5 = cast f32 v4  v6 = mul f32 v3, v5
      v7 = cast bf16 v6  store %2[i0] = v7 } })",
                 4096 * 1024});
  out.push_back({"K6 column sum",
                 buffers({"\"x\" f32 cpu input 0 " M, "\"o\" f32 cpu output sizes [1024] strides [1]"}) +
                     R"(nest "k6" outer [i0: 1024] vector outer tile 0 grain 1 locs [] {
      stage [r0: 4096] { v0 = load f32 %0[i0 + 1024*r0]  v1 = reduce f32 sum v0 }
      stage [] { store %1[i0] = v1 } })",
                 4096 * 1024});
  return out;
}

TEST(DISABLED_Bench, Kernels) {
  for (const Bench& b : benches()) {
    Program p = loop::parse(b.text);
    loop::verify(p);
    double best = 1e9, compile = 1e9;
    for (int i = 0; i < 5; ++i) {
      Options options;
      options.disk_cache = false;
      double t = now();
      cpu_generator().compile(p, {{&std::get<loop::Nest>(p.items[0])}}, options);
      compile = std::min(compile, now() - t);
    }
    Linked l = link(p);
    std::vector<void*> pointers;
    for (loop::BufferId id : l.compiled.launches[0].buffers) {
      const loop::Buffer& buffer = p.buffers[id];
      size_t bytes = static_cast<size_t>(size_of(buffer.dtype));
      for (auto s : buffer.sizes) bytes *= static_cast<size_t>(*p.arena->as_const(s));
      bytes = (bytes + 1024 + (2 << 20) - 1) >> 21 << 21;
      void* memory = std::aligned_alloc(2 << 20, bytes);
      madvise(memory, bytes, MADV_HUGEPAGE);  // as large tensors get them
      for (size_t i = 0; i < bytes; i += 4)
        std::memcpy(static_cast<char*>(memory) + i,
                    buffer.dtype == DType::BF16 ? "\x99\x3e\x99\x3e" : "\x9a\x99\x99\x3e", 4);
      pointers.push_back(static_cast<char*>(memory) + 64 * pointers.size());
    }
    for (int i = 0; i < 60; ++i) {
      double t = now();
      reinterpret_cast<void (*)(void* const*, const int64_t*)>(l.entry[0])(pointers.data(), nullptr);
      best = std::min(best, now() - t);
    }
    for (size_t i = 0; i < pointers.size(); ++i) std::free(static_cast<char*>(pointers[i]) - 64 * i);
    std::printf("%-24s %7.3f ms  %.3f ns per element   compile %.2f ms, %zu bytes\n", b.name, best,
                best * 1e6 / static_cast<double>(b.elements), compile, l.compiled.blobs[0].size());
  }
}

}  // namespace
}  // namespace braze::codegen::testing
