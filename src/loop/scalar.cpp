#include "loop/scalar.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace braze::loop {
namespace {

float from_bits(uint32_t u) {
  float f;
  std::memcpy(&f, &u, 4);
  return f;
}
uint32_t bits(float f) {
  uint32_t u;
  std::memcpy(&u, &f, 4);
  return u;
}
float bf16_to_float(uint16_t h) { return from_bits(static_cast<uint32_t>(h) << 16); }
uint16_t float_to_bf16(float f) {
  if (std::isnan(f)) return 0x7fc0;
  uint32_t u = bits(f);
  return static_cast<uint16_t>((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}
float f16_to_float(uint16_t h) {
  int sign = h >> 15, e = (h >> 10) & 31, m = h & 1023;
  double v = e == 31 ? (m ? std::nan("") : INFINITY) : e ? std::ldexp(1024 + m, e - 25) : std::ldexp(m, -24);
  return static_cast<float>(sign ? -v : v);
}
uint16_t float_to_f16(float f) {
  uint16_t sign = std::signbit(f) ? 0x8000 : 0;
  if (std::isnan(f)) return sign | 0x7e00;
  double a = std::fabs(static_cast<double>(f));
  if (a >= 65520) return sign | 0x7c00;
  if (a < 0x1p-14) return sign | static_cast<uint16_t>(std::nearbyint(std::ldexp(a, 24)));
  int e;
  std::frexp(a, &e);                                                 // a = m * 2^e, m in [0.5, 1)
  auto q = static_cast<int>(std::nearbyint(std::ldexp(a, 11 - e)));  // 11 significant bits
  return static_cast<uint16_t>(sign + ((e + 13) << 10) + q);
}

}  // namespace

double to_compute(DType t, double v) { return t == DType::F64 ? v : static_cast<double>(static_cast<float>(v)); }
double to_storage(DType t, double v) {
  if (t == DType::BF16) return bf16_to_float(float_to_bf16(static_cast<float>(v)));
  if (t == DType::F16) return f16_to_float(float_to_f16(static_cast<float>(v)));
  if (auto* f = float8(t)) return from_float8(*f, to_float8(*f, static_cast<float>(v)));
  return to_compute(t, v);
}
int64_t wrap(DType t, int64_t v) {
  switch (t) {
    case DType::U8: return static_cast<uint8_t>(v);
    case DType::I8: return static_cast<int8_t>(v);
    case DType::I16: return static_cast<int16_t>(v);
    case DType::I32: return static_cast<int32_t>(v);
    case DType::Bool: return v != 0;
    default: return v;
  }
}

Scalar load(DType t, const uint8_t* p) {
  Scalar s;
  if (auto* f = float8(t)) {
    s.f = from_float8(*f, *p);
    return s;
  }
  auto as = [&](auto z) {
    std::memcpy(&z, p, sizeof z);
    return z;
  };
  switch (t) {
    case DType::F64: s.f = as(double{}); break;
    case DType::F32: s.f = as(float{}); break;
    case DType::BF16: s.f = bf16_to_float(as(uint16_t{})); break;
    case DType::F16: s.f = f16_to_float(as(uint16_t{})); break;
    case DType::U8: s.i = as(uint8_t{}); break;
    case DType::Bool: s.i = as(uint8_t{}) != 0; break;
    case DType::I8: s.i = as(int8_t{}); break;
    case DType::I16: s.i = as(int16_t{}); break;
    case DType::I32: s.i = as(int32_t{}); break;
    case DType::I64: s.i = as(int64_t{}); break;
    default: throw InternalError("interpret: dtype without arithmetic");
  }
  return s;
}

void store(DType t, uint8_t* p, Scalar s) {
  auto put = [&](auto z) { std::memcpy(p, &z, sizeof z); };
  if (auto* f = float8(t)) return put(to_float8(*f, static_cast<float>(s.f)));
  switch (t) {
    case DType::F64: put(s.f); break;
    case DType::F32: put(static_cast<float>(s.f)); break;
    case DType::BF16: put(float_to_bf16(static_cast<float>(s.f))); break;
    case DType::F16: put(float_to_f16(static_cast<float>(s.f))); break;
    case DType::U8: put(static_cast<uint8_t>(s.i)); break;
    case DType::Bool: put(static_cast<uint8_t>(s.i != 0)); break;
    case DType::I8: put(static_cast<int8_t>(s.i)); break;
    case DType::I16: put(static_cast<int16_t>(s.i)); break;
    case DType::I32: put(static_cast<int32_t>(s.i)); break;
    case DType::I64: put(s.i); break;
    default: throw InternalError("interpret: dtype without arithmetic");
  }
}

double float_op(OpCode c, double a, double b) {
  switch (c) {
    case OpCode::Add: return a + b;
    case OpCode::Sub: return a - b;
    case OpCode::Mul: return a * b;
    case OpCode::Div: return a / b;
    case OpCode::FloorDiv: {
      if (b == 0) return a / b;
      double m = std::fmod(a, b), d = (a - m) / b;
      if (m != 0 && (b < 0) != (m < 0)) d -= 1;
      if (d == 0) return std::copysign(0.0, a / b);
      double f = std::floor(d);
      return d - f > 0.5 ? f + 1 : f;
    }
    case OpCode::Mod: return std::fmod(a, b);
    case OpCode::Remainder: {
      double m = std::fmod(a, b);
      return m != 0 && (b < 0) != (m < 0) ? m + b : m;
    }
    case OpCode::Max: return std::isnan(a) || std::isnan(b) ? std::nan("") : b > a ? b : a;
    case OpCode::Min: return std::isnan(a) || std::isnan(b) ? std::nan("") : b < a ? b : a;
    case OpCode::Pow: return std::pow(a, b);
    case OpCode::Atan2: return std::atan2(a, b);
    case OpCode::Copysign: return std::copysign(a, b);
    case OpCode::Neg: return -a;
    case OpCode::Abs: return std::fabs(a);
    case OpCode::Sign: return (a > 0) - (a < 0);
    case OpCode::Floor: return std::floor(a);
    case OpCode::Ceil: return std::ceil(a);
    case OpCode::Trunc: return std::trunc(a);
    case OpCode::Round: return std::nearbyint(a);
    case OpCode::Sqrt: return std::sqrt(a);
    case OpCode::Rsqrt: return 1 / std::sqrt(a);
    case OpCode::Recip: return 1 / a;
    case OpCode::Exp: return std::exp(a);
    case OpCode::Exp2: return std::exp2(a);
    case OpCode::Expm1: return std::expm1(a);
    case OpCode::Log: return std::log(a);
    case OpCode::Log2: return std::log2(a);
    case OpCode::Log10: return std::log10(a);
    case OpCode::Log1p: return std::log1p(a);
    case OpCode::Sin: return std::sin(a);
    case OpCode::Cos: return std::cos(a);
    case OpCode::Tan: return std::tan(a);
    case OpCode::Asin: return std::asin(a);
    case OpCode::Acos: return std::acos(a);
    case OpCode::Atan: return std::atan(a);
    case OpCode::Sinh: return std::sinh(a);
    case OpCode::Cosh: return std::cosh(a);
    case OpCode::Tanh: return std::tanh(a);
    case OpCode::Asinh: return std::asinh(a);
    case OpCode::Acosh: return std::acosh(a);
    case OpCode::Atanh: return std::atanh(a);
    case OpCode::Erf: return std::erf(a);
    case OpCode::Erfc: return std::erfc(a);
    case OpCode::Sigmoid: return 1 / (1 + std::exp(-a));
    default: throw InternalError("interpret: not an operation on floats");
  }
}

static int64_t floor_div(int64_t a, int64_t b) {
  BRAZE_CHECK(b != 0, "integer division by zero");
  int64_t q = a / b;
  return (a % b != 0 && ((a < 0) != (b < 0))) ? q - 1 : q;
}

int64_t int_op(OpCode c, DType t, int64_t a, int64_t b) {
  auto ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b);
  switch (c) {
    case OpCode::Add: return t == DType::Bool ? a | b : static_cast<int64_t>(ua + ub);
    case OpCode::Sub: return static_cast<int64_t>(ua - ub);
    case OpCode::Mul: return t == DType::Bool ? a & b : static_cast<int64_t>(ua * ub);
    case OpCode::Div:
      BRAZE_CHECK(b != 0, "integer division by zero");
      return b == -1 ? static_cast<int64_t>(0 - ua) : a / b;
    case OpCode::FloorDiv: return b == -1 ? static_cast<int64_t>(0 - ua) : floor_div(a, b);
    case OpCode::Mod: BRAZE_CHECK(b != 0, "integer division by zero"); return b == -1 ? 0 : a % b;
    case OpCode::Remainder: return b == -1 ? 0 : a - b * floor_div(a, b);
    case OpCode::Max: return std::max(a, b);
    case OpCode::Min: return std::min(a, b);
    case OpCode::Pow: {
      if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;
      uint64_t r = 1;
      for (; b; b >>= 1, ua *= ua)
        if (b & 1) r *= ua;
      return static_cast<int64_t>(r);
    }
    case OpCode::And: return a & b;
    case OpCode::Or: return a | b;
    case OpCode::Xor: return a ^ b;
    case OpCode::Shl: return b >= 0 && b < 64 ? static_cast<int64_t>(ua << b) : 0;
    case OpCode::Shr: return a >> std::clamp<int64_t>(b, 0, 63);
    case OpCode::Not: return t == DType::Bool ? !a : ~a;
    case OpCode::Neg: return static_cast<int64_t>(0 - ua);
    case OpCode::Abs: return a < 0 ? static_cast<int64_t>(0 - ua) : a;
    case OpCode::Sign: return (a > 0) - (a < 0);
    case OpCode::Floor:
    case OpCode::Ceil:
    case OpCode::Trunc:
    case OpCode::Round: return a;
    default: throw InternalError("interpret: not an operation on integers");
  }
}

}  // namespace braze::loop
