#include "loop/value_range.h"

#include <gtest/gtest.h>

namespace braze::loop {
namespace {

// Whether an Indirect of `v` into 8 elements is inside, in a nest of 16 points i with these ops before it.
bool inside(const std::string& ops, const std::string& v) {
  Program p = parse(
      "program\n"
      "buffer %0 \"x\" f32 cpu input 0 sizes [16] strides [1]\n"
      "buffer %1 \"k\" i64 cpu input 1 sizes [16] strides [1]\n"
      "buffer %2 \"y\" f32 cpu output sizes [16] strides [1]\n"
      "nest \"n\" outer [i: 16] {\n  stage [] {\n" +
      ops + "    indirect t = " + v + " bound 8\n    v90 = load f32 %0[t]\n    store %2[i] = v90\n  }\n}\n" +
      "output view %2 f32 sizes [16] strides [1] offset 0\n");
  const Nest& nest = std::get<Nest>(p.items[0]);
  for (const LoopOp& op : nest.stages[0].ops)
    if (op.code == OpCode::Indirect) return is_inside(p, nest, op);
  return false;
}

const std::string kBounds = "    v0 = const i64 0\n    v1 = const i64 7\n";

TEST(ValueRange, OfWhatIsClamped) {
  std::string loaded = kBounds + "    v2 = load i64 %1[i]\n";
  EXPECT_FALSE(inside(loaded, "v2"));
  EXPECT_FALSE(inside(loaded + "    v3 = min i64 v2, v1\n", "v3"));
  EXPECT_FALSE(inside(loaded + "    v3 = max i64 v2, v0\n", "v3"));
  EXPECT_TRUE(inside(loaded + "    v3 = max i64 v2, v0\n    v4 = min i64 v3, v1\n", "v4"));
  EXPECT_TRUE(inside(loaded + "    v3 = min i64 v2, v1\n    v4 = max i64 v3, v0\n", "v4"));
}

// What is only known from one side may wrap.
TEST(ValueRange, OfASumWithWhatIsOpen) {
  EXPECT_FALSE(inside(kBounds + "    v2 = load i64 %1[i]\n    v3 = max i64 v2, v0\n    v4 = add i64 v3, v1\n"
                                "    v5 = max i64 v4, v0\n    v6 = sub i64 v5, v1\n",
                      "v6"));
}

TEST(ValueRange, OfPlaces) {
  std::string place =
      kBounds + "    v2 = index i64 i\n    v3 = cast f32 v2\n    v4 = const f32 0.5\n    v5 = mul f32 v3, v4\n";
  EXPECT_TRUE(inside(place + "    v6 = floor f32 v5\n    v7 = cast i64 v6\n", "v7"));
  EXPECT_FALSE(inside(place + "    v6 = sub f32 v5, v4\n    v7 = floor f32 v6\n    v8 = cast i64 v7\n", "v8"));
  EXPECT_FALSE(inside(place + "    v6 = add f32 v5, v4\n    v7 = cast i64 v6\n", "v7"));  // 8 at the end
}

// Each value is looked at once, however often what follows names it.
TEST(ValueRange, OfWhatIsNamedManyTimes) {
  std::string ops = kBounds + "    v2 = index i64 i\n";
  for (int k = 3; k < 80; ++k) {
    std::string before = "v" + std::to_string(k - 1);
    ops += "    v" + std::to_string(k) + " = max i64 " + before + ", " + before + "\n";
  }
  EXPECT_FALSE(inside(ops, "v79"));
  EXPECT_TRUE(inside(ops + "    v80 = min i64 v79, v1\n", "v80"));
}

// Max and Min of floats keep NaN.
TEST(ValueRange, OfFloatsThatWereLoaded) {
  EXPECT_FALSE(
      inside("    v0 = const f32 0\n    v1 = const f32 7\n    v2 = load f32 %0[i]\n    v3 = max f32 v2, v0\n"
             "    v4 = min f32 v3, v1\n    v5 = cast i64 v4\n",
             "v5"));
}

}  // namespace
}  // namespace braze::loop
