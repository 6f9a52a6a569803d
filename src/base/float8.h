// Floats of a byte: how their bits are made up, and conversions of one number on the host.
//
// Conversions round to nearest even. What is out of range becomes infinity where there is one, the greatest number in
// Finite, NaN in OneZero: as PyTorch's casts (those of older versions make NaN of it in Finite, too:
// Options::float8_saturates).
#pragma once
#include <cstdint>

namespace braze {

struct Float8 {
  enum class Kind : uint8_t {
    Ieee,      // infinities, and NaNs under the highest exponent
    Finite,    // no infinities; all bits but the sign set: NaN; what is out of range is the greatest number
    OneZero,   // no infinities, no negative zero: its bits are the one NaN
    Exponent,  // powers of two by a biased exponent of 8 bits, without sign and zero; 255: NaN
  };
  Kind kind = Kind::Ieee;
  int mantissa = 0;  // bits
  int bias = 0;      // of the exponent

  // The least number that has a full mantissa, one from which on all is out of range (what is below rounds rightly),
  // and a number which, added to one below the former, rounds it to this type's last bit: as bits of a float.
  uint32_t least_normal() const { return static_cast<uint32_t>(128 - bias) << 23; }
  uint32_t limit() const;
  uint32_t rounder() const { return static_cast<uint32_t>(128 - bias - mantissa + 23) << 23; }

  friend bool operator==(const Float8&, const Float8&) = default;
};

inline constexpr Float8 kFloat8E4M3{Float8::Kind::Finite, 3, 7};
inline constexpr Float8 kFloat8E5M2{Float8::Kind::Ieee, 2, 15};
inline constexpr Float8 kFloat8E4M3fnuz{Float8::Kind::OneZero, 3, 8};
inline constexpr Float8 kFloat8E5M2fnuz{Float8::Kind::OneZero, 2, 16};
inline constexpr Float8 kFloat8E8M0{Float8::Kind::Exponent, 0, 127};

uint8_t to_float8(const Float8& format, float value);
float from_float8(const Float8& format, uint8_t bits);
// The greatest finite number.
float greatest(const Float8& format);

}  // namespace braze
