// Loop nests through the CPU code generator against the interpreter: every mapping, whole and ragged extents.
#include <array>
#include <limits>

#include "run_program.h"

namespace braze::codegen::testing {
namespace {

const char* kWays[] = {"none", "outer", "inner"};

TEST(Nest, PointwiseBroadcast) {
  for (const char* way : {"none", "outer"})
    for (int64_t rows : {1, 3, 70})
      for (int64_t cols : {1, 2, 5, 8, 16, 17, 31, 64, 100, 2048, 5003}) {
        std::string c = str(cols), r = str(rows);
        check("program\nbuffer %0 \"x\" f32 cpu input 0 sizes [" + r + ", " + c + "] strides [" + c +
                  ", 1]\n"
                  "buffer %1 \"b\" f32 cpu input 1 sizes [" +
                  c +
                  "] strides [1]\n"
                  "buffer %2 \"c\" f32 cpu input 2 sizes [" +
                  r +
                  "] strides [1]\n"
                  "buffer %3 \"o\" f32 cpu output sizes [" +
                  r + ", " + c + "] strides [" + c +
                  ", 1]\n"
                  "nest \"n\" outer [i0: " +
                  r + ", i1: " + c + "] vector " + way +
                  " tile 0 grain 1 locs [] {\n  stage [] {\n"
                  "    v0 = load f32 %0[i1 + " +
                  c +
                  "*i0]\n    v1 = load f32 %1[i1]\n    v2 = load f32 %2[i0]\n"
                  "    v3 = add f32 v0, v1\n    v4 = mul f32 v3, v2\n    v5 = const f32 0.5\n    v6 = max f32 v4, v5\n"
                  "    store %3[i1 + " +
                  c +
                  "*i0] = v6\n  }\n}\n"
                  "output view %3 f32 sizes [" +
                  r + ", " + c + "] strides [" + c + ", 1] offset 0\n",
              {filled(DType::F32, {rows, cols}, 1), filled(DType::F32, {cols}, 2), filled(DType::F32, {rows}, 3)});
        if (HasFatalFailure()) return;
      }
}

TEST(Nest, SymbolicSizes) {
  for (int64_t rows : {2, 5})
    for (int64_t cols : {2, 16, 65, 4100})
      for (const char* way : kWays) {
        check(std::string(
                  "program\nsymbol s0 size [2, 100000] = input 0 dim 0\nsymbol s1 size [2, 100000] = input 0 dim 1\n"
                  "buffer %0 \"x\" f32 cpu input 0 sizes [s0, s1] strides [s1, 1]\n"
                  "buffer %1 \"o\" f32 cpu output sizes [s0, s1] strides [s1, 1]\n"
                  "nest \"n\" outer [i0: s0, i1: s1] vector ") +
                  (way == kWays[2] ? "outer" : way) +
                  " tile 0 grain 1 locs [] {\n  stage [] {\n"
                  "    v0 = load f32 %0[i1 + s1*i0]\n    v1 = mul f32 v0, v0\n    store %1[i1 + s1*i0] = v1\n  }\n}\n"
                  "output view %1 f32 sizes [s0, s1] strides [s1, 1] offset 0\n",
              {filled(DType::F32, {rows, cols}, 1)});
        if (HasFatalFailure()) return;
        check(std::string(
                  "program\nsymbol s0 size [2, 100000] = input 0 dim 0\nsymbol s1 size [2, 100000] = input 0 dim 1\n"
                  "buffer %0 \"x\" f32 cpu input 0 sizes [s0, s1] strides [s1, 1]\n"
                  "buffer %1 \"o\" f32 cpu output sizes [s0] strides [1]\n"
                  "nest \"n\" outer [i0: s0] vector ") +
                  way +
                  " tile 0 grain 1 locs [] {\n  stage [r0: s1] {\n"
                  "    v0 = load f32 %0[r0 + s1*i0]\n    v1 = reduce f32 sum v0\n  }\n  stage [] {\n    store %1[i0] = "
                  "v1\n  }\n}\n"
                  "output view %1 f32 sizes [s0] strides [1] offset 0\n",
              {filled(DType::F32, {rows, cols}, 1)});
        if (HasFatalFailure()) return;
      }
}

TEST(Nest, Reductions) {
  struct Case {
    const char* kind;
    const char* type;
    const char* in;
    DType dtype;
  };
  const Case cases[] = {{"sum", "f32", "f32", DType::F32},          {"prod", "f32", "f32", DType::F32},
                        {"max", "f32", "f32", DType::F32},          {"min", "f64", "f64", DType::F64},
                        {"max", "i64", "i64", DType::I64},          {"min", "u8", "u8", DType::U8},
                        {"any", "bool", "bool", DType::Bool},       {"all", "bool", "bool", DType::Bool},
                        {"argmax", "i64", "f32", DType::F32},       {"argmin", "i64", "i32", DType::I32},
                        {"welford_mean", "f32", "f32", DType::F32}, {"welford_m2", "f32", "f32", DType::F32},
                        {"sum", "i64", "i64", DType::I64},          {"max", "bf16", "bf16", DType::BF16},
                        {"sum", "f64", "f64", DType::F64},          {"exp_sum", "f32", "f32", DType::F32},
                        {"exp_sum", "f64", "f64", DType::F64}};
  for (const Case& k : cases)
    for (const char* way : kWays)
      for (auto [rows, cols] :
           {std::pair<int64_t, int64_t>{3, 7}, {17, 16}, {16, 100}, {130, 64}, {5, 1025}, {1, 4096 * 3 + 5}}) {
        std::string r = str(rows), c = str(cols), t = k.type;
        bool column = std::string(way) == "outer";
        // Outer vectors want the outer axis contiguous.
        std::string index = column ? "i0 + " + r + "*r0" : "r0 + " + c + "*i0";
        check("program\nbuffer %0 \"x\" " + std::string(k.in) + " cpu input 0 sizes [" + str(rows * cols) +
                  "] strides [1]\n"
                  "buffer %1 \"o\" " +
                  t + " cpu output sizes [" + r +
                  "] strides [1]\n"
                  "nest \"n\" outer [i0: " +
                  r + "] vector " + way + " tile 0 grain 1 locs [] {\n  stage [r0: " + c +
                  "] {\n"
                  "    v0 = load " +
                  k.in + " %0[" + index + "]\n    v1 = reduce " + t + " " + k.kind +
                  " v0\n  }\n"
                  "  stage [] {\n    store %1[i0] = v1\n  }\n}\n"
                  "output view %1 " +
                  t + " sizes [" + r + "] strides [1] offset 0\n",
              {filled(k.dtype, {rows * cols}, 5)}, 2e-5);
        if (HasFatalFailure()) {
          ADD_FAILURE() << k.kind << " " << way << " " << rows << "x" << cols;
          return;
        }
      }
}

// Products of matrices and windows of rows, of which several points of an axis are computed at once: with and without a
// rest of the axis and of the vectors, one sum or two, and what follows them.
TEST(Nest, Strips) {
  auto buffer = [](int i, const std::string& name, const std::string& size, const std::string& what) {
    return "buffer %" + str(i) + " \"" + name + "\" f32 cpu " + what + " sizes [" + size + "] strides [1]\n";
  };
  for (int64_t rows : {2, 5, 7, 17})
    for (int64_t cols : {3, 16, 40, 49, 130, 787})
      for (int64_t length : {-33, -2, 1, 2, 9, 33, 200}) {
        // Negative: one sum, of the products alone.
        const bool two = length > 0;
        length = std::abs(length);
        const std::string r = str(rows), c = str(cols), k = str(length), all = str(rows * cols);
        check("program\n" + buffer(0, "a", str(rows * length), "input 0") +
                  buffer(1, "b", str(length * cols), "input 1") + buffer(2, "bias", r, "input 2") +
                  buffer(3, "o", all, "output") + "nest \"n\" outer [i0: " + r + ", i1: " + c +
                  "] vector outer tile 0 grain 1 locs [] {\n  stage [r0: " + k + "] {\n    v0 = load f32 %0[r0 + " + k +
                  "*i0]\n    v1 = load f32 %1[i1 + " + c +
                  "*r0]\n    v2 = mul f32 v0, v1\n    v3 = reduce f32 sum v2\n" +
                  (two ? "    v4 = reduce f32 sum v1\n" : "") +
                  "  }\n  stage [] {\n    v5 = load f32 %2[i0]\n    v6 = add f32 v3, v5\n    v7 = max f32 v6, " +
                  (two ? "v4" : "v5") + "\n    store %3[i1 + " + c + "*i0] = v7\n  }\n}\noutput view %3 f32 sizes [" +
                  all + "] strides [1] offset 0\n",
              {filled(DType::F32, {rows * length}, 5), filled(DType::F32, {length * cols}, 7),
               filled(DType::F32, {rows}, 3)},
              2e-5);
        if (HasFatalFailure()) return;
      }
  for (int64_t places : {2, 7, 12, 19})
    for (int64_t channels : {3, 16, 24, 50})
      for (int64_t step : {1, 2}) {
        const int64_t wide = (places - 1) * step + 5;
        const std::string w = str(places), c = str(channels), row = str(wide * channels),
                          all = str(2 * places * channels);
        check("program\n" + buffer(0, "x", str(4 * wide * channels), "input 0") +
                  buffer(1, "w", str(15 * channels), "input 1") + buffer(2, "o", all, "output") +
                  "nest \"n\" outer [i0: 2, i1: " + w + ", i2: " + c +
                  "] vector outer tile 0 grain 1 locs [] {\n  stage [r0: 3, r1: 5] {\n    v0 = load f32 %0[i2 + " + c +
                  "*r1 + " + str(step * channels) + "*i1 + " + row + "*i0 + " + row +
                  "*r0]\n    v1 = load f32 %1[i2 + " + c + "*r1 + " + str(5 * channels) +
                  "*r0]\n    v2 = mul f32 v0, v1\n    v3 = reduce f32 sum v2\n  }\n" +
                  "  stage [] {\n    store %2[i2 + " + c + "*i1 + " + str(places * channels) +
                  "*i0] = v3\n  }\n}\noutput view %2 f32 sizes [" + all + "] strides [1] offset 0\n",
              {filled(DType::F32, {4 * wide * channels}, 5), filled(DType::F32, {15 * channels}, 7)}, 2e-5);
        if (HasFatalFailure()) return;
      }
}

// Places moved inside count where they were not moved: neighbours, and every second or third element.
TEST(Nest, PlacesMovedInside) {
  for (int64_t out : {5, 8, 9, 14, 33, 70})
    for (int64_t step : {1, 2, 3, 5})
      for (int64_t before : {0, 1, 4})
        for (const char* way : {"outer", "inner"}) {
          const int64_t in = std::max<int64_t>(1, out * step - 2 * before);
          const std::string x = str(in), o = str(out), all = str(3 * out),
                            place = (step > 1 ? str(step) + "*i1" : "i1") + (before ? " - " + str(before) : "");
          check("program\nbuffer %0 \"x\" f32 cpu input 0 sizes [" + str(3 * in) +
                    "] strides [1]\nbuffer %1 \"o\" f32 cpu output sizes [" + all +
                    "] strides [1]\nnest \"n\" outer [i0: 3, i1: " + o + "] vector " + std::string(way) +
                    " tile 0 grain 1 locs [] {\n  stage [] {\n    v0 = index i32 " + place +
                    "\n    v1 = const i32 0\n    v2 = ge bool v0, v1\n    v3 = const i32 " + x +
                    "\n    v4 = lt bool v0, v3\n    v5 = and bool v2, v4\n    v6 = load f32 %0[" + x +
                    "*i0 + Max(Min(" + place + ", " + str(in - 1) +
                    "), 0)]\n    v7 = const f32 7\n    v8 = where f32 v5, v6, v7\n    store %1[i1 + " + o +
                    "*i0] = v8\n  }\n}\noutput view %1 f32 sizes [" + all + "] strides [1] offset 0\n",
                {filled(DType::F32, {3 * in}, 5)}, 0);
          if (HasFatalFailure()) return;
        }
}

// The condition may be known only after the load, and before its cast.
TEST(Nest, PlacesMovedInsideBeforeTheCondition) {
  for (const char* way : {"outer", "inner"})
    check(
        "program\nbuffer %0 \"x\" i32 cpu input 0 sizes [60] strides [1]\nbuffer %1 \"o\" f32 cpu output sizes [66] "
        "strides [1]\nnest \"n\" outer [i0: 3, i1: 22] vector " +
            std::string(way) +
            " tile 0 grain 1 locs [] {\n  stage [] {\n    v0 = load i32 %0[20*i0 + Max(Min(i1 - 1, 19), 0)]\n"
            "    v1 = index i32 i1 - 1\n    v2 = const i32 0\n    v3 = ge bool v1, v2\n    v4 = const i32 20\n"
            "    v5 = lt bool v1, v4\n    v6 = and bool v3, v5\n    v7 = cast f32 v0\n    v8 = const f32 7\n"
            "    v9 = where f32 v6, v7, v8\n    store %1[22*i0 + i1] = v9\n  }\n}\n"
            "output view %1 f32 sizes [66] strides [1] offset 0\n",
        {filled(DType::I32, {60}, 5)}, 0);
}

TEST(Nest, MeanAndVarianceOfOneValue) {
  // Much farther from zero than from each other.
  auto far = [](int64_t n) {
    HostTensor t = filled(DType::F32, {n}, 5);
    for (int64_t i = 0; i < n; ++i) loop::set_number(t, i, 1e5 + loop::get_number(t, i));
    return t;
  };
  for (const char* way : kWays)
    for (auto [rows, cols] :
         {std::pair<int64_t, int64_t>{3, 7}, {17, 16}, {16, 100}, {130, 768}, {5, 1025}, {2, 4096 * 3 + 5}}) {
      std::string r = str(rows), c = str(cols),
                  index = std::string(way) == "outer" ? "i0 + " + r + "*r0" : "r0 + " + c + "*i0";
      check("program\nbuffer %0 \"x\" f32 cpu input 0 sizes [" + str(rows * cols) +
                "] strides [1]\n"
                "buffer %1 \"m\" f32 cpu output sizes [" +
                r + "] strides [1]\nbuffer %2 \"v\" f32 cpu output sizes [" + r +
                "] strides [1]\n"
                "nest \"n\" outer [i0: " +
                r + "] vector " + way + " tile 0 grain 1 locs [] {\n  stage [r0: " + c +
                "] {\n"
                "    v0 = load f32 %0[" +
                index +
                "]\n    v1 = reduce f32 welford_m2 v0\n    v2 = reduce f32 welford_mean v0\n  }\n"
                "  stage [] {\n    store %1[i0] = v2\n    store %2[i0] = v1\n  }\n}\n"
                "output view %1 f32 sizes [" +
                r + "] strides [1] offset 0\noutput view %2 f32 sizes [" + r + "] strides [1] offset 0\n",
            {far(rows * cols)}, 2e-6);
      if (HasFatalFailure()) return;
    }
}

// With the maximum, which shares its work; of growing and falling rows, and with elements that are -inf, inf and NaN at
// the start, in the middle, everywhere.
TEST(Nest, SumOfExponentialsAndMaximum) {
  constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();
  struct Case {
    double slope;
    std::vector<std::pair<double, double>> special;  // from this share of a row on: the value
  };
  const Case cases[] = {{0, {}},
                        {0.1, {}},
                        {-0.1, {}},
                        {0, {{0, -kInf}, {0.6, 1}}},
                        {0, {{0.5, -kInf}}},
                        {0, {{0, -kInf}}},
                        {0, {{0, 3}, {0.99, kInf}}},
                        {0, {{0, kInf}, {0.01, 2}}},
                        {0, {{0.4, kNan}, {0.41, 2}}},
                        {0, {{0, -1000}, {0.9, 1000}}}};
  for (const char* way : kWays)
    for (auto [rows, cols] : {std::pair<int64_t, int64_t>{3, 7}, {17, 16}, {5, 1025}, {2, 4096 * 3 + 5}})
      for (const Case& k : cases) {
        HostTensor x = filled(DType::F32, {rows * cols}, 5);
        bool column = std::string(way) == "outer";
        for (int64_t i = 0; i < rows; ++i)
          for (int64_t j = 0; j < cols; ++j) {
            int64_t at = column ? i + rows * j : j + cols * i;
            double v = loop::get_number(x, at) + k.slope * static_cast<double>(j);
            if (i != 1)  // one row without
              for (auto [from, value] : k.special)
                if (static_cast<double>(j) >= from * static_cast<double>(cols)) v = value;
            loop::set_number(x, at, v);
          }
        std::string r = str(rows), c = str(cols), index = column ? "i0 + " + r + "*r0" : "r0 + " + c + "*i0";
        check("program\nbuffer %0 \"x\" f32 cpu input 0 sizes [" + str(rows * cols) +
                  "] strides [1]\nbuffer %1 \"s\" f32 cpu output sizes [" + r +
                  "] strides [1]\nbuffer %2 \"m\" f32 cpu output sizes [" + r +
                  "] strides [1]\nnest \"n\" outer [i0: " + r + "] vector " + way +
                  " tile 0 grain 1 locs [] {\n  stage [r0: " + c + "] {\n    v0 = load f32 %0[" + index +
                  "]\n    v1 = reduce f32 exp_sum v0\n    v2 = reduce f32 max v0\n  }\n"
                  "  stage [] {\n    store %1[i0] = v1\n    store %2[i0] = v2\n  }\n}\n"
                  "output view %1 f32 sizes [" +
                  r + "] strides [1] offset 0\noutput view %2 f32 sizes [" + r + "] strides [1] offset 0\n",
              {x}, 5e-6);
        if (HasFatalFailure()) return;
      }
}

TEST(Nest, EmptyExtents) {
  for (const char* way : {"none", "outer"})
    for (auto [rows, cols] : {std::pair<int64_t, int64_t>{0, 8}, {8, 0}}) {
      std::string r = str(rows), c = str(cols);
      check("program\nbuffer %0 \"x\" f32 cpu input 0 sizes [" + r + ", " + c + "] strides [" + c +
                ", 1]\n"
                "buffer %1 \"o\" f32 cpu output sizes [" +
                r + ", " + c + "] strides [" + c +
                ", 1]\n"
                "nest \"n\" outer [i0: " +
                r + ", i1: " + c + "] vector " + way +
                " tile 0 grain 1 locs [] {\n  stage [] {\n"
                "    v0 = load f32 %0[i1 + " +
                c + "*i0]\n    store %1[i1 + " + c +
                "*i0] = v0\n  }\n}\n"
                "output view %1 f32 sizes [" +
                r + ", " + c + "] strides [" + c + ", 1] offset 0\n",
            {filled(DType::F32, {rows, cols}, 1)});
    }
  for (const char* way : kWays)  // a sum over nothing
    check(std::string("program\nbuffer %0 \"x\" f32 cpu input 0 sizes [3, 0] strides [1, 1]\nbuffer %1 \"o\" f32 cpu "
                      "output sizes [3] strides [1]\n"
                      "nest \"n\" outer [i0: 3] vector ") +
              way +
              " tile 0 grain 1 locs [] {\n  stage [r0: 0] {\n    v0 = load f32 %0[r0 + i0]\n"
              "    v1 = reduce f32 sum v0\n  }\n  stage [] {\n    store %1[i0] = v1\n  }\n}\noutput view %1 f32 sizes "
              "[3] strides [1] offset 0\n",
          {filled(DType::F32, {3, 0}, 1)});
}

TEST(Nest, SoftmaxWithLocal) {
  for (const char* way : kWays)
    for (int64_t cols : {5, 64, 197, 1024}) {
      std::string c = str(cols);
      int64_t rows = 33;
      check("program\nbuffer %0 \"x\" f32 cpu input 0 sizes [33, " + c + "] strides [" + c +
                ", 1]\n"
                "buffer %1 \"e\" f32 cpu local sizes [" +
                c +
                "] strides [1]\n"
                "buffer %2 \"o\" f32 cpu output sizes [33, " +
                c + "] strides [" + c +
                ", 1]\n"
                "nest \"n\" outer [i0: 33] vector " +
                way +
                " tile 0 grain 1 locs [] {\n"
                "  stage [r0: " +
                c + "] {\n    v0 = load f32 %0[r0 + " + c +
                "*i0]\n    v1 = reduce f32 max v0\n  }\n"
                "  stage [r1: " +
                c + "] {\n    v2 = load f32 %0[r1 + " + c +
                "*i0]\n    v3 = sub f32 v2, v1\n    v4 = exp f32 v3\n"
                "    store %1[r1] = v4\n    v5 = reduce f32 sum v4\n  }\n"
                "  stage [r2: " +
                c + "] {\n    v6 = load f32 %1[r2]\n    v7 = div f32 v6, v5\n    store %2[r2 + " + c +
                "*i0] = v7\n  }\n}\n"
                "output view %2 f32 sizes [33, " +
                c + "] strides [" + c + ", 1] offset 0\n",
            {filled(DType::F32, {rows, cols}, 1)}, 1e-5);
      if (HasFatalFailure()) return;
    }
}

TEST(Nest, TransposedAndStrided) {
  for (int tile : {0, 32})
    for (auto [n, m] : {std::pair<int64_t, int64_t>{16, 16}, {40, 70}, {128, 96}, {5, 200}}) {
      std::string a = str(n), b = str(m);
      for (const char* t : {"f32", "bf16", "f64", "i8"}) {
        DType d = *dtype_from_name(t);
        check("program\nbuffer %0 \"x\" " + std::string(t) + " cpu input 0 sizes [" + a + ", " + b + "] strides [" + b +
                  ", 1]\n"
                  "buffer %1 \"y\" " +
                  t + " cpu input 1 sizes [" + b + ", " + a + "] strides [" + a +
                  ", 1]\n"
                  "buffer %2 \"o\" " +
                  t + " cpu output sizes [" + a + ", " + b + "] strides [" + b +
                  ", 1]\n"
                  "nest \"n\" outer [i0: " +
                  a + ", i1: " + b + "] vector outer tile " + str(tile) +
                  " grain 1 locs [] {\n  stage [] {\n"
                  "    v0 = load " +
                  t + " %0[i1 + " + b + "*i0]\n    v1 = load " + t + " %1[i0 + " + a +
                  "*i1]\n"
                  "    v2 = add " +
                  t + " v0, v1\n    store %2[i1 + " + b +
                  "*i0] = v2\n  }\n}\n"
                  "output view %2 " +
                  t + " sizes [" + a + ", " + b + "] strides [" + b + ", 1] offset 0\n",
              {filled(d, {n, m}, 1), filled(d, {m, n}, 2)});
        if (HasFatalFailure()) return;
      }
    }
  // A store with a stride, and a read backwards.
  for (int64_t n : {7, 64, 100})
    check("program\nbuffer %0 \"x\" f32 cpu input 0 sizes [" + str(n) +
              "] strides [1]\n"
              "buffer %1 \"o\" f32 cpu output sizes [" +
              str(3 * n) +
              "] strides [1]\n"
              "nest \"n\" outer [i0: " +
              str(n) +
              "] vector outer tile 0 grain 1 locs [] {\n  stage [] {\n"
              "    v0 = load f32 %0[" +
              str(n - 1) +
              " + -1*i0]\n    store %1[3*i0] = v0\n  }\n}\n"
              "output view %1 f32 sizes [" +
              str(n) + "] strides [3] offset 0\n",
          {filled(DType::F32, {n}, 1)});
}

TEST(Nest, SplitAxes) {
  // Merged axes read through floordiv and mod: in vectors of one block, and not.
  for (int64_t d : {64, 16, 8, 10, 3}) {
    std::string s = str(d), total = str(d * 6);
    check("program\nbuffer %0 \"x\" f32 cpu input 0 sizes [" + str(4 * d * 6) +
              "] strides [1]\n"
              "buffer %1 \"o\" f32 cpu output sizes [4, " +
              total + "] strides [" + total +
              ", 1]\n"
              "nest \"n\" outer [i0: 4, i1: " +
              total +
              "] vector outer tile 0 grain 1 locs [] {\n  stage [] {\n"
              "    v0 = load f32 %0[i1 % " +
              s + " + " + str(4 * d) + "*(i1 // " + s + ") + " + s +
              "*i0]\n"
              "    v1 = index i64 (i1 // " +
              s +
              ") + i0\n    v2 = cast f32 v1\n    v3 = add f32 v0, v2\n"
              "    store %1[i1 + " +
              total +
              "*i0] = v3\n  }\n}\n"
              "output view %1 f32 sizes [4, " +
              total + "] strides [" + total + ", 1] offset 0\n",
          {filled(DType::F32, {4 * d * 6}, 1)});
    if (HasFatalFailure()) return;
  }
}

const char* kGather = R"(program
buffer %0 "w" f32 cpu input 0 sizes [50, 24] strides [24, 1]
buffer %1 "ids" i64 cpu input 1 sizes [9] strides [1]
buffer %2 "o" f32 cpu output sizes [9, 24] strides [24, 1]
nest "n" outer [i0: 9, i1: 24] vector outer tile 0 grain 1 locs [] {
  stage [] {
    v0 = load i64 %1[i0]
    indirect t0 = v0 bound 50
    v1 = load f32 %0[i1 + 24*t0]
    store %2[i1 + 24*i0] = v1
  }
}
output view %2 f32 sizes [9, 24] strides [24, 1] offset 0
)";

TEST(Nest, Gather) {
  HostTensor ids = loop::host_tensor(DType::I64, {9});
  int64_t values[] = {0, 49, -1, -50, 7, 3, 3, 20, -20};
  for (int i = 0; i < 9; ++i) loop::set_number(ids, i, static_cast<double>(values[i]));
  check(kGather, {filled(DType::F32, {50, 24}, 1), ids});
}

TEST(Nest, IndexOutOfRangeIsReported) {
  for (int64_t bad : {50, -51}) {
    HostTensor ids = loop::host_tensor(DType::I64, {9});
    loop::set_number(ids, 4, static_cast<double>(bad));
    Program p = loop::parse(kGather);
    std::vector<HostTensor> in{filled(DType::F32, {50, 24}, 1), ids};
    run_compiled(p, in);
    auto fault = take_fault();
    ASSERT_TRUE(fault);
    EXPECT_EQ(fault->message(), "index " + str(bad) + " is out of bounds for dimension 0 with size 50");
    EXPECT_EQ(fault->exception(), loop::FaultReport::Exception::IndexError);
    EXPECT_FALSE(take_fault());
    EXPECT_THROW(loop::run(p, in), loop::FaultError);
  }
}

TEST(Nest, IndicesThatMustNotWrap) {
  std::string text = kGather;
  text.insert(text.find("bound 50"), "check Gather 1 nonnegative ");
  HostTensor ids = loop::host_tensor(DType::I64, {9});
  std::vector<HostTensor> in{filled(DType::F32, {50, 24}, 1), ids};
  check(text, in);
  loop::set_number(in[1], 8, -1.0);
  Program p = loop::parse(text);
  EXPECT_EQ(loop::print(loop::parse(loop::print(p))), loop::print(p));
  run_compiled(p, in);
  auto fault = take_fault();
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->message(), "index -1 is out of bounds for dimension 1 with size 50");
  EXPECT_EQ(fault->exception(), loop::FaultReport::Exception::RuntimeError);
}

