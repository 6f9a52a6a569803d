// Elementary functions against the C library in double: error in units of the last place, and the special values.
#include <cmath>
#include <functional>
#include <iomanip>
#include <random>
#include <sstream>

#include "run_program.h"

namespace braze::codegen::testing {
namespace {

template <class T>
std::vector<T> evaluate(const std::string& op, const std::vector<T>& x, const char* way = "outer", T second = 0) {
  std::string n = std::to_string(x.size()), type = sizeof(T) == 4 ? "f32" : "f64";
  bool two = op == "pow";
  std::ostringstream constant;
  constant << std::setprecision(17) << second;
  Program p =
      loop::parse("program\nbuffer %0 \"x\" " + type + " cpu input 0 sizes [" + n + "] strides [1]\nbuffer %1 \"o\" " +
                  type + " cpu output sizes [" + n + "] strides [1]\nnest \"n\" outer [i0: " + n + "] vector " + way +
                  " tile 0 grain 1 locs [] {\n  stage [] {\n    v0 = load " + type + " %0[i0]\n" +
                  (two ? "    v1 = const " + type + " " + constant.str() + "\n    v2 = pow " + type +
                             " v0, v1\n    store %1[i0] = v2\n"
                       : "    v1 = " + op + " " + type + " v0\n    store %1[i0] = v1\n") +
                  "  }\n}\noutput view %1 " + type + " sizes [" + n + "] strides [1] offset 0\n");
  DType dtype = sizeof(T) == 4 ? DType::F32 : DType::F64;
  HostTensor in = loop::host_tensor(dtype, {static_cast<int64_t>(x.size())});
  std::memcpy(in.storage.data(), x.data(), x.size() * sizeof(T));
  std::vector<HostTensor> inputs{in};
  std::vector<HostTensor> out = run_compiled(p, inputs);
  std::vector<T> y(x.size());
  std::memcpy(y.data(), out[0].storage.data(), x.size() * sizeof(T));
  return y;
}

struct Function {
  const char* name;
  double (*exact)(double);
  double lo, hi;  // where the bound is claimed
  double ulp;
};
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
const Function kFunctions[] = {
    {"exp", std::exp, -110, 88.7, 1.1},      {"exp2", std::exp2, -152, 127.9, 1.5},
    {"expm1", std::expm1, -110, 88.7, 2.0},  {"log", std::log, 0, 3.4e38, 1.5},
    {"log2", std::log2, 0, 3.4e38, 2.0},     {"log10", std::log10, 0, 3.4e38, 2.0},
    {"log1p", std::log1p, -1, 3.4e38, 2.0},  {"sin", std::sin, -3.4e38, 3.4e38, 2.0},
    {"cos", std::cos, -3.4e38, 3.4e38, 2.0}, {"tanh", std::tanh, -3.4e38, 3.4e38, 2.0},
    {"erf", std::erf, -3.4e38, 3.4e38, 2.0}, {"sigmoid", sigmoid, -87, 3.4e38, 2.0},
    {"tan", std::tan, -1e6, 1e6, 2.0},       {"erfc", std::erfc, -10, 10, 4.0},
    {"sinh", std::sinh, -89.41, 89.41, 2.0}, {"cosh", std::cosh, -89.41, 89.41, 2.0},
};

double ulp_of(double exact) {
  int e;
  std::frexp(exact, &e);
  return std::ldexp(1.0, std::max(e - 24, -149));
}

TEST(Math, ErrorInUlps) {
  for (const Function& f : kFunctions) {
    std::vector<float> x;
    for (uint64_t bits = 0; bits <= 0xffffffffull; bits += 16411) {
      float v;
      auto b = static_cast<uint32_t>(bits);
      std::memcpy(&v, &b, 4);
      if (v > f.lo && v < f.hi) x.push_back(v);
    }
    std::vector<float> y = evaluate<float>(f.name, x);
    double worst = 0;
    float where = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      double exact = f.exact(static_cast<double>(x[i]));
      double error = std::abs(static_cast<double>(y[i]) - exact) / ulp_of(exact);
      if (!(error <= worst)) worst = error, where = x[i];
    }
    EXPECT_LE(worst, f.ulp) << f.name << " at " << where;
  }
}

// Of double, against the C library in long double: evenly spaced arguments, and ones of every magnitude.
struct WideFunction {
  const char* name;
  long double (*exact)(long double);
  double lo, hi, ulp;
};
const WideFunction kWideFunctions[] = {
    {"exp", std::exp, -740, 709, 1.2},       {"exp2", std::exp2, -1070, 1023, 1.5},
    {"expm1", std::expm1, -40, 709, 2.0},    {"log", std::log, 0, 1e308, 1.0},
    {"log2", std::log2, 0, 1e308, 2.0},      {"log10", std::log10, 0, 1e308, 2.0},
    {"log1p", std::log1p, -1, 1e308, 2.0},   {"sin", std::sin, -1e12, 1e12, 1.0},
    {"cos", std::cos, -1e12, 1e12, 1.0},     {"tan", std::tan, -1e12, 1e12, 2.5},
    {"atan", std::atan, -1e300, 1e300, 1.5}, {"sinh", std::sinh, -710, 710, 2.5},
    {"cosh", std::cosh, -710, 710, 2.5},     {"tanh", std::tanh, -30, 30, 2.5},
    {"erf", std::erf, -7, 7, 1.3},           {"erfc", std::erfc, -7, 26, 4.5},
    {"atanh", std::atanh, -1, 1, 2.5},       {"asinh", std::asinh, -1e300, 1e300, 2.5},
    {"acosh", std::acosh, 1, 1e300, 2.5},
};

double error_in_ulps(double got, long double exact) {
  int e;
  std::frexp(static_cast<double>(exact), &e);
  return static_cast<double>(std::abs(static_cast<long double>(got) - exact)) /
         std::ldexp(1.0, std::max(e - 53, -1074));
}

TEST(Math, ErrorInUlpsOfDoubles) {
  for (const WideFunction& f : kWideFunctions) {
    std::mt19937_64 random(1);
    std::uniform_real_distribution<double> share(0, 1);
    std::vector<double> x;
    double top = std::max(std::abs(f.lo), std::abs(f.hi));
    for (int i = 0; i < 200'000; ++i) {
      double v = f.lo + (f.hi - f.lo) * share(random);
      if (i % 4 == 1) v = std::copysign(std::exp(std::log(1e-20) + std::log(top / 1e-20) * share(random)), v);
      if (i % 4 == 2) v = std::copysign(4 * share(random), v);
      if (i % 4 == 3)
        v = std::floor(share(random) * 1e6) * 1.5707963267948966 * (1 + 1e-16 * std::floor(4 * share(random)));
      if (v > f.lo && v < f.hi) x.push_back(v);
    }
    std::vector<double> y = evaluate(f.name, x);
    double worst = 0, where = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      double error = error_in_ulps(y[i], f.exact(static_cast<long double>(x[i])));
      if (!(error <= worst)) worst = error, where = x[i];
    }
    EXPECT_LE(worst, f.ulp) << f.name << " at " << std::setprecision(17) << where;
  }
}

