// Lowering, seen through the loop interpreter and through the shape of what it writes.
#include "lower/lower.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "graph/interpret.h"
#include "loop/analysis.h"
#include "loop/interpret.h"

namespace braze {
namespace {

loop::Program lowered(std::string_view text) {
  graph::Graph g = graph::parse(text);
  graph::verify(g);
  loop::Program p = lower::lower(g, {}, {});
  loop::verify(p);
  return p;
}

loop::HostTensor tensor(std::vector<int64_t> sizes, const std::vector<double>& values, DType dtype = DType::F32) {
  loop::HostTensor t = loop::host_tensor(dtype, std::move(sizes));
  for (size_t i = 0; i < values.size(); ++i) loop::set_number(t, static_cast<int64_t>(i), values[i]);
  return t;
}

std::vector<double> elements(const loop::HostTensor& t) {
  std::vector<double> out;
  std::vector<int64_t> index(t.sizes.size(), 0);
  int64_t count = 1;
  for (int64_t s : t.sizes) count *= s;
  for (int64_t n = 0; n < count; ++n) {
    int64_t at = t.offset;
    for (size_t d = 0; d < index.size(); ++d) at += index[d] * t.strides[d];
    out.push_back(loop::get_number(t, at));
    for (size_t d = index.size(); d-- > 0;) {
      if (++index[d] < t.sizes[d]) break;
      index[d] = 0;
    }
  }
  return out;
}

std::vector<double> iota(int n) {
  std::vector<double> v(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) v[static_cast<size_t>(i)] = i;
  return v;
}

size_t nests(const loop::Program& p) {
  size_t n = 0;
  for (const loop::Item& i : p.items) n += std::holds_alternative<loop::Nest>(i);
  return n;
}

TEST(Lower, PointwiseChainIsOneNest) {
  auto p = lowered(R"(graph {
    %0: f32[2,3] = input argument
    %1: f32[3] = input argument
    %2: f32[2,3] = aten::add.Tensor(%0, %1, 2)
    %3: f32[2,3] = aten::relu(%2)
    %4: f32[2,3] = aten::pow.Tensor_Scalar(%3, 2)
    return %4
  })");
  EXPECT_EQ(nests(p), 1u);
  std::vector<loop::HostTensor> in{tensor({2, 3}, {1, -9, 3, 4, 5, -6}), tensor({3}, {1, 2, 3})};
  EXPECT_EQ(elements(loop::run(p, in)[0]), (std::vector<double>{9, 0, 81, 36, 81, 0}));
}

TEST(Lower, SoftmaxIsRight) {
  auto p = lowered(R"(graph {
    %0: f32[2,4] = input argument
    %1: f32[2,1] = aten::amax(%0, [-1], true)
    %2: f32[2,4] = aten::sub.Tensor(%0, %1, 1)
    %3: f32[2,4] = aten::exp(%2)
    %4: f32[2,1] = aten::sum.dim_IntList(%3, [-1], true, none)
    %5: f32[2,4] = aten::div.Tensor(%3, %4)
    return %5
  })");
  std::vector<double> x{1, 2, 3, 4, -1, 0, 1, 100};
  std::vector<loop::HostTensor> in{tensor({2, 4}, x)};
  auto out = elements(loop::run(p, in)[0]);
  for (int r = 0; r < 2; ++r) {
    double m = -INFINITY, s = 0;
    for (int c = 0; c < 4; ++c) m = std::max(m, x[r * 4 + c]);
    for (int c = 0; c < 4; ++c) s += std::exp(x[r * 4 + c] - m);
    for (int c = 0; c < 4; ++c) EXPECT_NEAR(out[r * 4 + c], std::exp(x[r * 4 + c] - m) / s, 1e-6);
  }
}

