// Reductions of more than the caches hold, which are read in several places at a time, against the interpreter.
#include <array>

#include "run_program.h"

namespace braze::codegen::testing {
namespace {

// Of more than the caches hold, rows of whole spans, and with a rest: the vectors in flight lie far apart.
TEST(FarRows, LongRows) {
  struct Case {
    const char *kind, *type, *in;
    DType dtype;
  };
  const Case cases[] = {{"sum", "f32", "f32", DType::F32},        {"sum", "bf16", "bf16", DType::BF16},
                        {"min", "f64", "f64", DType::F64},        {"argmax", "i64", "f32", DType::F32},
                        {"welford_m2", "f32", "f32", DType::F32}, {"exp_sum", "f32", "f32", DType::F32},
                        {"any", "bool", "bool", DType::Bool},     {"sum", "i64", "i64", DType::I64}};
  Target target = cpu_target();
  target.cache_bytes = 1 << 10;
  for (const Case& k : cases)
    for (int64_t length : {16384, 65536, 3 * 16384 + 5, 300001}) {
      if (length == 300001 && k.dtype != DType::F32) continue;
      const std::string n = str(length), t = k.type;
      check("program\nbuffer %0 \"x\" " + std::string(k.in) + " cpu input 0 sizes [3, " + n + "] strides [" + n +
                ", 1]\nbuffer %1 \"o\" " + t + " cpu output sizes [3] strides [1]\n" +
                "nest \"n\" outer [i0: 3] vector inner tile 0 grain 1 locs [] {\n  stage [r0: " + n +
                "] {\n    v0 = load " + k.in + " %0[" + n + "*i0 + r0]\n    v1 = reduce " + t + " " + k.kind +
                " v0\n  }\n  stage [] {\n    store %1[i0] = v1\n  }\n}\noutput view %1 " + t +
                " sizes [3] strides [1] offset 0\n",
            {filled(k.dtype, {3, length}, 5)}, 2e-5, cpu_generator(target));
      if (HasFatalFailure()) {
        ADD_FAILURE() << k.kind << " of " << k.in << " " << length;
        return;
      }
    }
}

// Rows that are read again with what was made of them, in two ways: the next ones are asked for, behind the last of
// which there is nothing.
TEST(FarRows, ReadAgain) {
  Target target = cpu_target();
  target.cache_bytes = 1 << 10;
  for (const auto& [in, dtype] : {std::pair{"f32", DType::F32}, {"bf16", DType::BF16}, {"f64", DType::F64}})
    for (int64_t length : {256, 1024, 1027, 20000})
      for (int64_t apart : {length, length + 3}) {
        const std::string n = str(length), far = str(apart);
        auto loaded = [&](int stage, int value) {
          const std::string v = "v" + str(value), w = "v" + str(value + 1), r = "r" + str(stage);
          return "  stage [" + r + ": " + n + "] {\n    " + v + " = load " + in + " %0[" + far + "*i0 + " + r +
                 "]\n    " + w + " = cast f32 " + v + "\n";
        };
        check("program\nbuffer %0 \"x\" " + std::string(in) + " cpu input 0 sizes [7, " + n + "] strides [" + far +
                  ", 1]\nbuffer %1 \"o\" f32 cpu output sizes [7, " + n + "] strides [" + n + ", 1]\n" +
                  "nest \"n\" outer [i0: 7] vector inner tile 0 grain 1 locs [] {\n" + loaded(0, 0) +
                  "    v2 = reduce f32 max v1\n  }\n" + loaded(1, 3) + "    v5 = sub f32 v4, v2\n" +
                  "    v6 = reduce f32 sum v5\n  }\n" + loaded(2, 7) + "    v9 = sub f32 v8, v2\n" +
                  "    v10 = add f32 v9, v6\n    store %1[" + n + "*i0 + r2] = v10\n  }\n}\n" +
                  "output view %1 f32 sizes [7, " + n + "] strides [" + n + ", 1] offset 0\n",
              {filled(dtype, {7, apart}, 5)}, 2e-5, cpu_generator(target));
        if (HasFatalFailure()) {
          ADD_FAILURE() << in << " " << length << " " << apart;
          return;
        }
      }
}

// Of more than the caches hold, rows of some pages: sixteen of them are a unit, four of which are read at a time.
TEST(FarRows, GroupsOfRows) {
  struct Case {
    const char *kind, *type, *in;
    DType dtype;
  };
  const Case cases[] = {{"sum", "f32", "f32", DType::F32},    {"sum", "bf16", "bf16", DType::BF16},
                        {"min", "f64", "f64", DType::F64},    {"any", "bool", "bool", DType::Bool},
                        {"argmax", "i64", "f32", DType::F32}, {"sum", "i64", "i64", DType::I64}};
  Target target = cpu_target();
  target.cache_bytes = 1 << 10;
  for (const Case& k : cases)
    for (auto [rows, length] : {std::array<int64_t, 2>{512, 264}, {500, 264}, {512, 3072}})
      for (bool turned : {false, true}) {  // and the rows of a matrix of matrices, the other way around
        if (length == 3072 && (turned || k.dtype != DType::F32)) continue;
        const std::string r = str(rows), n = str(length), t = k.type;
        const std::string strides = turned ? n + ", " + str(2 * length) : str(rows * length) + ", " + n;
        const std::string at =
            turned ? n + "*i0 + " + str(2 * length) + "*i1 + r0" : str(rows * length) + "*i0 + " + n + "*i1 + r0";
        check("program\nbuffer %0 \"x\" " + std::string(k.in) + " cpu input 0 sizes [2, " + r + ", " + n +
                  "] strides [" + strides + ", 1]\nbuffer %1 \"o\" " + t + " cpu output sizes [2, " + r +
                  "] strides [" + r + ", 1]\nbuffer %2 \"m\" f32 cpu output sizes [2, " + r + "] strides [" + r +
                  ", 1]\nnest \"n\" outer [i0: 2, i1: " + r + "] vector inner tile 0 grain 1 locs [] {\n  stage [r0: " +
                  n + "] {\n    v0 = load " + k.in + " %0[" + at + "]\n    v1 = reduce " + t + " " + k.kind +
                  " v0\n    v2 = cast f32 v0\n    v3 = reduce f32 max v2\n  }\n  stage [] {\n    store %1[" + r +
                  "*i0 + i1] = v1\n    v4 = add f32 v3, v3\n    store %2[" + r +
                  "*i0 + i1] = v4\n  }\n}\noutput view %1 " + t + " sizes [2, " + r + "] strides [" + r +
                  ", 1] offset 0\noutput view %2 f32 sizes [2, " + r + "] strides [" + r + ", 1] offset 0\n",
              {filled(k.dtype, {2, rows, length}, 5)}, 2e-5, cpu_generator(target));
        if (HasFatalFailure()) {
          ADD_FAILURE() << k.kind << " of " << k.in << " " << rows << "x" << length << (turned ? " turned" : "");
          return;
        }
      }
}

// What a row has for all of its elements is its own in each copy: a factor that is loaded, and its number.
TEST(FarRows, GroupsOfRowsWithFactors) {
  Target target = cpu_target();
  target.cache_bytes = 1 << 10;
  check(
      "program\nbuffer %0 \"x\" f32 cpu input 0 sizes [1024, 264] strides [264, 1]\n"
      "buffer %1 \"w\" f32 cpu input 1 sizes [1024] strides [1]\n"
      "buffer %2 \"o\" f32 cpu output sizes [1024] strides [1]\n"
      "nest \"n\" outer [i0: 1024] vector inner tile 0 grain 1 locs [] {\n  stage [r0: 264] {\n"
      "    v0 = load f32 %0[264*i0 + r0]\n    v1 = load f32 %1[i0]\n    v2 = mul f32 v0, v1\n"
      "    v3 = index i64 i0 + r0\n    v4 = cast f32 v3\n    v5 = mul f32 v2, v4\n    v6 = reduce f32 max v5\n  }\n"
      "  stage [] {\n    store %2[i0] = v6\n  }\n}\n"
      "output view %2 f32 sizes [1024] strides [1] offset 0\n",
      {filled(DType::F32, {1024, 264}, 5), filled(DType::F32, {1024}, 6)}, 2e-6, cpu_generator(target));
}

// Columns of more rows than a cache has, and of open lengths: a few rows at a time, with accumulators in memory.
TEST(FarRows, ColumnsOfManyRows) {
  struct Case {
    const char *kind, *type, *in;
    DType dtype;
  };
  const Case cases[] = {{"sum", "f32", "f32", DType::F32},    {"sum", "bf16", "bf16", DType::BF16},
                        {"prod", "f32", "f32", DType::F32},   {"min", "f64", "f64", DType::F64},
                        {"max", "i64", "i64", DType::I64},    {"any", "bool", "bool", DType::Bool},
                        {"argmax", "i64", "f32", DType::F32}, {"sum", "i64", "i64", DType::I64}};
  auto reduce = [](const Case& k, bool open, int64_t outer, int64_t rows, int64_t cols) {
    std::string n = open ? "s0" : str(rows), c = str(cols), t = k.type;
    std::string at = c + "*i0 + i1";
    check("program\n" + std::string(open ? "symbol s0 size [0, 100000] = input 0 dim 1\n" : "") + "buffer %0 \"x\" " +
              k.in + " cpu input 0 sizes [" + str(outer) + ", " + n + ", " + c + "] strides [" + c + "*" + n + ", " +
              c +
              ", 1]\n"
              "buffer %1 \"o\" " +
              t + " cpu output sizes [" + str(outer) + ", " + c + "] strides [" + c +
              ", 1]\n"
              "buffer %2 \"m\" f32 cpu output sizes [" +
              str(outer) + ", " + c + "] strides [" + c + ", 1]\n" + "nest \"n\" outer [i0: " + str(outer) +
              ", i1: " + c + "] vector outer tile 0 grain 1 locs [] {\n  stage [r0: " + n + "] {\n    v0 = load " +
              k.in + " %0[" + c + "*" + n + "*i0 + " + c + "*r0 + i1]\n    v1 = reduce " + t + " " + k.kind +
              " v0\n    v2 = cast f32 v0\n    v3 = reduce f32 max v2\n  }\n"
              "  stage [] {\n    store %1[" +
              at + "] = v1\n    v4 = add f32 v3, v3\n    store %2[" + at +
              "] = v4\n  }\n}\n"
              "output view %1 " +
              t + " sizes [" + str(outer) + ", " + c + "] strides [" + c + ", 1] offset 0\noutput view %2 f32 sizes [" +
              str(outer) + ", " + c + "] strides [" + c + ", 1] offset 0\n",
          {filled(k.dtype, {outer, rows, cols}, 5)}, 2e-5);
    if (::testing::Test::HasFatalFailure())
      ADD_FAILURE() << k.kind << " of " << k.in << " " << outer << "x" << rows << "x" << cols << (open ? " open" : "");
  };
  for (const Case& k : cases) {
    for (int64_t rows : {0, 1, 7, 8, 64, 65, 130})
      for (int64_t cols : {65, 300}) {
        if (rows == 0 && std::string("sum any prod").find(k.kind) == std::string::npos) continue;  // of nothing
        reduce(k, true, 2, rows, cols);
        if (HasFatalFailure()) return;
      }
    if (k.dtype != DType::F32) continue;
    for (auto [outer, rows, cols] : {std::array<int64_t, 3>{1, 520, 1030}, {9, 700, 100}}) {
      reduce(k, false, outer, rows, cols);
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace braze::codegen::testing
