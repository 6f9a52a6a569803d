// Floats of a byte: every pattern as f32, and f32 to a byte, by machine code as base/float8.h does it on the host.
#include "base/float8.h"

#include "run_program.h"

namespace braze::codegen::testing {
namespace {

constexpr DType kAll[] = {DType::F8E4M3, DType::F8E5M2, DType::F8E4M3fnuz, DType::F8E5M2fnuz, DType::F8E8M0};

HostTensor cast(DType from, DType to, const HostTensor& in, const std::string& way) {
  const std::string n = std::to_string(in.sizes[0]), a(name(from)), b(name(to));
  Program p = loop::parse(
      "program\nbuffer %0 \"x\" " + a + " cpu input 0 sizes [" + n + "] strides [1]\nbuffer %1 \"o\" " + b +
      " cpu output sizes [" + n + "] strides [1]\nnest \"n\" outer [i0: " + n + "] vector " + way +
      " tile 0 grain 1 locs [] {\n  stage [] {\n    v0 = load " + a + " %0[i0]\n    v1 = cast " + b +
      " v0\n    store %1[i0] = v1\n  }\n}\noutput view %1 " + b + " sizes [" + n + "] strides [1] offset 0\n");
  loop::verify(p);
  std::vector<HostTensor> inputs{in};
  return run_compiled(p, inputs)[0];
}

TEST(Float8, EveryPatternIsRead) {
  HostTensor in = loop::host_tensor(DType::U8, {256});
  for (size_t i = 0; i < 256; ++i) in.storage[i] = static_cast<uint8_t>(i);
  for (DType d : kAll)
    for (const char* way : {"outer", "none"}) {
      in.dtype = d;
      HostTensor out = cast(d, DType::F32, in, way);
      for (int i = 0; i < 256; ++i) {
        float got, want = from_float8(*float8(d), static_cast<uint8_t>(i));
        std::memcpy(&got, out.storage.data() + 4 * i, 4);
        EXPECT_EQ(std::isnan(got), std::isnan(want)) << name(d) << " " << i;
        if (!std::isnan(want)) {
          EXPECT_EQ(got, want) << name(d) << " " << i;
          EXPECT_EQ(std::signbit(got), std::signbit(want)) << name(d) << " " << i;
          EXPECT_EQ(to_float8(*float8(d), want), i) << name(d);
        }
      }
    }
}

TEST(Float8, FloatsAreRounded) {
  std::vector<uint32_t> bits;
  for (uint32_t high = 0; high < 0x10000; ++high)
    for (uint32_t low : {0U, 1U, 0x7fffU, 0x8000U, 0xffffU}) bits.push_back(high << 16 | low);
  HostTensor in = loop::host_tensor(DType::F32, {static_cast<int64_t>(bits.size())});
  std::memcpy(in.storage.data(), bits.data(), 4 * bits.size());
  for (DType d : kAll)
    for (const char* way : {"outer", "none"}) {
      HostTensor out = cast(DType::F32, d, in, way);
      size_t wrong = 0;
      for (size_t i = 0; i < bits.size() && wrong < 5; ++i) {
        const uint8_t want = to_float8(*float8(d), std::bit_cast<float>(bits[i]));
        wrong += out.storage[i] != want;
        EXPECT_EQ(out.storage[i], want) << name(d) << " of " << std::hex << bits[i];
      }
    }
}

TEST(Float8, HostRoundsToNearestEven) {
  // Between two neighbours of the type: the nearer one, of a tie the one whose last bit is 0.
  for (DType d : kAll) {
    const Float8& f = *float8(d);
    const bool powers = f.kind == Float8::Kind::Exponent;
    // Of powers of two the upper one, but that the least has all that is less.
    for (int i = powers; i + 1 < (powers ? 255 : 127); ++i) {
      const float low = from_float8(f, static_cast<uint8_t>(i)), high = from_float8(f, static_cast<uint8_t>(i + 1));
      if (std::isnan(high) || std::isinf(high)) continue;
      const float middle = low + (high - low) / 2;
      const int tie = powers ? i + 1 : i + (i & 1);
      EXPECT_EQ(to_float8(f, middle), tie) << name(d) << " " << i;
      EXPECT_EQ(to_float8(f, std::nextafter(middle, 0.0F)), i) << name(d) << " " << i;
      EXPECT_EQ(to_float8(f, std::nextafter(middle, high)), i + 1) << name(d) << " " << i;
    }
  }
  EXPECT_EQ(greatest(kFloat8E4M3), 448.0F);
  EXPECT_EQ(greatest(kFloat8E5M2), 57344.0F);
  EXPECT_EQ(greatest(kFloat8E4M3fnuz), 240.0F);
  EXPECT_EQ(greatest(kFloat8E5M2fnuz), 57344.0F);
  EXPECT_EQ(greatest(kFloat8E8M0), 0x1p127F);
  EXPECT_EQ(to_float8(kFloat8E4M3, INFINITY), 0x7e);
  EXPECT_EQ(to_float8(kFloat8E5M2, -61440.0F), 0xfc);
  EXPECT_EQ(to_float8(kFloat8E4M3fnuz, -0.0F), 0);
}

}  // namespace
}  // namespace braze::codegen::testing
