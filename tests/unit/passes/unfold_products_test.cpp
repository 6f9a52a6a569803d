#include "passes/unfold_products.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "meaning.h"
#include "passes/dce.h"

namespace braze::passes {
namespace {

// The operators after the pass where the library of the CPU is slow at vectors, and where it is not.
void expect_sum(const std::string& inputs, const std::string& call, bool is_sum) {
  const std::string result = "%" + std::to_string(std::count(inputs.begin(), inputs.end(), '\n'));
  SCOPED_TRACE(call);
  const graph::Graph g =
      graph::parse("graph {\n" + inputs + "  " + result + ": " + call + "\n  return " + result + "\n}\n");
  const std::string op = call.substr(call.find("aten::"), call.find('(') - call.find("aten::"));
  Target slow, fast;
  slow.slow_thin_products = true;
  const graph::Graph made = unfold_products(g, {slow, {}});
  graph::verify(made);
  EXPECT_EQ(difference(g, made, Within::Rounding), "");
  EXPECT_EQ(operators_of(made).count("aten::sum.dim_IntList"), is_sum);
  EXPECT_EQ(operators_of(dce(made)).count(op), !is_sum);
  EXPECT_EQ(operators_of(unfold_products(g, {fast, {}})).count(op), 1u);
}

TEST(UnfoldProducts, OfVectorsOnACpu) {
  const std::string inputs =
      "  %0: f32[8,5] = input argument \"dense rows\"\n  %1: f32[8,5]{1,8} = input argument \"dense columns\"\n"
      "  %2: f32[5] = input argument \"v\"\n  %3: f32[8] = input argument \"bias\"\n"
      "  %4: f32[5,1] = input argument \"column\"\n  %5: f32[1,8] = input argument \"row\"\n"
      "  %6: f32[2,8,5] = input argument \"batch\"\n  %7: f32[2,5,1] = input argument \"columns\"\n"
      "  %8: f32[2,1,8] = input argument \"rows\"\n";
  expect_sum(inputs, "f32[8] = aten::mv(%0, %2)", true);
  expect_sum(inputs, "f32[8] = aten::mv(%1, %2)", true);
  expect_sum(inputs, "f32[8] = aten::addmv(%3, %0, %2, 1, 1)", true);
  expect_sum(inputs, "f32[8] = aten::addmv(%3, %0, %2, 2, 1)", false);
  expect_sum(inputs, "f32[8,1] = aten::mm(%0, %4)", true);
  expect_sum(inputs, "f32[1,5] = aten::mm(%5, %1)", true);
  expect_sum(inputs, "f32[1,5] = aten::mm(%5, %0)", true);
  expect_sum(inputs, "f32[2,8,1] = aten::bmm(%6, %7)", true);
  expect_sum(inputs, "f32[2,1,5] = aten::bmm(%8, %6)", true);
}

TEST(UnfoldProducts, AcrossTheMemoryOfALargeMatrixTheyStay) {
  const std::string inputs =
      "  %0: f32[1,100] = input argument \"row\"\n  %1: f32[100,90] = input argument \"dense rows\"\n"
      "  %2: f32[100,90]{1,100} = input argument \"dense columns\"\n";
  expect_sum(inputs, "f32[1,90] = aten::mm(%0, %1)", false);
  expect_sum(inputs, "f32[1,90] = aten::mm(%0, %2)", true);
}

TEST(UnfoldProducts, OfBatchesFurtherForms) {
  const std::string inputs =
      "  %0: f64[2,8,5]{40,1,8} = input argument \"dense columns\"\n  %1: f64[2,1,8] = input argument \"rows\"\n"
      "  %2: f64[1,5] = input argument \"bias\"\n  %3: f64[1,8] = input argument \"row\"\n"
      "  %4: f64[8,5]{1,8} = input argument \"matrix\"\n  %5: f64[8,3]{1,8} = input argument \"few\"\n"
      "  %6: f64[2,8] = input argument \"two rows\"\n";
  expect_sum(inputs, "f64[2,1,5] = aten::bmm(%1, %0)", true);
  expect_sum(inputs, "f64[1,5] = aten::addmm(%2, %3, %4, 1, 1)", true);
  expect_sum(inputs, "f64[1,3] = aten::mm(%3, %5)", false);
  expect_sum(inputs, "f64[2,5] = aten::mm(%6, %4)", false);
}

TEST(UnfoldProducts, OuterProductsAreProductsOfElements) {
  for (const char* call :
       {"f32[2,3,4] = aten::bmm(%0, %1)", "bf16[3,4] = aten::mm(%2, %3)", "f32[2,3,1] = aten::bmm(%0, %4)"}) {
    SCOPED_TRACE(call);
    const graph::Graph g = graph::parse(
        std::string(
            "graph {\n  %0: f32[2,3,1] = input argument \"columns\"\n  %1: f32[2,1,4] = input argument \"rows\"\n") +
        "  %2: bf16[3,1] = input argument \"column\"\n  %3: bf16[1,4] = input argument \"row\"\n" +
        "  %4: f32[2,1,1]{1,7,7} = input argument \"numbers\"\n  %5: " + call + "\n  return %5\n}\n");
    const graph::Graph made = unfold_products(g, {Target(), {}});
    graph::verify(made);
    EXPECT_EQ(difference(g, made, Within::Rounding), "");
    EXPECT_EQ(operators_of(made).count("aten::mul.Tensor"), 1u);
    EXPECT_EQ(operators_of(made).count("aten::sum.dim_IntList"), 0u);
    EXPECT_EQ(operators_of(made).count("aten::mm") + operators_of(made).count("aten::bmm"), 0u);
  }
}

}  // namespace
}  // namespace braze::passes
