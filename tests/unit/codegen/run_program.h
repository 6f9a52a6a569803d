// Compiles every nest of a loop program for the host and runs them in order on host memory.
#pragma once
#include <gtest/gtest.h>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "base/check.h"
#include "base/cpu.h"
#include "codegen/codegen.h"
#include "loop/interpret.h"
#include "loop/loop.h"

namespace braze::codegen::testing {

using loop::HostTensor;
using loop::Program;

// A register that machines without AVX-512 do not have, in the assembly; empty: none.
inline std::string avx512_register(const std::string& assembly) {
  for (size_t at = assembly.find('%'); at != std::string::npos; at = assembly.find('%', at + 1)) {
    size_t end = at + 1;
    while (end < assembly.size() && std::isalnum(static_cast<unsigned char>(assembly[end]))) ++end;
    std::string name = assembly.substr(at + 1, end - at - 1);
    bool mask = name.size() == 2 && name[0] == 'k' && std::isdigit(static_cast<unsigned char>(name[1]));
    bool vector = name.starts_with("xmm") || name.starts_with("ymm");
    if (mask || name.starts_with("zmm") || (vector && std::stoi(name.substr(3)) > 15)) return name;
  }
  return "";
}

struct Linked {
  Compiled compiled;
  std::vector<void*> entry;  // per nest
};

// BRAZE_TEST_CODEGEN=cpp runs every nest of these tests through the C++ compiler.
inline CodeGenerator& generator_under_test() {
  const char* name = std::getenv("BRAZE_TEST_CODEGEN");
  return name && std::string_view(name) == "cpp" ? cpp_generator() : cpu_generator();
}

inline Linked link(const Program& p, CodeGenerator& generator = generator_under_test()) {
  std::vector<const loop::Nest*> nests;
  for (const loop::Item& item : p.items) nests.push_back(&std::get<loop::Nest>(item));
  if (forced_cpu() == CpuLevel::Avx2) {
    for (const loop::Nest* n : nests) EXPECT_EQ(avx512_register(cpu_generator().assembly(p, *n)), "") << n->name;
  }
  Options options;
  options.disk_cache = false;
  Linked l{generator.compile(p, one_by_one(nests), options), {}};
  for (const Launch& launch : l.compiled.launches) {
    const CompiledKernel& kernel = l.compiled.kernels[launch.kernel];
    l.entry.push_back(cpu_loader().load(l.compiled.blobs[kernel.blob], {kernel.symbol})[0]);
  }
  return l;
}

inline sym::Env sizes_from(const Program& p, const std::vector<HostTensor>& inputs) {
  return [&p, &inputs](sym::Expr e) -> int64_t {
    for (const auto& [symbol, source] : p.size_symbols)
      if (symbol == e) return inputs[source.first].sizes[static_cast<size_t>(source.second)];
    throw InternalError("no value for " + p.arena->print(e));
  };
}

// Outputs as packed-by-buffer tensors, like loop::run; inputs are changed only through atomic or in-place stores.
inline std::vector<HostTensor> run_compiled(const Program& p, std::vector<HostTensor>& inputs,
                                            CodeGenerator& generator = generator_under_test()) {
  Linked l = link(p, generator);
  sym::Env env = sizes_from(p, inputs);
  std::vector<std::vector<uint8_t>> memory(p.buffers.size());
  std::vector<void*> base(p.buffers.size());
  auto count = [&](const loop::Buffer& b) {
    int64_t n = 1;
    for (size_t d = 0; d < b.sizes.size(); ++d) {
      int64_t size = p.arena->evaluate(b.sizes[d], env);
      if (size == 0) return int64_t{0};
      n += (size - 1) * p.arena->evaluate(b.strides[d], env);
    }
    return n;
  };
  constexpr size_t kGuard = 256;   // bytes around each buffer that must stay as they are
  constexpr size_t kAligned = 64;  // as what is allocated for a program
  for (size_t i = 0; i < p.buffers.size(); ++i) {
    const loop::Buffer& b = p.buffers[loop::BufferId(i)];
    if (b.kind == loop::BufferKind::Local) continue;
    if (b.kind == loop::BufferKind::Input || b.kind == loop::BufferKind::Constant) {
      base[i] = inputs[b.input].storage.data() + inputs[b.input].offset * size_of(b.dtype);
    } else {
      const auto bytes = static_cast<size_t>(count(b) * size_of(b.dtype));
      memory[i].assign(bytes + 2 * kGuard + kAligned - 1, 0xA5);
      const auto first = reinterpret_cast<uintptr_t>(memory[i].data()) + kGuard;
      base[i] = memory[i].data() + kGuard + (kAligned - first % kAligned) % kAligned;
      std::memset(base[i], 0, bytes);
    }
  }
  for (size_t n = 0; n < l.entry.size(); ++n) {
    std::vector<void*> pointers;
    std::vector<int64_t> sizes;
    for (loop::BufferId b : l.compiled.launches[n].buffers) pointers.push_back(base[b.index]);
    for (sym::Expr s : l.compiled.launches[n].sizes) sizes.push_back(env(s));
    reinterpret_cast<void (*)(void* const*, const int64_t*)>(l.entry[n])(pointers.data(), sizes.data());
  }
  for (size_t i = 0; i < memory.size(); ++i)
    for (size_t k = 0; k < kGuard && !memory[i].empty(); ++k) {
      EXPECT_EQ(memory[i][k], 0xA5) << "written before buffer " << i;
      EXPECT_EQ(memory[i][memory[i].size() - 1 - k], 0xA5) << "written behind buffer " << i;
      if (::testing::Test::HasFailure()) break;
    }
  std::vector<HostTensor> out;
  for (const loop::Output& o : p.outputs) {
    const loop::View& v = o.view;
    HostTensor t;
    t.dtype = v.dtype;
    for (sym::Expr s : v.sizes) t.sizes.push_back(p.arena->evaluate(s, env));
    for (sym::Expr s : v.strides) t.strides.push_back(p.arena->evaluate(s, env));
    t.offset = p.arena->evaluate(v.offset, env);
    const auto* first = static_cast<const uint8_t*>(base[v.buffer.index]);
    t.storage.assign(first, first + count(p.buffers[v.buffer]) * size_of(p.buffers[v.buffer].dtype));
    out.push_back(std::move(t));
  }
  return out;
}

// Every element, by its position in row-major order.
inline std::vector<double> elements(const HostTensor& t) {
  std::vector<double> out;
  std::vector<int64_t> at(t.sizes.size());
  for (int64_t s : t.sizes)
    if (s == 0) return out;
  for (;;) {
    int64_t e = t.offset;
    for (size_t d = 0; d < at.size(); ++d) e += at[d] * t.strides[d];
    out.push_back(loop::get_number(t, e));
    size_t d = at.size();
    while (d-- > 0 && ++at[d] == t.sizes[d]) at[d] = 0;
    if (d == SIZE_MAX) return out;
  }
}

// Values that differ everywhere and are exact in every dtype.
inline void fill(HostTensor& t, int seed) {
  int64_t n = static_cast<int64_t>(t.storage.size()) / size_of(t.dtype);
  for (int64_t i = 0; i < n; ++i) {
    int64_t k = (i * 37 + seed * 11) % 61 - 30;
    double v = t.dtype == DType::Bool ? static_cast<double>(k & 1)
               : t.dtype == DType::U8 ? static_cast<double>(k + 30)
               : is_floating(t.dtype) ? static_cast<double>(k) / 8
                                      : static_cast<double>(k);
    loop::set_number(t, i, v);
  }
}

inline void expect_close(const std::vector<HostTensor>& got, const std::vector<HostTensor>& want, double tolerance,
                         const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    std::vector<double> g = elements(got[i]), w = elements(want[i]);
    ASSERT_EQ(g.size(), w.size());
    for (size_t k = 0; k < g.size(); ++k) {
      if (std::isnan(w[k]) && std::isnan(g[k])) continue;
      if (g[k] == w[k]) continue;
      ASSERT_LE(std::abs(g[k] - w[k]), tolerance * (1 + std::abs(w[k])))
          << what << ": output " << i << " element " << k << ": " << g[k] << ", not " << w[k];
    }
  }
}

// Runs the text compiled and interpreted on the same inputs and compares.
inline void check(const std::string& text, std::vector<HostTensor> inputs, double tolerance = 2e-6,
                  CodeGenerator& generator = generator_under_test()) {
  Program p = loop::parse(text);
  loop::verify(p);
  std::vector<HostTensor> copy = inputs;
  std::vector<HostTensor> got = run_compiled(p, inputs, generator);
  std::vector<HostTensor> want = loop::run(p, copy);
  expect_close(got, want, tolerance, text);
  auto fault = take_fault();
  EXPECT_FALSE(fault) << fault->message();
}

inline std::string str(int64_t n) { return std::to_string(n); }

inline HostTensor filled(DType dtype, std::vector<int64_t> sizes, int seed) {
  HostTensor t = loop::host_tensor(dtype, std::move(sizes));
  fill(t, seed);
  return t;
}

}  // namespace braze::codegen::testing
