// Loop nests through the system's C++ compiler against the interpreter. BRAZE_TEST_CODEGEN=cpp runs all tests of nests,
// functions and conversions this way.
#include <cstdlib>

#include "run_program.h"

namespace braze::codegen::testing {
namespace {

std::string row_program(const std::string& in, const std::string& out, const std::string& kind, const std::string& way,
                        int64_t rows, int64_t columns) {
  std::string r = std::to_string(rows), c = std::to_string(columns);
  std::string index = way == "outer" ? "i0 + " + r + "*r0" : "r0 + " + c + "*i0";
  return "program\nbuffer %0 \"x\" " + in + " cpu input 0 sizes [" + std::to_string(rows * columns) +
         "] strides [1]\nbuffer %1 \"o\" " + out + " cpu output sizes [" + r +
         "] strides [1]\nnest \"n\" outer [i0: " + r + "] vector " + way +
         " tile 0 grain 1 locs [] {\n  stage [r0: " + c + "] {\n    v0 = load " + in + " %0[" + index +
         "]\n    v1 = reduce " + out + " " + kind +
         " v0\n  }\n  stage [] {\n    store %1[i0] = v1\n  }\n}\noutput view %1 " + out + " sizes [" + r +
         "] strides [1] offset 0\n";
}

TEST(Cpp, ReducesInEveryWay) {
  struct Case {
    const char *kind, *in, *out;
  };
  const Case cases[] = {{"sum", "f32", "f32"},        {"prod", "f32", "f32"},    {"max", "f32", "f32"},
                        {"min", "f64", "f64"},        {"any", "bool", "bool"},   {"all", "bool", "bool"},
                        {"argmax", "f32", "i64"},     {"argmin", "i32", "i64"},  {"welford_mean", "f32", "f32"},
                        {"welford_m2", "f32", "f32"}, {"exp_sum", "f32", "f32"}, {"max", "bf16", "bf16"},
                        {"sum", "i64", "i64"},        {"min", "u8", "u8"}};
  for (const Case& k : cases)
    for (const char* way : {"none", "outer", "inner"})
      check(row_program(k.in, k.out, k.kind, way, 19, 261), {filled(*dtype_from_name(k.in), {19 * 261}, 5)}, 2e-5,
            cpp_generator());
}

TEST(Cpp, WritesWhatIsLeftOverAndNothingElse) {
  for (const char* type : {"f32", "f64", "bf16", "f16", "i8", "u8", "i16", "i32", "i64"}) {
    std::string t = type;
    check("program\nbuffer %0 \"x\" " + t + " cpu input 0 sizes [77] strides [1]\nbuffer %1 \"o\" " + t +
              " cpu output sizes [77] strides [1]\nnest \"n\" outer [i0: 77] vector outer tile 0 grain 1 locs [] {\n"
              "  stage [] {\n    v0 = load " +
              t + " %0[i0]\n    v1 = add " + t + " v0, v0\n    v2 = max " + t +
              " v1, v0\n    store %1[i0] = v2\n  }\n}\noutput view %1 " + t + " sizes [77] strides [1] offset 0\n",
          {filled(*dtype_from_name(t), {77}, 3)}, 2e-6, cpp_generator());
  }
}

TEST(Cpp, AnIndexOutOfRangeIsReported) {
  Program p = loop::parse(
      "program\nbuffer %0 \"x\" f32 cpu input 0 sizes [10] strides [1]\nbuffer %1 \"at\" i64 cpu input 1 sizes [40] "
      "strides "
      "[1]\nbuffer %2 \"o\" f32 cpu output sizes [40] strides [1]\nnest \"n\" outer [i0: 40] vector outer tile 0 grain "
      "1 "
      "locs [] {\n  stage [] {\n    v0 = load i64 %1[i0]\n    indirect t0 = v0 bound 10\n    v1 = load f32 %0[t0]\n    "
      "store "
      "%2[i0] = v1\n  }\n}\noutput view %2 f32 sizes [40] strides [1] offset 0\n");
  std::vector<HostTensor> inputs{filled(DType::F32, {10}, 1), loop::host_tensor(DType::I64, {40})};
  for (int i = 0; i < 40; ++i) loop::set_number(inputs[1], i, i % 10 - (i % 2 ? 10 : 0));
  std::vector<HostTensor> same = inputs;
  expect_close(run_compiled(p, inputs, cpp_generator()), loop::run(p, same), 0, "in range");
  EXPECT_FALSE(take_fault());
  loop::set_number(inputs[1], 37, 10);
  run_compiled(p, inputs, cpp_generator());
  auto fault = take_fault();
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->value, 10);
}

TEST(Cpp, WithoutACompilerItSaysWhatToDo) {
  const char* before = std::getenv("CXX");
  std::string kept = before ? before : "";
  setenv("CXX", "no-such-compiler", 1);
  std::string said;
  try {
    link(loop::parse(row_program("f32", "f32", "sum", "inner", 7, 19)), cpp_generator());
  } catch (const Unsupported& e) {
    said = e.detail();
  }
  if (before)
    setenv("CXX", kept.c_str(), 1);
  else
    unsetenv("CXX");
  EXPECT_NE(said.find("install g++ or clang++, or name one in CXX"), std::string::npos) << said;
}

}  // namespace
}  // namespace braze::codegen::testing
