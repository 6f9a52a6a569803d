// The nests that transformers are made of, and how fast a deep one is scheduled.
#include <gtest/gtest.h>

#include <chrono>
#include <set>

#include "loop/analysis.h"
#include "loop/interpret.h"
#include "schedule/memory.h"
#include "schedule/schedule.h"

namespace braze::schedule {
namespace {

using namespace loop;

std::vector<const Nest*> nests(const Program& p) {
  std::vector<const Nest*> v;
  for (const Item& i : p.items)
    if (auto* n = std::get_if<Nest>(&i)) v.push_back(n);
  return v;
}

size_t with_axes(const Nest& n) {
  size_t k = 0;
  for (const Stage& s : n.stages) k += !s.axes.empty();
  return k;
}

std::string softmax(const std::string& rows) {
  return "program\n" + (rows == "s0" ? std::string("symbol s0 size [2, 4096] = input 0 dim 0\n") : std::string()) +
         "buffer %0 \"x\" f32 cpu input 0 sizes [" + rows + ", 64] strides [64, 1]\n" +
         "buffer %1 \"m\" f32 cpu temp sizes [" + rows + "] strides [1]\n" + "buffer %2 \"e\" f32 cpu temp sizes [" +
         rows + ", 64] strides [64, 1]\n" + "buffer %3 \"s\" f32 cpu temp sizes [" + rows + "] strides [1]\n" +
         "buffer %4 \"y\" f32 cpu output sizes [" + rows + ", 64] strides [64, 1]\n" +
         "nest \"max\" outer [a0: " + rows + R"(] {
  stage [a1: 64] {
    v0 = load f32 %0[64*a0 + a1]
    v1 = reduce f32 max v0
  }
  stage [] {
    store %1[a0] = v1
  }
}
nest "exp" outer [b0: )" +
         rows + R"(, b1: 64] {
  stage [] {
    v0 = load f32 %0[64*b0 + b1]
    v1 = load f32 %1[b0]
    v2 = sub f32 v0, v1
    v3 = exp f32 v2
    store %2[64*b0 + b1] = v3
  }
}
nest "sum" outer [c0: )" +
         rows + R"(] {
  stage [c1: 64] {
    v0 = load f32 %2[64*c0 + c1]
    v1 = reduce f32 sum v0
  }
  stage [] {
    store %3[c0] = v1
  }
}
nest "div" outer [d0: )" +
         rows + R"(, d1: 64] {
  stage [] {
    v0 = load f32 %2[64*d0 + d1]
    v1 = load f32 %3[d0]
    v2 = div f32 v0, v1
    store %4[64*d0 + d1] = v2
  }
}
output view %4 f32 sizes [)" +
         rows + ", 64] strides [64, 1] offset 0\n";
}

void expect_softmax(const std::string& rows) {
  Program p = schedule(parse(softmax(rows)), {}, {});
  verify(p);
  auto n = nests(p);
  ASSERT_EQ(n.size(), 1u) << print(p);
  EXPECT_EQ(with_axes(*n[0]), 3u) << print(p);
  EXPECT_EQ(n[0]->mapping.vector, Mapping::Vector::Inner);
  EXPECT_EQ(p.buffers[BufferId(2)].kind, BufferKind::Local) << print(p);
  // Only x is read and y written; the row's exponentials stay in scratch.
  std::set<uint32_t> outside;
  for (const Access& a : accesses(*n[0]))
    if (p.buffers[a.buffer].kind != BufferKind::Local) outside.insert(a.buffer.index);
  EXPECT_EQ(outside, (std::set<uint32_t>{0, 4})) << print(p);
  EXPECT_TRUE(p.arena->is_const(plan_memory(p).arena_bytes, 0));
}

TEST(ScheduleModels, SoftmaxIsOneKernel) { expect_softmax("32"); }
TEST(ScheduleModels, SoftmaxWithSymbolicRows) { expect_softmax("s0"); }