TEST(Math, PowersOfDoubles) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> share(0, 1);
  for (double power : {0.1, 0.5, 1.75, 2.5, -0.3, -7.25, 31.0, -4.0, 300.5, 700.25, -1500.5, 1e-20}) {
    std::vector<double> x;
    for (int i = 0; i < 20'000; ++i)
      x.push_back(std::exp((share(random) - 0.5) * (i % 2 ? 1400 : 2) / (1 + std::abs(power))));
    std::vector<double> y = evaluate("pow", x, "outer", power);
    double worst = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      double error = error_in_ulps(y[i], std::pow(static_cast<long double>(x[i]), static_cast<long double>(power)));
      if (!(error <= worst)) worst = error;
    }
    EXPECT_LE(worst, 1.5) << power;
  }
}

TEST(Math, PowersOfFloats) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> share(0, 1);
  for (float power : {0.1f, 0.5f, 1.75f, 2.5f, -0.3f, -7.25f, 31.0f, -4.0f, 300.5f, 1e-20f}) {
    std::vector<float> x;
    for (int i = 0; i < 50'000; ++i)
      x.push_back(static_cast<float>(std::exp((share(random) - 0.5) * (i % 2 ? 170 : 4))));
    std::vector<float> y = evaluate("pow", x, "outer", power);
    double worst = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      double exact = std::pow(static_cast<double>(x[i]), static_cast<double>(power));
      if (exact > 3.4028235e38) {
        EXPECT_EQ(y[i], INFINITY);
        continue;
      }
      double error = std::abs(static_cast<double>(y[i]) - exact) / ulp_of(exact);
      if (!(error <= worst)) worst = error;
    }
    EXPECT_LE(worst, 0.6) << power;
  }
  const float inf = INFINITY, nan = NAN;
  std::vector<float> x{0.0f,  -0.0f, inf,   -inf,   nan,     1.0f,    -1.0f,   2.0f,
                       -2.0f, 0.5f,  -0.5f, 1e-45f, -1e-45f, 3.4e38f, -3.4e38f};
  for (float power :
       {0.0f, -0.0f, 1.5f, -1.5f, 3.0f, 4.0f, 5.0f, -5.0f, 16777216.0f, 16777215.0f, 1e30f, -1e30f, inf, -inf, nan}) {
    std::vector<float> y = evaluate("pow", x, "outer", power), alone = evaluate("pow", x, "none", power);
    for (size_t i = 0; i < x.size(); ++i) {
      float want = std::pow(x[i], power);
      for (float got : {y[i], alone[i]}) {
        if (std::isnan(want)) {
          EXPECT_TRUE(std::isnan(got)) << x[i] << " ** " << power << " = " << got;
          continue;
        }
        EXPECT_EQ(std::signbit(got), std::signbit(want)) << x[i] << " ** " << power;
        EXPECT_TRUE(got == want || std::abs(got - want) <= 1e-6f * std::abs(want))
            << x[i] << " ** " << power << " = " << got;
      }
    }
  }
}

