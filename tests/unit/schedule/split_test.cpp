// Reductions to few results run in parallel.
#include <gtest/gtest.h>

#include <cmath>

#include "loop/analysis.h"
#include "loop/interpret.h"
#include "schedule/schedule.h"

namespace braze::schedule {
namespace {

using namespace loop;

void check(const std::string& text, size_t nests, double expected_points) {
  Program p = parse(text);
  verify(p);
  Program q = schedule(p, {}, {});
  verify(q);
  ASSERT_EQ(q.items.size(), nests) << print(q);
  double points = 1;
  for (const Axis& a : std::get<Nest>(q.items[0]).outer) points *= static_cast<double>(*q.arena->as_const(a.extent));
  EXPECT_EQ(points, expected_points) << print(q);
  std::vector<int64_t> sizes;
  for (Expr e : p.buffers[BufferId(0)].sizes) sizes.push_back(*p.arena->as_const(e));
  std::vector<HostTensor> in{host_tensor(DType::F32, sizes)};
  auto n = static_cast<int64_t>(in[0].storage.size() / 4);
  for (int64_t i = 0; i < n; ++i) set_number(in[0], i, static_cast<double>(i * 7 % 23) / 23);
  auto want = run(p, in), got = run(q, in);
  for (int64_t i = 0; i < static_cast<int64_t>(want[0].storage.size() / 4); ++i) {
    double x = get_number(want[0], i), y = get_number(got[0], i);
    EXPECT_LE(std::fabs(x - y), 1e-4 * std::fabs(x));
  }
}

TEST(SplitReductions, SumOfEverything) {
  check(R"(program
buffer %0 "x" f32 cpu input 0 sizes [256, 512] strides [512, 1]
buffer %1 "y" f32 cpu output sizes [] strides []
nest "mean" outer [] {
  stage [a: 256, b: 512] {
    v0 = load f32 %0[512*a + b]
    v1 = exp f32 v0
    v2 = reduce f32 sum v1
  }
  stage [] {
    v3 = const f32 0.5
    v4 = mul f32 v2, v3
    store %1[0] = v4
  }
}
output view %1 f32 sizes [] strides [] offset 0
)",
        2, 64);
}

TEST(SplitReductions, FewColumns) {
  check(R"(program
buffer %0 "x" f32 cpu input 0 sizes [2048, 32] strides [32, 1]
buffer %1 "y" f32 cpu output sizes [32] strides [1]
nest "sum" outer [b: 32] {
  stage [a: 2048] {
    v0 = load f32 %0[32*a + b]
    v1 = reduce f32 sum v0
  }
  stage [] {
    store %1[b] = v1
  }
}
output view %1 f32 sizes [32] strides [1] offset 0
)",
        2, 64 * 32);
}

TEST(SplitReductions, ManyRowsStayWhole) {
  check(R"(program
buffer %0 "x" f32 cpu input 0 sizes [128, 1024] strides [1024, 1]
buffer %1 "y" f32 cpu output sizes [128] strides [1]
nest "sum" outer [a: 128] {
  stage [b: 1024] {
    v0 = load f32 %0[1024*a + b]
    v1 = reduce f32 sum v0
  }
  stage [] {
    store %1[a] = v1
  }
}
output view %1 f32 sizes [128] strides [1] offset 0
)",
        1, 128);
}

TEST(Hoist, RowOfAnEmbeddingIsFoundOnce) {
  Program p = schedule(parse(R"(program
buffer %0 "ids" i64 cpu input 0 sizes [128] strides [1]
buffer %1 "table" f32 cpu input 1 sizes [1000, 64] strides [64, 1]
buffer %2 "e" f32 cpu temp sizes [128, 64] strides [64, 1]
buffer %3 "y" f32 cpu output sizes [128] strides [1]
buffer %4 "z" f32 cpu output sizes [128, 64] strides [64, 1]
nest "embedding" outer [a: 128, b: 64] {
  stage [] {
    v0 = load i64 %0[a]
    indirect row = v0 bound 1000
    v1 = load f32 %1[64*row + b]
    store %2[64*a + b] = v1
  }
}
nest "sum" outer [a1: 128] {
  stage [b1: 64] {
    v0 = load f32 %2[64*a1 + b1]
    v1 = reduce f32 sum v0
  }
  stage [] {
    store %3[a1] = v1
  }
}
nest "sub" outer [a2: 128, b2: 64] {
  stage [] {
    v0 = load f32 %2[64*a2 + b2]
    v1 = load f32 %3[a2]
    v2 = sub f32 v0, v1
    store %4[64*a2 + b2] = v2
  }
}
output view %3 f32 sizes [128] strides [1] offset 0
output view %4 f32 sizes [128, 64] strides [64, 1] offset 0
)"),
                       {}, {});
  verify(p);
  ASSERT_EQ(p.items.size(), 1u) << print(p);
  const Nest& n = std::get<Nest>(p.items[0]);
  ASSERT_TRUE(n.stages[0].axes.empty()) << print(p);
  EXPECT_EQ(n.stages[0].ops[1].code, OpCode::Indirect) << print(p);
}

}  // namespace
}  // namespace braze::schedule