TEST(Lower, ViewsOfBuffersAreWindows) {
  auto p = lowered(R"(graph {
    %0: f32[2,3,4] = input argument
    %1: f32[3,2,4]{4,12,1} = aten::permute(%0, [1, 0, 2])
    %2: f32[3,2,2]{4,12,2} = aten::slice.Tensor(%1, 2, 1, 9223372036854775807, 2)
    %3: f32[6,4] = aten::view(%0, [6, 4])
    return %2, %3, %0
  })");
  EXPECT_TRUE(p.items.empty());
  EXPECT_EQ(p.outputs[0].kind, loop::Output::Kind::View);
  EXPECT_EQ(p.outputs[2].kind, loop::Output::Kind::Input);
  EXPECT_EQ(p.buffers[p.outputs[0].view.buffer].kind, loop::BufferKind::Input);
  std::vector<loop::HostTensor> in{tensor({2, 3, 4}, iota(24))};
  EXPECT_EQ(elements(loop::run(p, in)[0]), (std::vector<double>{1, 3, 13, 15, 5, 7, 17, 19, 9, 11, 21, 23}));
}

TEST(Lower, OutputsThatShareStorageInEagerShareABuffer) {
  auto p = lowered(R"(graph {
    %0: f32[2,3] = input argument
    %1: f32[2,3] = aten::exp(%0)
    %2: f32[3,2]{1,3} = aten::t(%1)
    %3: f32[2,3] = aten::clone(%1, none)
    return %1, %2, %3
  })");
  EXPECT_EQ(p.outputs[0].view.buffer, p.outputs[1].view.buffer);
  EXPECT_NE(p.outputs[0].view.buffer, p.outputs[2].view.buffer);
}

TEST(Lower, CopyThroughReshapeHasNoDivision) {
  auto p = lowered(R"(graph {
    %0: f32[2,3,4,5] = input argument
    %1: f32[2,4,3,5]{60,5,20,1} = aten::permute(%0, [0, 2, 1, 3])
    %2: f32[2,4,15] = aten::reshape(%1, [2, 4, 15])
    return %2
  })");
  ASSERT_EQ(nests(p), 1u);
  loop::for_each_expr(std::get<loop::Nest>(p.items[0]), [&](sym::Expr e) {
    EXPECT_NE(p.arena->kind(e), sym::Kind::FloorDiv);
    EXPECT_NE(p.arena->kind(e), sym::Kind::Mod);
  });
  std::vector<loop::HostTensor> in{tensor({2, 3, 4, 5}, iota(120))};
  auto out = elements(loop::run(p, in)[0]);
  for (int b = 0, k = 0; b < 2; ++b)
    for (int s = 0; s < 4; ++s)
      for (int h = 0; h < 3; ++h)
        for (int d = 0; d < 5; ++d, ++k) EXPECT_EQ(out[static_cast<size_t>(k)], ((b * 3 + h) * 4 + s) * 5 + d);
}

TEST(Lower, SymbolicSizesStayAffine) {
  auto p = lowered(R"(graph {
    symbol s0 size 2 4096
    %0: f32[s0,8] = input argument
    size s0 %0 0
    %1: f32[s0,8] = aten::mul.Tensor(%0, %0)
    %2: f32[s0,2,4] = aten::view(%1, [s0, 2, 4])
    %3: f32[(2*s0),4] = aten::view(%2, [(2*s0), 4])
    %4: f32[(2*s0)] = aten::sum.dim_IntList(%3, [1], false, none)
    return %4
  })");
  std::vector<loop::HostTensor> in{tensor({3, 8}, iota(24))};
  auto out = elements(loop::run(p, in)[0]);
  for (int r = 0; r < 6; ++r) {
    double s = 0;
    for (int c = 0; c < 4; ++c) s += (r * 4.0 + c) * (r * 4.0 + c);
    EXPECT_EQ(out[static_cast<size_t>(r)], s);
  }
}

