// The interpreter against identities of mathematics, and against numbers that PyTorch's documentation gives.
#include "graph/interpret.h"

#include <gtest/gtest.h>

#include <cmath>

namespace braze::graph {
namespace {

HostTensor wave(std::vector<int64_t> sizes, double phase) {
  HostTensor t{DType::F64, std::move(sizes), {}};
  int64_t n = 1;
  for (int64_t s : t.sizes) n *= s;
  for (int64_t i = 0; i < n; ++i) t.data.push_back(std::sin(phase + 1.7 * static_cast<double>(i)));
  return t;
}

double inner(const HostTensor& a, const HostTensor& b) {
  EXPECT_EQ(a.sizes, b.sizes);
  double s = 0;
  for (size_t i = 0; i < a.data.size(); ++i) s += a.data[i] * b.data.at(i);
  return s;
}

// y is linear in x and in w, so that <y(x, w), g> is <x, dx> and <w, dw>, and <bias, db> for a bias of ones.
TEST(Interpreter, GradientsOfConvolutionsAreTheirAdjoints) {
  struct Case {
    std::string x, w, y, how, bias;
  };
  for (const Case& c : {Case{"2,4,5,4", "6,2,3,2", "2,6,3,5", "[2, 1], [1, 1], [1, 1], false, [0, 0], 2", "6"},
                        Case{"2,4,5,4", "4,3,3,2", "2,6,9,3", "[2, 1], [1, 1], [1, 1], true, [0, 0], 2", "6"}}) {
    Graph g =
        parse("graph {\n%0: f64[" + c.x + "] = input argument\n%1: f64[" + c.w + "] = input argument\n%2: f64[" + c.y +
              "] = input argument\n%3: f64[" + c.y + "] = aten::convolution(%0, %1, none, " + c.how + ")\n%4: f64[" +
              c.x + "], %5: f64[" + c.w + "], %6: f64[" + c.bias + "] = aten::convolution_backward(%2, %0, %1, [" +
              c.bias + "], " + c.how + ", bools[true, true, true])\nreturn %3, %4, %5, %6\n}");
    std::vector<HostTensor> in;
    for (const Input& i : g.inputs) {
      std::vector<int64_t> sizes;
      for (Expr e : g.type(i.value).sizes) sizes.push_back(*g.arena().as_const(e));
      in.push_back(wave(sizes, static_cast<double>(in.size())));
    }
    auto out = interpret(g, in);
    double whole = inner(out[0], in[2]);
    EXPECT_GT(std::fabs(whole), 1e-3);
    EXPECT_NEAR(whole, inner(in[0], out[1]), 1e-9);
    EXPECT_NEAR(whole, inner(in[1], out[2]), 1e-9);
    double all = 0, by_bias = 0;
    for (double v : in[2].data) all += v;
    for (double v : out[3].data) by_bias += v;
    EXPECT_NEAR(all, by_bias, 1e-9);
  }
}

// A transposed convolution is the adjoint of the one with the same weights.
TEST(Interpreter, TransposedConvolution) {
  Graph g = parse(R"(graph {
%0: f64[1,2,5] = input argument
%1: f64[3,2,3] = input argument
%2: f64[1,3,3] = input argument
%3: f64[1,3,3] = aten::convolution(%0, %1, none, [2], [1], [1], false, [0], 1)
%4: f64[1,2,5] = aten::convolution(%2, %1, none, [2], [1], [1], true, [0], 1)
return %3, %4
})");
  std::vector<HostTensor> in{wave({1, 2, 5}, 0), wave({3, 2, 3}, 1), wave({1, 3, 3}, 2)};
  auto out = interpret(g, in);
  EXPECT_NEAR(inner(out[0], in[2]), inner(in[0], out[1]), 1e-12);
}

TEST(Interpreter, WindowsAndTheirPositions) {
  Graph g = parse(R"(graph {
%0: f32[1,1,3,3] = input argument
%1: f32[1,1,2,2], %2: i64[1,1,2,2] = aten::max_pool2d_with_indices(%0, [2, 2], [2, 2], [1, 1], [1, 1], false)
return %1, %2
})");
  auto out = interpret(g, {{DType::F32, {1, 1, 3, 3}, {-1, -2, 3, 4, 5, -6, 7, 9, 8}}});
  EXPECT_EQ(out[0].data, (std::vector<double>{-1, 3, 7, 9}));
  EXPECT_EQ(out[1].data, (std::vector<double>{0, 2, 6, 7}));
}

