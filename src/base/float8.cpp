#include "base/float8.h"

#include <bit>
#include <cmath>
#include <limits>

namespace braze {
namespace {

constexpr uint32_t kInfinity = 0x7f800000;

uint8_t power_of_two(uint32_t magnitude) {
  if (magnitude >= kInfinity) return 255;
  // From half way between two powers, 1.5 times the lower one, the upper. Denormal numbers above 2^-127 go up, too.
  uint32_t half = magnitude < 0x800000 ? 0x3fffff : 0x400000;
  return static_cast<uint8_t>((magnitude + half) >> 23);
}

}  // namespace

uint32_t Float8::limit() const {
  switch (kind) {
    case Kind::Ieee: return static_cast<uint32_t>(128 + bias) << 23;
    case Kind::Finite:  // half way from the greatest number to the next, whose bits are NaN
      return (static_cast<uint32_t>(127 + bias + 2) << 23) - (3U << (22 - mantissa));
    case Kind::OneZero: return static_cast<uint32_t>(127 + (1 << (7 - mantissa)) - bias) << 23;
    case Kind::Exponent: return kInfinity;
  }
  return kInfinity;
}

uint8_t to_float8(const Float8& f, float value) {
  const auto all = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = all & 0x7fffffff, sign = all >> 24 & 0x80;
  if (f.kind == Float8::Kind::Exponent) return power_of_two(magnitude);
  if (magnitude >= f.limit()) {
    if (f.kind == Float8::Kind::OneZero) return 0x80;
    return static_cast<uint8_t>(sign | (magnitude > kInfinity ? 0x7f : f.kind == Float8::Kind::Ieee ? 0x7c : 0x7e));
  }
  uint32_t r = 0;
  if (magnitude < f.least_normal()) {
    r = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + std::bit_cast<float>(f.rounder())) - f.rounder();
  } else {
    const int dropped = 23 - f.mantissa;
    const uint32_t odd = magnitude >> dropped & 1;
    r = (magnitude - (static_cast<uint32_t>(127 - f.bias) << 23) + (1U << (dropped - 1)) - 1 + odd) >> dropped;
  }
  if (f.kind == Float8::Kind::OneZero && r == 0) return 0;
  return static_cast<uint8_t>(sign | r);
}

float from_float8(const Float8& f, uint8_t bits) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  if (f.kind == Float8::Kind::Exponent) return bits == 255 ? nan : std::ldexp(1.0F, bits - f.bias);
  const int magnitude = bits & 0x7f, exponent = magnitude >> f.mantissa, digits = magnitude & ((1 << f.mantissa) - 1);
  const float sign = bits & 0x80 ? -1.0F : 1.0F;
  switch (f.kind) {
    case Float8::Kind::Ieee:
      if (exponent == (1 << (7 - f.mantissa)) - 1)
        return std::copysign(digits ? nan : std::numeric_limits<float>::infinity(), sign);
      break;
    case Float8::Kind::Finite:
      if (magnitude == 0x7f) return std::copysign(nan, sign);
      break;
    case Float8::Kind::OneZero:
      if (bits == 0x80) return nan;
      break;
    case Float8::Kind::Exponent: break;
  }
  const auto whole = static_cast<float>(exponent ? digits + (1 << f.mantissa) : digits);
  return sign * std::ldexp(whole, (exponent ? exponent : 1) - f.bias - f.mantissa);
}

float greatest(const Float8& f) {
  switch (f.kind) {
    case Float8::Kind::Ieee: return from_float8(f, 0x7b);
    case Float8::Kind::Finite: return from_float8(f, 0x7e);
    case Float8::Kind::OneZero: return from_float8(f, 0x7f);
    case Float8::Kind::Exponent: return from_float8(f, 0xfe);
  }
  return 0;
}

}  // namespace braze
