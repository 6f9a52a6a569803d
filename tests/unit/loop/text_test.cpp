#include <gtest/gtest.h>

#include "base/check.h"
#include "loop/analysis.h"
#include "loop/interpret.h"
#include "loop/loop.h"

namespace braze::loop {
namespace {

const char* kSoftmax = R"(program
symbol s0 size [2, 1024] = input 0 dim 0
location "model.py" "forward" 12 "return x.softmax(-1) # \"quoted\""
buffer %0 "x" f32 cpu input 0 sizes [s0, 8] strides [8, 1]
buffer %1 "max" f32 cpu temp sizes [s0] strides [1]
buffer %2 "out" f32 cpu output sizes [s0, 8] strides [8, 1]
nest "max" outer [i0: s0] vector inner tile 0 grain 4 locs [0] {
  stage [r0: 8] {
    v0 = load f32 %0[r0 + 8*i0]
    v1 = reduce f32 max v0
  }
  stage [] {
    store %1[i0] = v1
  }
}
nest "sub" outer [i0: s0, i1: 8] vector none tile 0 grain 1 locs [] {
  stage [] {
    v0 = load f32 %0[i1 + 8*i0]
    v1 = load f32 %1[i0]
    v2 = sub f32 v0, v1
    v3 = const f32 -0.5
    v4 = mul f32 v2, v3
    store %2[i1 + 8*i0] = v4
  }
}
output view %2 f32 sizes [s0, 8] strides [8, 1] offset 0
)";

TEST(LoopText, RoundTrip) {
  Program p = parse(kSoftmax);
  verify(p);
  std::string once = print(p);
  EXPECT_EQ(once, print(parse(once)));
  EXPECT_NE(once.find("v1 = reduce f32 max v0"), std::string::npos);
  EXPECT_NE(once.find("symbol s0 size [2, 1024] = input 0 dim 0"), std::string::npos);
}

TEST(LoopText, ExternRoundTrip) {
  Program p = parse(R"(program
buffer %0 "x" f32 cpu input 0 sizes [4, 8] strides [8, 1]
buffer %1 "y" bf16 cuda:1 output sizes [4, 4] strides [4, 1]
extern "custom::f" allocates (view(0), views[0, none], none, true, int(3), float(1.5), "a\"b", dtype(bf16), device(cuda:1), ints[1, 2], floats[0.5, inf], bools[true, false], memory_format(1), layout(0), opaque(2)) lists [-1] locs [] {
  view %0 f32 sizes [4, 8] strides [8, 1] offset 0
  result %1 bf16 sizes [4, 4] strides [4, 1] offset 0
  result none
}
output view %1 bf16 sizes [4, 4] strides [4, 1] offset 0
output input 0
output none
)");
  verify(p);
  std::string once = print(p);
  EXPECT_EQ(once, print(parse(once)));
}

TEST(LoopText, Interprets) {
  Program p = parse(kSoftmax);
  std::vector<HostTensor> in{host_tensor(DType::F32, {2, 8})};
  for (int i = 0; i < 16; ++i) set_number(in[0], i, i % 5);
  auto out = run(p, in);
  ASSERT_EQ(out.size(), 1u);
  for (int i = 0; i < 16; ++i) EXPECT_EQ(get_number(out[0], i), (i % 5 - 4) * -0.5);
}

void expect_broken(std::string text, const std::string& rule) {
  try {
    verify(parse(text));
    FAIL() << "accepted; expected: " << rule;
  } catch (const InternalError& e) {
    EXPECT_NE(std::string(e.what()).find(rule), std::string::npos) << e.what();
  }
}

std::string with(const std::string& from, const std::string& to) {
  std::string s = kSoftmax;
  s.replace(s.find(from), from.size(), to);
  return s;
}

TEST(LoopVerify, Rules) {
  expect_broken(with("store %1[i0] = v1", "store %1[i0] = v0"), "a later stage sees only");
  expect_broken(with("store %1[i0] = v1", "store %1[r0] = v1"), "variables of the outer axes");
  expect_broken(with("store %2[i1", "store %0[i1"), "stores go to");
  expect_broken(with("v2 = sub f32 v0, v1", "v2 = sub f64 v0, v1"), "the result's dtype");
  expect_broken(with("v4 = mul f32 v2, v3", "v4 = mul f32 v2, v9"), "defined before");
  expect_broken(with("strides [1]\n", "strides [1, 1]\n"), "one stride per size");
  expect_broken(with("temp sizes", "output sizes") + "output view %7 f32 sizes [] strides [] offset 0\n", "");
}

TEST(LoopKey, EqualNestsOnOtherBuffers) {
  Program p = parse(R"(program
buffer %0 "a" f32 cpu input 0 sizes [8] strides [1]
buffer %1 "b" f32 cpu temp sizes [8] strides [1]
buffer %2 "c" f32 cpu output sizes [8] strides [1]
nest "one" outer [i0: 8] {
  stage [] {
    v0 = load f32 %0[i0]
    v1 = exp f32 v0
    store %1[i0] = v1
  }
}
nest "two" outer [i0: 8] {
  stage [] {
    v0 = load f32 %1[i0]
    v1 = exp f32 v0
    store %2[i0] = v1
  }
}
nest "three" outer [i0: 8] {
  stage [] {
    v0 = load f32 %1[i0]
    v1 = exp f32 v0
    store %1[i0] = v1
  }
}
)");
  std::vector<BufferId> order;
  auto nest = [&](size_t i) -> const Nest& { return std::get<Nest>(p.items[i]); };
  EXPECT_EQ(key(p, nest(0)), key(p, nest(1), &order));
  EXPECT_NE(key(p, nest(0)), key(p, nest(2)));
  EXPECT_EQ(order, (std::vector<BufferId>{BufferId(1), BufferId(2)}));
  auto deps = dependencies(p);
  EXPECT_EQ(deps[2], (std::vector<uint32_t>{0, 1}));
}

TEST(LoopDependencies, UnbackedSymbolsComeFirst) {
  Program p = parse(R"(program
symbol u0 unbacked [0, 100]
buffer %0 "x" f32 cpu input 0 sizes [8] strides [1]
buffer %1 "n" i64 cpu temp sizes [u0, 1] strides [1, 1]
buffer %2 "y" f32 cpu output sizes [u0] strides [1]
extern "aten::nonzero" allocates (view(0)) lists [-1] locs [] {
  view %0 f32 sizes [8] strides [1] offset 0
  result %1 i64 sizes [u0, 1] strides [1, 1] offset 0
}
nest "ones" outer [i0: u0] {
  stage [] {
    v0 = const f32 1
    store %2[i0] = v0
  }
}
output view %2 f32 sizes [u0] strides [1] offset 0
)");
  verify(p);
  EXPECT_EQ(dependencies(p)[1], (std::vector<uint32_t>{0}));
}

}  // namespace
}  // namespace braze::loop
