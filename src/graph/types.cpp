#include "graph/types.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/check.h"

namespace braze {
namespace {

struct Row {
  DType dtype;
  std::string_view name;
  int size;
};
constexpr std::array<Row, 19> kRows = {{{DType::U8, "u8", 1},
                                        {DType::I8, "i8", 1},
                                        {DType::I16, "i16", 2},
                                        {DType::I32, "i32", 4},
                                        {DType::I64, "i64", 8},
                                        {DType::F16, "f16", 2},
                                        {DType::F32, "f32", 4},
                                        {DType::F64, "f64", 8},
                                        {DType::C32, "c32", 4},
                                        {DType::C64, "c64", 8},
                                        {DType::C128, "c128", 16},
                                        {DType::Bool, "bool", 1},
                                        {DType::BF16, "bf16", 2},
                                        {DType::F8E5M2, "f8e5m2", 1},
                                        {DType::F8E4M3, "f8e4m3fn", 1},
                                        {DType::F8E5M2fnuz, "f8e5m2fnuz", 1},
                                        {DType::F8E4M3fnuz, "f8e4m3fnuz", 1},
                                        {DType::F8E8M0, "f8e8m0fnu", 1},
                                        {DType::Opaque, "opaque", 0}}};

const Row& row(DType d) {
  for (const Row& r : kRows)
    if (r.dtype == d) return r;
  throw InternalError("no such dtype: " + std::to_string(static_cast<int>(d)));
}

DType value_dtype(DType d) {  // of a complex number's parts
  return d == DType::C32 ? DType::F16 : d == DType::C64 ? DType::F32 : d == DType::C128 ? DType::F64 : d;
}

DType to_complex(DType d) {
  // clang-format off: a table, with as many rows of a kind as fit on a line
  switch (d) {
    case DType::F64: case DType::C128: return DType::C128;
    case DType::F16: case DType::C32: return DType::C32;
    default: return DType::C64;
  }
  // clang-format on
}

}  // namespace

bool is_value(DType d) {  // graph/archive.h
  return std::any_of(kRows.begin(), kRows.end(), [&](const Row& r) { return r.dtype == d; });
}

std::string_view name(DType d) { return row(d).name; }

std::optional<DType> dtype_from_name(std::string_view s) {
  for (const Row& r : kRows)
    if (r.name == s) return r.dtype;
  return std::nullopt;
}

int size_of(DType d) { return row(d).size; }

const Float8* float8(DType d) {
  switch (d) {
    case DType::F8E5M2: return &kFloat8E5M2;
    case DType::F8E4M3: return &kFloat8E4M3;
    case DType::F8E5M2fnuz: return &kFloat8E5M2fnuz;
    case DType::F8E4M3fnuz: return &kFloat8E4M3fnuz;
    case DType::F8E8M0: return &kFloat8E8M0;
    default: return nullptr;
  }
}

bool is_floating(DType d) {
  return d == DType::F16 || d == DType::BF16 || d == DType::F32 || d == DType::F64 || float8(d);
}
double largest_finite(DType d) {
  switch (d) {
    case DType::F16: return 65504;
    case DType::BF16: return 0x1.fep127;
    case DType::F32: return std::numeric_limits<float>::max();
    default: return std::numeric_limits<double>::max();
  }
}

bool is_integral(DType d) {
  return d == DType::U8 || d == DType::I8 || d == DType::I16 || d == DType::I32 || d == DType::I64;
}

bool is_complex(DType d) { return d == DType::C32 || d == DType::C64 || d == DType::C128; }

DType promote(DType a, DType b) {
  if (a == b) return a;
  if (a == DType::Opaque || b == DType::Opaque || float8(a) || float8(b)) return DType::Opaque;
  if (is_complex(a) || is_complex(b)) {
    DType va = is_integral(a) || a == DType::Bool ? DType::F16 : value_dtype(a);
    DType vb = is_integral(b) || b == DType::Bool ? DType::F16 : value_dtype(b);
    return to_complex(promote(va, vb));
  }
  if (is_floating(a) || is_floating(b)) {
    if (!is_floating(a)) return b;
    if (!is_floating(b)) return a;
    if (size_of(a) == 2 && size_of(b) == 2) return DType::F32;  // f16 with bf16
    return size_of(a) > size_of(b) ? a : b;
  }
  if (a == DType::Bool) return b;
  if (b == DType::Bool) return a;
  if (a == DType::U8) return b == DType::I8 ? DType::I16 : b;
  if (b == DType::U8) return a == DType::I8 ? DType::I16 : a;
  return size_of(a) > size_of(b) ? a : b;
}

std::vector<sym::Expr> contiguous_strides(sym::ExprArena& arena, const std::vector<sym::Expr>& sizes) {
  std::vector<sym::Expr> strides(sizes.size());
  sym::Expr step = arena.constant(1);
  for (size_t d = sizes.size(); d-- > 0;) {
    strides[d] = step;
    if (d == 0) break;
    sym::Expr s = sizes[d];
    if (auto c = arena.as_const(s)) {
      if (*c > 1) step = arena.mul(step, s);
    } else {
      step = arena.mul(step, arena.range(s).lo >= 1 ? s : arena.max(s, arena.constant(1)));
    }
  }
  return strides;
}

bool is_contiguous(sym::ExprArena& arena, const TensorType& t) {
  for (sym::Expr s : t.sizes)
    if (arena.is_const(s, 0)) return true;
  // Where a size may be 0, as contiguous_strides() has them, too: without elements strides do not matter.
  sym::Expr expected = arena.constant(1), or_empty = expected;
  for (size_t d = t.dim(); d-- > 0;) {
    sym::Expr s = t.sizes[d];
    if (arena.is_const(s, 1)) continue;
    if (t.strides[d] != expected && t.strides[d] != or_empty && !arena.known_equal(t.strides[d], expected))
      return false;
    if (d == 0) break;
    const bool same = or_empty == expected, filled = arena.range(s).lo >= 1;
    expected = arena.mul(expected, s);
    or_empty = same && filled ? expected : arena.mul(or_empty, filled ? s : arena.max(s, arena.constant(1)));
  }
  return true;
}

}  // namespace braze