TEST(Math, SpecialValues) {
  const float inf = INFINITY, nan = NAN;
  std::vector<float> x{0.0f,    -0.0f,    inf,  -inf,  nan,    1e-45f,  -1e-45f, 1e-40f, -1e-40f,
                       3.4e38f, -3.4e38f, 1.0f, -1.0f, 100.0f, -110.0f, -1.5f,   90.0f};
  for (const char* way : {"outer", "none"})
    for (const Function& f : kFunctions) {
      std::vector<float> y = evaluate<float>(f.name, x, way);
      for (size_t i = 0; i < x.size(); ++i) {
        auto want = static_cast<float>(f.exact(static_cast<double>(x[i])));
        if (std::isnan(want)) {
          EXPECT_TRUE(std::isnan(y[i])) << f.name << "(" << x[i] << ") = " << y[i];
          continue;
        }
        EXPECT_EQ(std::signbit(y[i]), std::signbit(want)) << f.name << "(" << x[i] << ") = " << y[i];
        if (std::isinf(want)) {
          EXPECT_EQ(y[i], want) << f.name << "(" << x[i] << ")";
          continue;
        }
        // exp(-x) overflows in sigmoid where the exact result is denormal: 0, as in eager.
        double slack = std::string(f.name) == "sigmoid" && want < 1e-37f ? 2e-38 : 0;
        EXPECT_LE(std::abs(static_cast<double>(y[i]) - static_cast<double>(want)),
                  4 * ulp_of(static_cast<double>(want)) + slack)
            << f.name << "(" << x[i] << ") = " << y[i] << ", not " << want;
      }
    }
}