// Along the first dimension the columns are the vector; a scratch row could hold only one of them.
TEST(ScheduleModels, ColumnSoftmaxKeepsItsTemp) {
  std::string text = softmax("32");
  for (const char* v : {"a", "b", "c", "d"}) {
    std::string from = "64*" + std::string(v) + "0 + " + v + "1", to = "32*" + std::string(v) + "1 + " + v + "0";
    for (size_t at; (at = text.find(from)) != std::string::npos;) text.replace(at, from.size(), to);
  }
  for (size_t at; (at = text.find("strides [64, 1]")) != std::string::npos;) text.replace(at, 15, "strides [1, 32]");
  Program p = schedule(parse(text), {}, {});
  verify(p);
  for (const Nest* n : nests(p)) EXPECT_NE(n->mapping.vector, Mapping::Vector::Inner) << print(p);
  for (const Buffer& b : p.buffers) EXPECT_NE(b.kind, BufferKind::Local) << print(p);
}

// A stack of layers: bias and gelu around one matrix product, residual and layer norm around another.
std::string encoder(int layers) {
  std::string buffers, items;
  int next = 0, input = 0;
  auto buffer = [&](const char* kind, const std::string& sizes, const std::string& strides) {
    bool in = std::string(kind) == "input";
    buffers += "buffer %" + std::to_string(next) + " \"b\" f32 cpu " + kind +
               (in ? " " + std::to_string(input++) : "") + " sizes [" + sizes + "] strides [" + strides + "]\n";
    return "%" + std::to_string(next++);
  };
  auto rows = [&](const char* kind) { return buffer(kind, "4, 128, 768", "98304, 768, 1"); };
  auto column = [&](const char* kind) { return buffer(kind, "4, 128, 1", "128, 1, 1"); };
  auto vec = [&](const char* kind, int n) { return buffer(kind, std::to_string(n), "1"); };
  int var = 0;
  auto nest = [&](const std::string& name, int last, const std::string& body) {
    std::string k = std::to_string(var++);
    std::string b = body;
    auto put = [&](const std::string& from, const std::string& to) {
      for (size_t at; (at = b.find(from)) != std::string::npos;) b.replace(at, from.size(), to);
    };
    put("ROW", "128*x" + k + " + y" + k);
    put("ALL", std::to_string(128 * last) + "*x" + k + " + " + std::to_string(last) + "*y" + k + " + z" + k);
    put("COL", "z" + k);
    bool reduce = b.find("reduce") != std::string::npos;
    items += "nest \"" + name + "\" outer [x" + k + ": 4, y" + k + ": 128" + (reduce ? "] {\n stage [z" : ", z") + k +
             ": " + std::to_string(last) + (reduce ? "] {\n" : "] {\n stage [] {\n") + b + " }\n}\n";
  };
  auto mm = [&](const std::string& x, int in, const std::string& y, int out) {
    std::string w = buffer("input", std::to_string(in) + ", " + std::to_string(out), std::to_string(out) + ", 1");
    items += "extern \"aten::mm\" preallocated (view(0), view(1)) lists [-1] locs [] {\n view " + x +
             " f32 sizes [512, " + std::to_string(in) + "] strides [" + std::to_string(in) + ", 1] offset 0\n view " +
             w + " f32 sizes [" + std::to_string(in) + ", " + std::to_string(out) + "] strides [" +
             std::to_string(out) + ", 1] offset 0\n result " + y + " f32 sizes [512, " + std::to_string(out) +
             "] strides [" + std::to_string(out) + ", 1] offset 0\n}\n";
  };
  std::string x = rows("input");
  for (int l = 0; l < layers; ++l) {
    for (int half = 0; half < 2; ++half) {
      std::string h = buffer("temp", "4, 128, 3072", "393216, 3072, 1"),
                  g = buffer("temp", "4, 128, 3072", "393216, 3072, 1");
      std::string b1 = vec("input", 3072), b2 = vec("input", 768), w = vec("input", 768), b3 = vec("input", 768);
      mm(x, 768, h, 3072);
      nest("gelu", 3072,
           "v0 = load f32 " + h + "[ALL]\nv1 = load f32 " + b1 +
               "[COL]\nv2 = add f32 v0, v1\nv3 = const f32 0.70710678\nv4 = mul f32 v2, v3\nv5 = erf f32 v4\nv6 = mul "
               "f32 v2, v5\nv7 = add f32 v2, v6\nstore " +
               g + "[ALL] = v7\n");
      std::string d = rows("temp"), r = rows("temp"), m = column("temp"), q = column("temp"), v = column("temp"),
                  y = rows(l + 1 == layers && half ? "output" : "temp");
      mm(g, 3072, d, 768);
      nest("residual", 768,
           "v0 = load f32 " + d + "[ALL]\nv1 = load f32 " + b2 + "[COL]\nv2 = load f32 " + x +
               "[ALL]\nv3 = add f32 v0, v1\nv4 = add f32 v3, v2\nstore " + r + "[ALL] = v4\n");
      nest("mean", 768,
           "v0 = load f32 " + r + "[ALL]\nv1 = reduce f32 welford_mean v0\n}\nstage [] {\nstore " + m + "[ROW] = v1\n");
      nest("m2", 768,
           "v0 = load f32 " + r + "[ALL]\nv1 = reduce f32 welford_m2 v0\n}\nstage [] {\nstore " + q + "[ROW] = v1\n");
      std::string k = std::to_string(var++);
      items += "nest \"rsqrt\" outer [x" + k + ": 4, y" + k + ": 128] {\nstage [] {\nv0 = load f32 " + q + "[128*x" +
               k + " + y" + k + "]\nv1 = const f32 768\nv2 = div f32 v0, v1\nv3 = rsqrt f32 v2\nstore " + v + "[128*x" +
               k + " + y" + k + "] = v3\n}\n}\n";
      nest("affine", 768,
           "v0 = load f32 " + r + "[ALL]\nv1 = load f32 " + m + "[ROW]\nv2 = sub f32 v0, v1\nv3 = load f32 " + v +
               "[ROW]\nv4 = mul f32 v2, v3\nv5 = load f32 " + w + "[COL]\nv6 = mul f32 v4, v5\nv7 = load f32 " + b3 +
               "[COL]\nv8 = add f32 v6, v7\nstore " + y + "[ALL] = v8\n");
      x = y;
    }
  }
  return "program\n" + buffers + items + "output view " + x +
         " f32 sizes [4, 128, 768] strides [98304, 768, 1] offset 0\n";
}