TEST(Lower, CatWritesSlices) {
  auto p = lowered(R"(graph {
    %0: f32[2,2] = input argument
    %1: f32[2,1] = input argument
    %2: f32[2,2] = aten::neg(%0)
    %3: f32[2,3] = aten::cat(tensors[%2, %1], 1)
    return %3
  })");
  EXPECT_EQ(nests(p), 2u);
  std::vector<loop::HostTensor> in{tensor({2, 2}, {1, 2, 3, 4}), tensor({2, 1}, {8, 9})};
  EXPECT_EQ(elements(loop::run(p, in)[0]), (std::vector<double>{-1, -2, 8, -3, -4, 9}));
}

TEST(Lower, IndexOfPositionsIsNotAGather) {
  auto p = lowered(R"(graph {
    %0: f32[10,4] = input parameter
    %1: i64[6] = aten::arange.start(2, 8, none, none, none, none)
    %2: f32[6,4] = aten::embedding(%0, %1, -1, false, false)
    %3: f32[6,4] = aten::neg(%2)
    return %3
  })");
  EXPECT_EQ(loop::print(p).find("indirect"), std::string::npos);
}

TEST(Lower, EqualLayersGiveEqualNests) {
  std::string text = R"(graph {
    %0: f32[4,8] = input argument
    %1: f32[8] = input parameter
    %2: f32[8] = input parameter
  )";
  std::string last = "%0";
  int v = 3;
  for (const char* bias : {"%1", "%2"}) {
    auto name = [&](int k) { return "%" + std::to_string(v + k); };
    text += name(0) + ": f32[4,8] = aten::add.Tensor(" + last + ", " + bias + ", 1)\n";
    text += name(1) + ": f32[4,8] = aten::gelu(" + name(0) + ", \"none\")\n";
    text += name(2) + ": f32[4,1] = aten::mean.dim(" + name(1) + ", [1], true, none)\n";
    text += name(3) + ": f32[4,8] = aten::sub.Tensor(" + name(1) + ", " + name(2) + ", 1)\n";
    text += name(4) + ": f32[4,8] = aten::custom_exp(" + name(3) + ")\n";
    last = name(4);
    v += 5;
  }
  auto p = lowered(text + "return " + last + "\n}");
  std::vector<std::string> keys;
  size_t externs = 0;
  for (const loop::Item& i : p.items) {
    if (auto* n = std::get_if<loop::Nest>(&i))
      keys.push_back(loop::key(p, *n));
    else
      ++externs;
  }
  EXPECT_EQ(externs, 2u);
  ASSERT_EQ(keys.size() % 2, 0u);
  for (size_t k = 0; k < keys.size() / 2; ++k) EXPECT_EQ(keys[k], keys[k + keys.size() / 2]);
}

// The program's first result is the graph's, with inputs of small whole numbers.
void expect_as_graph(const loop::Program& p, const graph::Graph& g, const std::string& text) {
  std::vector<loop::HostTensor> in;
  std::vector<graph::HostTensor> same;
  for (const graph::Input& i : g.inputs) {
    std::vector<int64_t> sizes, strides;
    for (sym::Expr e : g.type(i.value).sizes) sizes.push_back(*g.arena().as_const(e));
    for (sym::Expr e : g.type(i.value).strides) strides.push_back(*g.arena().as_const(e));
    loop::HostTensor t = loop::host_tensor(DType::F32, sizes);
    for (size_t k = 0; k < t.storage.size() / 4; ++k)
      loop::set_number(t, static_cast<int64_t>(k), static_cast<double>((k * 7 + 3) % 11) - 5);
    t.strides = strides;
    same.push_back({DType::F32, sizes, elements(t)});
    in.push_back(std::move(t));
  }
  EXPECT_EQ(elements(loop::run(p, in)[0]), graph::interpret(g, same)[0].data) << text;
}

