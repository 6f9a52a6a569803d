#!/usr/bin/env python3
"""Prints src/lower/special_tables.h: Chebyshev series of what special functions are made of. Needs mpmath."""

import mpmath as mp

mp.mp.dps = 40


def chebyshev(f, low, high, nodes=60):
    """Coefficients c[k] of sum c[k] T[k](s), s the place between `low` and `high`, up to what doubles can hold."""
    angles = [mp.pi * (mp.mpf(k) + 0.5) / nodes for k in range(nodes)]
    values = [f((mp.cos(a) * (high - low) + (high + low)) / 2) for a in angles]
    c = [2 * sum(v * mp.cos(j * a) for v, a in zip(values, angles)) / nodes for j in range(nodes)]
    c[0] /= 2
    while abs(c[-1]) < abs(c[0]) * mp.mpf(2) ** -55:
        c.pop()
    return c


def inverse_normal_tail(u):
    """z - log(z) / z + x at u = 1 / z, where x is the normal quantile of exp(-z * z / 2)."""
    z = 1 / u
    p = mp.exp(-z * z / 2)
    guess = -(z - mp.log(z) / z - mp.mpf("0.9") / z)
    x = mp.findroot(lambda x: mp.log(mp.erfc(-x / mp.sqrt(2)) / 2) - mp.log(p), guess)
    return z - mp.log(z) / z + x


def zeros(order):
    return [mp.besseljzero(order, k) ** 2 for k in (1, 2)]


def between_zeros(order):
    first, second = zeros(order)

    def f(v):
        x = mp.sqrt(v)
        return mp.besselj(order, x) / (x**order * (v - first) * (v - second))

    return f


def oscillation(order, cosine):
    """Of Bessel functions beyond 5 at v = 25 / x^2: the factors of the cosine and, times x / 5, of the sine."""

    def f(v):
        x = 5 / mp.sqrt(v)
        phase, root = x - (2 * order + 1) * mp.pi / 4, mp.sqrt(mp.pi * x / 2)
        j, y = mp.besselj(order, x), mp.bessely(order, x)
        if cosine:
            return root * (j * mp.cos(phase) + y * mp.sin(phase))
        return root * (y * mp.cos(phase) - j * mp.sin(phase)) * x / 5

    return f


def y0(v):
    x = mp.sqrt(v)
    return mp.bessely(0, x) - 2 / mp.pi * mp.log(x) * mp.besselj(0, x)


def y1(v):
    x = mp.sqrt(v)
    return (mp.bessely(1, x) - 2 / mp.pi * (mp.besselj(1, x) * mp.log(x) - 1 / x)) / x


def k0(v):
    x = mp.sqrt(v)
    return mp.besselk(0, x) + mp.log(x / 2) * mp.besseli(0, x)


def k1(v):
    x = mp.sqrt(v)
    return x * (mp.besselk(1, x) - mp.log(x / 2) * mp.besseli(1, x))


def far(f, sign):
    """sqrt(x) exp(sign x) f(x) at u = 1 / x."""
    return lambda u: mp.exp(sign / u) * f(1 / u) / mp.sqrt(u)


def erfcx(s):
    x = mp.mpf("3.75") * (1 + s) / (1 - s)
    if x > 300:
        x2 = 1 / (2 * x * x)
        series = sum((-1) ** k * mp.fac2(2 * k - 1) * x2**k for k in range(8))
        return (1 + 2 * x) * series / (x * mp.sqrt(mp.pi))
    return (1 + 2 * x) * mp.exp(x * x) * mp.erfc(x)


def stirling(v):
    x = 1 / mp.sqrt(v)
    return x * (mp.loggamma(x) - ((x - 0.5) * mp.log(x) - x + mp.log(2 * mp.pi) / 2))


