// Functions in Triton's language that kernels call: how partial results of a reduction become one, and arithmetic that
// Triton's operators round or guard otherwise than the loop IR asks.
#pragma once

namespace braze::codegen::triton {

struct Helper {
  const char *name, *text;
};

inline constexpr Helper kHelpers[] = {
    {"either_max", R"(def either_max(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
)"},
    {"either_min", R"(def either_min(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
)"},
    {"larger", R"(def larger(a, b):
    return tl.maximum(a, b)
)"},
    {"smaller", R"(def smaller(a, b):
    return tl.minimum(a, b)
)"},
    {"product", R"(def product(a, b):
    return a * b
)"},
    // The first of equals wins, and NaN over everything.
    {"arg_max", R"(def arg_max(a, at_a, b, at_b):
    better = (b > a) | ((b != b) & (a == a))
    equal = (a == b) | ((a != a) & (b != b))
    better = better | (equal & (at_b < at_a))
    return tl.where(better, b, a), tl.where(better, at_b, at_a)
)"},
    {"arg_min", R"(def arg_min(a, at_a, b, at_b):
    better = (b < a) | ((b != b) & (a == a))
    equal = (a == b) | ((a != a) & (b != b))
    better = better | (equal & (at_b < at_a))
    return tl.where(better, b, a), tl.where(better, at_b, at_a)
)"},
    // Mean, sum of squared deviations, count, and what the mean is relative to.
    {"welford", R"(def welford(mean_a, squares_a, count_a, shift_a, mean_b, squares_b, count_b, shift_b):
    count = count_a + count_b
    share = count_b / tl.where(count > 0, count, 1.0)
    shift = tl.where(count_a > 0, shift_a, shift_b)
    mean_b = mean_b + (shift_b - shift)
    mean_a = tl.where(count_a > 0, mean_a, mean_b)
    delta = mean_b - mean_a
    return mean_a + delta * share, squares_a + (squares_b + delta * (delta * (count_a * share))), count, shift
)"},
    // Maximum, and sum of exponentials relative to it.
    {"exp_sums", R"(def exp_sums(top_a, sum_a, top_b, sum_b):
    top = tl.maximum(top_a, top_b, propagate_nan=tl.PropagateNan.ALL)
    base = tl.where(top == float("-inf"), 0.0, top)
    return top, sum_a * tl.exp(top_a - base) + sum_b * tl.exp(top_b - base)
)"},
    {"trunc_div", R"(def trunc_div(a, b):
    return a // tl.where(b == 0, 1, b)
)"},
    {"trunc_mod", R"(def trunc_mod(a, b):
    return a % tl.where(b == 0, 1, b)
)"},
    {"floor_div", R"(def floor_div(a, b):
    b = tl.where(b == 0, 1, b)
    r = a % b
    return a // b - tl.where((r != 0) & ((r ^ b) < 0), 1, 0).to(r.dtype)
)"},
    {"floor_mod", R"(def floor_mod(a, b):
    b = tl.where(b == 0, 1, b)
    r = a % b
    return tl.where((r != 0) & ((r ^ b) < 0), r + b, r)
)"},
    {"float_remainder", R"(def float_remainder(mod, y):
    return tl.where((mod != 0) & ((y < 0) != (mod < 0)), mod + y, mod)
)"},
    // From the remainder and the plain quotient.
    {"float_floor_div", R"(def float_floor_div(x, y, mod, plain):
    div = (x - mod) / y
    div = tl.where((mod != 0) & ((y < 0) != (mod < 0)), div - 1.0, div)
    down = tl.floor(div)
    down = tl.where(div - down > 0.5, down + 1.0, down)
    down = tl.where(div != 0, down, plain * 0.0)
    return tl.where(y == 0, plain, down)
)"},
    // Floats of a byte as base/float8.h has them, from and to their bits.
    {"from_e4m3fn", R"(def from_e4m3fn(x):
    bits = x.to(tl.int32)
    low = bits & 127
    wide = tl.where(low < 8, low.to(tl.float32) * 0.001953125, ((low << 20) + 0x3C000000).to(tl.float32, bitcast=True))
    wide = tl.where(low == 127, float("nan"), wide)
    return (wide.to(tl.int32, bitcast=True) | ((bits & 128) << 24)).to(tl.float32, bitcast=True)
)"},
    {"from_e5m2", R"(def from_e5m2(x):
    return (x.to(tl.int16) << 8).to(tl.float16, bitcast=True).to(tl.float32)
)"},
    {"to_e4m3fn", R"(def to_e4m3fn(x):
    bits = x.to(tl.int32, bitcast=True)
    size = bits & 0x7FFFFFFF
    small = (size.to(tl.float32, bitcast=True) + 16384.0).to(tl.int32, bitcast=True) - 0x46800000
    r = tl.where(size < 0x3C800000, small, (size + ((size >> 20) & 1) - 0x3BF80001) >> 20)
    r = tl.where(size >= 0x43E80000, tl.where(size > 0x7F800000, 127, 126), r)
    return (r | ((bits >> 24) & 128)).to(tl.uint8)
)"},
    {"to_e5m2", R"(def to_e5m2(x):
    bits = x.to(tl.int32, bitcast=True)
    size = bits & 0x7FFFFFFF
    small = (size.to(tl.float32, bitcast=True) + 128.0).to(tl.int32, bitcast=True) - 0x43000000
    r = tl.where(size < 0x38800000, small, (size + ((size >> 21) & 1) - 0x37F00001) >> 21)
    r = tl.where(size >= 0x47800000, tl.where(size > 0x7F800000, 127, 124), r)
    return (r | ((bits >> 24) & 128)).to(tl.uint8)
)"},
    {"integer_pow", R"(def integer_pow(base, exponent):
    power = base + exponent * 0
    left = exponent + base * 0
    result = power * 0 + 1
    for _ in range(64):
        result = tl.where((left & 1) != 0, result * power, result)
        power = power * power
        left = left >> 1
    odd = (exponent & 1) != 0
    inverse = tl.where(base == 1, 1, tl.where(base == -1, tl.where(odd, -1, 1), 0))
    return tl.where(exponent < 0, inverse, result)
)"},
};

}  // namespace braze::codegen::triton