// Convolutions of each channel by itself, as nests of sums: windows over the edges, strides, dilation, one row or
// column, with and without bias, against the interpreter of graphs.
TEST(Lower, DepthwiseConvolutionsAreSumsOverWindows) {
  struct {
    const char *image, *strides, *weight, *bias, *how, *result, *result_strides;
  } cases[] = {
      {"2,3,5,6", "90,1,18,3", "3,1,3,3", "%2", "[1, 1], [1, 1], [1, 1]", "2,3,5,6", "90,1,18,3"},
      {"1,4,7,9", "252,1,36,4", "4,1,2,5", "none", "[2, 3], [1, 2], [2, 1]", "1,4,4,3", "48,1,12,4"},
      {"2,2,4,8", "64,1,16,2", "2,1,1,4", "%2", "[1, 2], [0, 3], [1, 2]", "2,2,4,4", "32,1,8,2"},
      {"1,2,6,3", "36,1,6,2", "2,1,6,1", "none", "[1], [0], [1]", "1,2,1,3", "6,1,6,2"},
      {"2,3,5,14", "210,70,14,1", "3,1,3,3", "%2", "[1, 1], [1, 1], [1, 1]", "2,3,5,14", "210,70,14,1"},
      {"1,2,9,40", "720,360,40,1", "2,1,3,5", "%2", "[2, 3], [1, 2], [2, 1]", "1,2,4,14", "112,56,14,1"},
      {"1,2,6,13", "156,78,13,1", "2,1,6,1", "none", "[1], [0], [1]", "1,2,1,13", "26,13,13,1"},
  };
  Targets targets;
  targets.cpu.strips = true;
  for (const auto& c : cases) {
    std::string text = std::string("graph {\n%0: f32[") + c.image + "]{" + c.strides + "} = input argument\n%1: f32[" +
                       c.weight + "] = input argument\n%2: f32[" + c.image[2] + "] = input argument\n%3: f32[" +
                       c.result + "]{" + c.result_strides + "} = aten::convolution(%0, %1, " + c.bias + ", " + c.how +
                       ", false, [0, 0], " + c.image[2] + ")\nreturn %3\n}";
    graph::Graph g = graph::parse(text);
    graph::verify(g);
    loop::Program p = lower::lower(g, {}, targets);
    loop::verify(p);
    // The factors anew for pixels, the image with zeros around it where it has a border, the sums.
    const bool pixels = std::string_view(c.strides).find(",1,") != std::string_view::npos;
    const size_t expected = 1 + pixels + (std::string_view(c.how).find("[0]") == std::string_view::npos);
    EXPECT_EQ(nests(p), expected) << loop::print(p);
    EXPECT_EQ(p.items.size(), expected);
    expect_as_graph(p, g, text);
  }
}

// Convolutions with windows of one element are products: of planes, of pixels with the factors of neighbouring results
// next to each other, and of single ones.
TEST(Lower, PointwiseConvolutionsAreSumsOverChannels) {
  struct {
    const char *image, *strides, *weight, *weight_strides, *bias, *result, *result_strides;
  } cases[] = {
      {"2,3,5,6", "90,30,6,1", "4,3,1,1", "3,1,1,1", "%2", "2,4,5,6", "120,30,6,1"},
      {"1,3,5,6", "90,1,18,3", "4,3,1,1", "1,4,1,1", "none", "1,4,5,6", "120,1,24,4"},
      {"3,5,1,1", "5,1,1,1", "4,5,1,1", "5,1,1,1", "%2", "3,4,1,1", "4,1,1,1"},
  };
  Targets targets;
  targets.cpu.strips = true;
  for (const auto& c : cases) {
    std::string text = std::string("graph {\n%0: f32[") + c.image + "]{" + c.strides + "} = input argument\n%1: f32[" +
                       c.weight + "]{" + c.weight_strides +
                       "} = input argument\n%2: f32[4] = input argument\n%3: f32[" + c.result + "]{" +
                       c.result_strides + "} = aten::convolution(%0, %1, " + c.bias +
                       ", [1, 1], [0, 0], [1, 1], false, [0, 0], 1)\nreturn %3\n}";
    graph::Graph g = graph::parse(text);
    graph::verify(g);
    loop::Program p = lower::lower(g, {}, targets);
    loop::verify(p);
    EXPECT_EQ(nests(p), 1u) << loop::print(p);
    EXPECT_EQ(p.items.size(), 1u);
    expect_as_graph(p, g, text);
    EXPECT_EQ(nests(lower::lower(g, {}, {})), 0u);
  }
}