TEST(Interpreter, IndicesApartComeFirst) {
  Graph g = parse(R"(graph {
%0: i64[2,3,2] = input argument
%1: i64[2] = input argument
%2: i64[2,3] = aten::index.Tensor(%0, tensors[%1, none, %1])
%3: i64[2,2,3]{6,1,2} = aten::permute(%0, [0, 2, 1])
%4: i64[2,3] = aten::index.Tensor(%3, tensors[%1, %1])
return %2, %4
})");
  std::vector<double> all(12);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<double>(i);
  auto out = interpret(g, {{DType::I64, {2, 3, 2}, all}, {DType::I64, {2}, {1, 0}}});
  EXPECT_EQ(out[0].data, (std::vector<double>{7, 9, 11, 0, 2, 4}));
  EXPECT_EQ(out[1].data, out[0].data);
}

TEST(Interpreter, ValuesOfMatrices) {
  Graph g = parse(R"(graph {
%0: f64[2,2] = input argument
%1: f64[2,2], %2: f64[2], %3: f64[2,2] = aten::_linalg_svd(%0, false, true, none)
%4: f64[2], %5: f64[2,2] = aten::_linalg_eigh(%0, "L", true)
%6: c128[2], %7: c128[2,2] = aten::linalg_eig(%0)
return %2, %4, %6
})");
  auto near = [](const HostTensor& t, std::vector<double> want) {
    ASSERT_EQ(t.data.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(t.data[i], want[i], 1e-9) << i;
  };
  auto out = interpret(g, {{DType::F64, {2, 2}, {3, -4, 4, 3}}});  // five times a rotation; symmetric by its lower half
  near(out[0], {5, 5});
  near(out[1], {-1, 7});
  ASSERT_EQ(out[2].data.size(), 4u);
  EXPECT_NEAR(out[2].data[0], 3, 1e-9);
  EXPECT_NEAR(std::fabs(out[2].data[1]), 4, 1e-9);
  EXPECT_NEAR(out[2].data[1], -out[2].data[3], 1e-9);
}

// The same numbers in every run; a seeded operator gives those of the generator's number that it was given.
TEST(Interpreter, RandomNumbers) {
  Graph g = parse(R"(graph {
%0: f32[1000] = aten::rand([1000], none, none, none, none)
%1: f32[1000] = aten::randn([1000], none, none, none, none)
return %0, %1
})");
  Graph seeded = parse(R"(graph {
%0: i64[] = aten::randint.low(-9223372036854775808, 9223372036854775807, [], dtype.i64, none, none, none)
%1: f32[1000] = aten::rand([1000], none, none, none, none, %0)
return %1
})");
  auto out = interpret(g, {});
  EXPECT_EQ(out[0].data, interpret(g, {})[0].data);
  EXPECT_EQ(out[0].data, interpret(seeded, {})[0].data);
  for (size_t k = 0; k < 2; ++k) {
    double mean = 0, square = 0;
    for (double v : out[k].data) mean += v / 1000, square += v * v / 1000;
    EXPECT_NEAR(mean, k ? 0 : 0.5, 0.1);
    EXPECT_NEAR(square - mean * mean, k ? 1 : 1.0 / 12, k ? 0.15 : 0.02);
  }
}

}  // namespace
}  // namespace braze::graph