TEST(ScheduleModels, LayerNormIsOneKernelAndLayersAreEqual) {
  Program p = schedule(parse(encoder(3)), {}, {});
  verify(p);
  auto n = nests(p);
  ASSERT_EQ(n.size(), 12u) << print(p);  // gelu, layer norm: six times
  std::set<std::string> keys;
  for (const Nest* x : n) keys.insert(key(p, *x));
  EXPECT_EQ(keys.size(), 2u) << print(p, *n[0]) << print(p, *n[1]) << print(p, *n[2]) << print(p, *n[3]);
  const Nest& norm = *n[1];
  EXPECT_EQ(with_axes(norm), 2u) << print(p, norm);
  EXPECT_EQ(norm.outer.size(), 1u);
  EXPECT_EQ(norm.mapping.vector, Mapping::Vector::Inner);
  const Nest& gelu = *n[0];
  EXPECT_EQ(gelu.mapping.vector, Mapping::Vector::Outer);
  EXPECT_EQ(gelu.outer.size(), 2u) << print(p, gelu);
  // Two wide and two narrow activations at a time.
  EXPECT_LE(plan_memory(p).peak_bytes, 4 * 128 * (3072 + 2 * 768) * 4);
}

TEST(ScheduleModels, IsFast) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's checks take most of the time";
#endif
  Program p = parse(encoder(12));
  auto begin = std::chrono::steady_clock::now();
  Program q = schedule(p, {}, {});
  auto middle = std::chrono::steady_clock::now();
  plan_memory(q);
  auto end = std::chrono::steady_clock::now();
  auto ms = [](auto d) { return std::chrono::duration<double, std::milli>(d).count(); };
  std::printf("%zu items: schedule %.2f ms, memory plan %.2f ms\n", p.items.size(), ms(middle - begin),
              ms(end - middle));
  EXPECT_LT(ms(end - begin), 100);  // loose: machines are shared
}

}  // namespace
}  // namespace braze::schedule