TEST(Lower, UnknownOperatorIsAnExternCallOnRecordedStrides) {
  auto p = lowered(R"(graph {
    %0: f32[2,3] = input argument
    %1: f32[3,2]{1,3} = aten::t(%0)
    %2: f32[3,2]{1,3} = aten::exp(%1)
    %3: f32[5] = mylib::something(%2, 3, "x")
    return %3
  })");
  auto& call = std::get<loop::ExternCall>(p.items.back());
  EXPECT_EQ(call.name, "mylib::something");
  EXPECT_FALSE(call.preallocated);
  ASSERT_EQ(call.views.size(), 1u);
  EXPECT_EQ(p.arena->as_const(call.views[0].strides[1]), 3);
}

TEST(Lower, WritebacksAreComputed) {
  auto p = lowered(R"(graph {
    %0: f32[3] = input buffer
    %1: f32[3] = aten::add.Tensor(%0, 1.0, 1)
    return %1
    writeback %0 %1
  })");
  std::vector<loop::HostTensor> in{tensor({3}, {1, 2, 3})};
  loop::run(p, in);
  EXPECT_EQ(elements(in[0]), (std::vector<double>{2, 3, 4}));
}

TEST(Lower, HalfPrecisionRoundsAtStoresAndCasts) {
  auto p = lowered(R"(graph {
    %0: bf16[1] = input argument
    %1: bf16[1] = aten::add.Tensor(%0, 0.00390625, 1)
    %2: bf16[1] = aten::sub.Tensor(%1, %0, 1)
    %3: f32[1] = input argument
    %4: bf16[1] = aten::_to_copy(%3, dtype.bf16, none, none, none, false, none)
    %5: f32[1] = aten::_to_copy(%4, dtype.f32, none, none, none, false, none)
    return %2, %5
  })");
  std::vector<loop::HostTensor> in{tensor({1}, {1}, DType::BF16), tensor({1}, {1.001})};
  auto out = loop::run(p, in);
  EXPECT_EQ(elements(out[0])[0], 0.00390625);  // 1 + 2^-8 is no bf16 number: kept in f32 between the two operators
  EXPECT_EQ(elements(out[1])[0], 1.0);
}

// What PyTorch's older casts to float8_e4m3fn make of numbers out of range is NaN; all others are the same.
TEST(Lower, FloatsOfAByteBeyondTheirRange) {
  graph::Graph g = graph::parse(
      "graph {\n  %0: f32[8] = input argument\n"
      "  %1: f8e4m3fn[8] = aten::_to_copy(%0, dtype.f8e4m3fn, none, none, none, false, none)\n  return %1\n}\n");
  const std::vector<double> x{1.3, 464, -464.1, 1e9, INFINITY, -INFINITY, NAN, -0.001};
  for (bool saturates : {true, false}) {
    Options options;
    options.float8_saturates = saturates;
    loop::Program p = lower::lower(g, options, {});
    loop::verify(p);
    std::vector<loop::HostTensor> in{tensor({8}, x)};
    std::vector<double> y = elements(loop::run(p, in)[0]);
    const double top = saturates ? 448 : NAN;
    const std::vector<double> want{1.25, 448, -top, top, top, -top, NAN, -0.001953125};
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_TRUE(std::isnan(want[i]) ? std::isnan(y[i]) : y[i] == want[i]) << saturates << " " << i << ": " << y[i];
  }
}

}  // namespace
}  // namespace braze