// 37 elements: the last vector runs under a mask, whose idle lanes hold zeros that must not count.
TEST(Nest, IntegerDivisionByZeroIsReported) {
  for (std::string op : {"div", "floordiv", "mod", "remainder"}) {
    Program p = loop::parse(
        "program\nbuffer %0 \"a\" i32 cpu input 0 sizes [37] strides [1]\nbuffer %1 \"b\" i32 cpu input 1 sizes [37] "
        "strides [1]\n"
        "buffer %2 \"o\" i32 cpu output sizes [37] strides [1]\n"
        "nest \"n\" outer [i0: 37] vector outer tile 0 grain 1 locs [] {\n  stage [] {\n    v0 = load i32 %0[i0]\n"
        "    v1 = load i32 %1[i0]\n    v2 = " +
        op +
        " i32 v0, v1\n    store %2[i0] = v2\n  }\n}\n"
        "output view %2 i32 sizes [37] strides [1] offset 0\n");
    HostTensor b = loop::host_tensor(DType::I32, {37});
    for (int i = 0; i < 37; ++i) loop::set_number(b, i, i % 5 - 7);
    std::vector<HostTensor> in{filled(DType::I32, {37}, 1), b};
    run_compiled(p, in);
    EXPECT_FALSE(take_fault()) << op;
    loop::set_number(in[1], 36, 0);
    run_compiled(p, in);
    auto fault = take_fault();
    ASSERT_TRUE(fault) << op;
    EXPECT_EQ(fault->message(), "ZeroDivisionError");
  }
}

TEST(Nest, EqualNestsShareAKernel) {
  std::string text = "program\n";
  for (int i = 0; i < 3; ++i)
    text += "buffer %" + str(i) + " \"x\" f32 cpu " + (i ? "output" : "input 0") + " sizes [40] strides [1]\n";
  for (int i = 1; i < 3; ++i)
    text += "nest \"n" + str(i) + "\" outer [i" + str(i) +
            ": 40] vector outer tile 0 grain 1 locs [] {\n  stage [] {\n    v0 = load f32 %" + str(i - 1) + "[i" +
            str(i) + "]\n    v1 = neg f32 v0\n    store %" + str(i) + "[i" + str(i) + "] = v1\n  }\n}\n";
  text += "output view %2 f32 sizes [40] strides [1] offset 0\n";
  Program p = loop::parse(text);
  EXPECT_EQ(link(p).compiled.kernels.size(), 1u);
  check(text, {filled(DType::F32, {40}, 1)});
}

}  // namespace
}  // namespace braze::codegen::testing