// Every op on every dtype it takes against the interpreter.
TEST(Math, OpsAgainstInterpreter) {
  const char* unary[] = {"neg",  "abs",   "sign", "floor", "ceil",  "trunc", "round", "sqrt", "rsqrt", "recip",  "exp",
                         "exp2", "expm1", "log",  "log2",  "log10", "log1p", "sin",   "cos",  "tan",   "asin",   "acos",
                         "atan", "sinh",  "cosh", "tanh",  "asinh", "acosh", "atanh", "erf",  "erfc",  "sigmoid"};
  const char* binary[] = {"add",       "sub", "mul", "div", "floordiv", "mod",
                          "remainder", "max", "min", "pow", "atan2",    "copysign"};
  const char* integer[] = {"add",       "sub", "mul", "div", "floordiv", "mod",
                           "remainder", "max", "min", "and", "or",       "xor"};
  const char* compare[] = {"eq", "ne", "lt", "le", "gt", "ge"};
  auto text = [](const std::string& type, const std::string& result, const std::string& op, bool two) {
    return "program\nbuffer %0 \"x\" " + type + " cpu input 0 sizes [37] strides [1]\nbuffer %1 \"y\" " + type +
           " cpu input 1 sizes [37] strides [1]\nbuffer %2 \"o\" " + result +
           " cpu output sizes [37] strides [1]\nnest \"n\" outer [i0: 37] vector outer tile 0 grain 1 locs [] {\n  "
           "stage [] {\n    v0 = load " +
           type + " %0[i0]\n    v1 = load " + type + " %1[i0]\n    v2 = " + op + " " + result + " v0" +
           (two ? ", v1" : "") + "\n    store %2[i0] = v2\n  }\n}\n" + "output view %2 " + result +
           " sizes [37] strides [1] offset 0\n";
  };
  auto inputs = [](DType t) {
    std::vector<HostTensor> in{filled(t, {37}, 1), filled(t, {37}, 2)};
    for (int i = 0; i < 37; ++i)  // no zero divisors
      if (loop::get_number(in[1], i) == 0) loop::set_number(in[1], i, 2);
    return in;
  };
  for (const char* t : {"f32", "f64", "bf16", "f16"}) {
    double tolerance = std::string(t) == "f64" ? 1e-12 : std::string(t) == "f32" ? 1e-6 : 2e-2;
    DType d = *dtype_from_name(t);
    for (const char* op : unary) check(text(t, t, op, false), inputs(d), tolerance);
    for (const char* op : binary) check(text(t, t, op, true), inputs(d), tolerance);
    for (const char* op : compare) check(text(t, "bool", op, true), inputs(d));
  }
  for (const char* t : {"i8", "i16", "i32", "i64", "u8"}) {
    DType d = *dtype_from_name(t);
    for (const char* op : integer) check(text(t, t, op, true), inputs(d));
    for (const char* op : compare) check(text(t, "bool", op, true), inputs(d));
    for (const char* op : {"neg", "abs", "sign", "not"}) check(text(t, t, op, false), inputs(d));
  }
  for (const char* op : {"and", "or", "xor", "not"}) check(text("bool", "bool", op, op[0] != 'n'), inputs(DType::Bool));
  const char* types[] = {"u8", "i8", "i16", "i32", "i64", "f16", "f32", "f64", "bool", "bf16"};
  for (const char* from : types)
    for (const char* to : types) {
      if (std::string(to) == "u8" && std::string(from) != "u8" && std::string(from) != "bool")
        continue;  // negative to unsigned: not defined for floats
      check(text(from, to, "cast", false), inputs(*dtype_from_name(from)));
    }
}