CENTER = mp.mpf("0.37")  # of the normal quantile: this far from 1/2
TABLES = [
    # name, what it is, function, low, high
    ("kI0Near", "exp(-x) I0(x) of x", lambda x: mp.exp(-x) * mp.besseli(0, x), 0, 8),
    ("kI0Far", "sqrt(x) exp(-x) I0(x) of 1 / x", far(lambda x: mp.besseli(0, x), -1), mp.mpf(0), mp.mpf(1) / 8),
    ("kI1Near", "exp(-x) I1(x) / x of x", lambda x: mp.exp(-x) * mp.besseli(1, x) / x, 0, 8),
    ("kI1Far", "sqrt(x) exp(-x) I1(x) of 1 / x", far(lambda x: mp.besseli(1, x), -1), mp.mpf(0), mp.mpf(1) / 8),
    ("kK0Near", "K0(x) + log(x / 2) I0(x) of x^2", k0, 0, 4),
    ("kK0Far", "sqrt(x) exp(x) K0(x) of 1 / x", far(lambda x: mp.besselk(0, x), 1), mp.mpf(0), mp.mpf(1) / 2),
    ("kK1Near", "x (K1(x) - log(x / 2) I1(x)) of x^2", k1, 0, 4),
    ("kK1Far", "sqrt(x) exp(x) K1(x) of 1 / x", far(lambda x: mp.besselk(1, x), 1), mp.mpf(0), mp.mpf(1) / 2),
    ("kJ0Near", "J0(x) / ((x^2 - a) (x^2 - b)) of x^2, a and b where it is zero", between_zeros(0), 0, 25),
    ("kJ1Near", "J1(x) / (x (x^2 - a) (x^2 - b)) of x^2", between_zeros(1), 0, 25),
    ("kY0Near", "Y0(x) - 2/pi log(x) J0(x) of x^2", y0, 0, 25),
    ("kY1Near", "(Y1(x) - 2/pi (J1(x) log(x) - 1 / x)) / x of x^2", y1, 0, 25),
    ("kCosine0", "of the cosine of J0 beyond 5, of 25 / x^2", oscillation(0, True), mp.mpf(0), 1),
    ("kSine0", "of the sine, times x / 5", oscillation(0, False), mp.mpf(0), 1),
    ("kCosine1", "of the cosine of J1 beyond 5, of 25 / x^2", oscillation(1, True), mp.mpf(0), 1),
    ("kSine1", "of the sine, times x / 5", oscillation(1, False), mp.mpf(0), 1),
    ("kErfcx", "(1 + 2 x) exp(x^2) erfc(x) of (x - 3.75) / (x + 3.75)", erfcx, -1, mp.mpf(1)),
    ("kQuantileCenter", "x / y of y^2, x the normal quantile of 1/2 + y", lambda v: mp.sqrt(2) * mp.erfinv(2 * mp.sqrt(v)) / mp.sqrt(v), 0, CENTER**2),
    ("kQuantileTail", "z - log(z) / z + x of 1 / z, x the quantile of exp(-z^2 / 2), z to 8", inverse_normal_tail, mp.mpf(1) / 8, mp.mpf("0.51")),
    ("kQuantileEnd", "the same, z from 8", inverse_normal_tail, mp.mpf(1) / 40, mp.mpf(1) / 8),
    ("kLogGamma", "log(gamma(x)) / ((x - 1) (x - 2)) of x", lambda x: mp.loggamma(x) / ((x - 1) * (x - 2)), mp.mpf("1.5"), mp.mpf("2.5")),
    ("kStirling", "x times what is missing in Stirling's formula, of 1 / x^2", stirling, mp.mpf(0), mp.mpf(1) / 64),
]  # fmt: skip


def main():
    print("// Chebyshev series of parts of special functions, as tools/chebyshev.py prints them: where they hold, then")
    print("// the coefficients from the constant one on. Internal to lower/.")
    print("#pragma once\n#include <span>\n\nnamespace braze::lower {\n")
    print("struct Series {\n  double low, high;\n  std::span<const double> coefficients;\n};\n\n// clang-format off")
    for order in (0, 1):
        first, second = (mp.nstr(z, 20) for z in zeros(order))
        print(f"constexpr double kJ{order}Zeros[2] = {{{first}, {second}}};  // squared")
    for name, what, f, low, high in TABLES:
        c = [mp.nstr(x, 20, min_fixed=1, max_fixed=0) for x in chebyshev(f, low, high)]
        print(f"\n// {what}\nconstexpr double {name}Terms[] = {{")
        for k in range(0, len(c), 5):
            print("    " + ", ".join(c[k : k + 5]) + ",")
        print("};")
        print(f"constexpr Series {name} = {{{mp.nstr(mp.mpf(low), 20)}, {mp.nstr(mp.mpf(high), 20)}, {name}Terms}};")
    print("// clang-format on\n\n}  // namespace braze::lower")


if __name__ == "__main__":
    main()