// Zeros of both signs, denormals, the bounds of overflow, infinities, NaN: the same are NaN, infinite or negative zero.
TEST(Math, EdgesAgainstInterpreter) {
  const char* unary[] = {"neg",  "abs",   "sign", "floor", "ceil",  "trunc", "round", "sqrt", "rsqrt", "recip",  "exp",
                         "exp2", "expm1", "log",  "log2",  "log10", "log1p", "sin",   "cos",  "tan",   "asin",   "acos",
                         "atan", "sinh",  "cosh", "tanh",  "asinh", "acosh", "atanh", "erf",  "erfc",  "sigmoid"};
  const char* binary[] = {"add",       "sub", "mul", "div", "floordiv", "mod",
                          "remainder", "max", "min", "pow", "atan2",    "copysign"};
  struct Type {
    const char* name;
    double low, tiny, largest, tolerance;  // the least denormal, the least normal
  };
  const Type types[] = {{"f32", 0x1p-149, 0x1p-126, 0x1.fffffep127, 1e-5},
                        {"f64", 0x1p-1074, 0x1p-1022, 0x1.fffffffffffffp1023, 1e-13},
                        {"bf16", 0x1p-133, 0x1p-126, 0x1.fep127, 1e-2},
                        {"f16", 0x1p-24, 0x1p-14, 65504, 2e-3}};
  for (const Type& t : types) {
    double bound = std::log(t.largest);
    std::vector<double> values{NAN};
    for (double v :
         {0.0, t.low, t.tiny, 0.5, 1.0, 1.5, 3.0, bound * (1 - 1e-7), bound + 0.1, bound + 0.6,
          std::log2(t.largest) - 1e-6, -std::log(t.low) - 0.1, 1e15, t.largest, static_cast<double>(INFINITY)})
      values.insert(values.end(), {v, -v});
    auto n = static_cast<int64_t>(values.size());
    HostTensor x = loop::host_tensor(*dtype_from_name(t.name), {n * n}), y = x;
    for (int64_t i = 0; i < n * n; ++i) {
      loop::set_number(x, i, values[static_cast<size_t>(i / n)]);
      loop::set_number(y, i, values[static_cast<size_t>(i % n)]);
    }
    auto run = [&](const std::string& op, bool two) {
      for (const char* way : {"outer", "none"}) {
        std::string size = std::to_string(n * n), type = t.name;
        Program p = loop::parse(
            "program\nbuffer %0 \"x\" " + type + " cpu input 0 sizes [" + size + "] strides [1]\nbuffer %1 \"y\" " +
            type + " cpu input 1 sizes [" + size + "] strides [1]\nbuffer %2 \"o\" " + type + " cpu output sizes [" +
            size + "] strides [1]\nnest \"n\" outer [i0: " + size + "] vector " + way +
            " tile 0 grain 1 locs [] {\n  stage [] {\n    v0 = load " + type + " %0[i0]\n    v1 = load " + type +
            " %1[i0]\n    v2 = " + op + " " + type + " v0" + (two ? ", v1" : "") +
            "\n    store %2[i0] = v2\n  }\n}\noutput view %2 " + type + " sizes [" + size + "] strides [1] offset 0\n");
        std::vector<HostTensor> inputs{x, y}, same{x, y};
        std::vector<double> got = elements(run_compiled(p, inputs)[0]), want = elements(loop::run(p, same)[0]);
        for (size_t i = 0; i < got.size(); ++i) {
          double g = got[i], w = want[i];
          bool fine = std::isnan(w) ? std::isnan(g)
                      : g == w      ? std::signbit(g) == std::signbit(w)
                                    : std::abs(g - w) <= t.tolerance * std::abs(w) + 4 * t.low;
          EXPECT_TRUE(fine && std::isinf(g) == std::isinf(w))
              << op << " " << t.name << " " << way << " of " << loop::get_number(x, static_cast<int64_t>(i)) << ", "
              << loop::get_number(y, static_cast<int64_t>(i)) << ": " << g << ", not " << w;
        }
      }
    };
    for (const char* op : unary) run(op, false);
    for (const char* op : binary) run(op, true);
  }
}

}  // namespace
}  // namespace braze::codegen::testing
