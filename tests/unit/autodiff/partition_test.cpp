#include "autodiff/partition.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "autodiff/specialise.h"
#include "base/check.h"
#include "symbolic/given_symbol.h"

namespace braze::autodiff {
namespace {

using Names = std::vector<std::string>;

// y = gelu(x @ w) @ v with the gradients of w and v.
constexpr const char* kMlp = R"(graph {
  %0: f32[64,32] = input argument
  %1: f32[32,128] = input parameter
  %2: f32[128,16] = input parameter
  %3: f32[64,16] = input argument "tangent"
  %4: f32[64,128] = aten::mm(%0, %1)
  %5: f32[64,128] = aten::gelu(%4, "none")
  %6: f32[64,16] = aten::mm(%5, %2)
  %7: f32[128,64]{1,128} = aten::t(%5)
  %8: f32[128,16] = aten::mm(%7, %3)
  %9: f32[16,128]{1,16} = aten::t(%2)
  %10: f32[64,128] = aten::mm(%3, %9)
  %11: f32[64,128] = aten::gelu_backward(%10, %4, "none")
  %12: f32[32,64]{1,32} = aten::t(%0)
  %13: f32[32,128] = aten::mm(%12, %11)
  return %6, %13, %8
})";

Partition parted(const char* text, size_t outputs, double budget = 1,
                 std::optional<Joint::Reads> reads = std::nullopt) {
  graph::Graph g = graph::parse(text);
  std::vector<uint32_t> tangents;
  for (uint32_t i = 0; i < g.inputs.size(); ++i)
    if (g.value(g.inputs[i].value).name == "tangent") tangents.push_back(i);
  Partition p = partition({std::move(g), outputs, tangents, std::move(reads)}, budget);
  graph::verify(p.forward);
  graph::verify(p.backward);
  return p;
}

Names names(const std::vector<Kept>& kept) {
  Names out;
  for (const Kept& k : kept) out.push_back(k.what);
  std::sort(out.begin(), out.end());
  return out;
}

size_t count(const graph::Graph& g, graph::Op op) {
  return static_cast<size_t>(std::count_if(g.nodes().begin(), g.nodes().end(), [&](auto& n) { return n.op == op; }));
}

TEST(Partition, KeepsWhatIsDearAndWhatCallsOfTheBackwardRead) {
  Partition p = parted(kMlp, 1);
  EXPECT_EQ(names(p.saved), (Names{"aten::gelu", "aten::mm", "input", "parameter"}));
  EXPECT_TRUE(p.recomputed.empty());
  EXPECT_EQ(p.saved_bytes, 64 * 32 * 4 + 2 * 64 * 128 * 4);
  EXPECT_EQ(count(p.forward, graph::Op::mm), 2u);
  EXPECT_EQ(count(p.backward, graph::Op::mm), 3u);
  EXPECT_EQ(p.forward.outputs.size(), 3u);
  EXPECT_EQ(p.backward.outputs.size(), 2u);
}

TEST(Partition, ASmallerBudgetRepeatsWhatIsCheapFirst) {
  Partition some = parted(kMlp, 1, 0.6);
  EXPECT_EQ(names(some.saved), (Names{"aten::mm", "input", "parameter"}));
  EXPECT_EQ(names(some.recomputed), (Names{"aten::gelu"}));
  Partition none = parted(kMlp, 1, 0);
  EXPECT_EQ(names(none.saved), (Names{"input", "parameter", "parameter"}));
  EXPECT_EQ(names(none.recomputed), (Names{"aten::gelu", "aten::mm"}));
  EXPECT_LT(none.saved_bytes, some.saved_bytes);
}

// The captured backward reads %0 for the cosine.
constexpr const char* kChain = R"(graph {
  %0: f32[64,64] = input argument
  %1: f32[64,64] = input argument "tangent"
  %2: f32[64,64] = aten::sin(%0)
  %3: f32[64,64] = aten::exp(%2)
  %4: f32[64,64] = aten::tanh(%3)
  %5: f32[64,64] = aten::tanh_backward(%1, %4)
  %6: f32[64,64] = aten::mul.Tensor(%5, %3)
  %7: f32[64,64] = aten::cos(%0)
  %8: f32[64,64] = aten::mul.Tensor(%6, %7)
  return %4, %8
})";

TEST(Partition, PointwiseChainsAreKeptAtTheirNarrowestPlace) {
  // exp of a sum of a tensor and a row: kept is one value, not each intermediate.
  Partition p = parted(kChain, 1, 1, Joint::Reads{{0}, {0}});
  EXPECT_EQ(names(p.saved), (Names{"input"}));
  EXPECT_EQ(p.read_inputs, (std::vector<uint32_t>{0}));
  EXPECT_EQ(p.read_outputs, (std::vector<uint32_t>{0}));
}

TEST(Partition, AnArgumentIsKeptOnlyWhereTheBackwardReadsItItself) {
  // The program may write to it before the backward runs.
  Partition p = parted(kChain, 1, 1, Joint::Reads{{}, {0}});
  EXPECT_EQ(names(p.saved), (Names{"aten::cos", "aten::exp"}));
  EXPECT_TRUE(p.read_inputs.empty());
  EXPECT_EQ(p.needed_inputs, (std::vector<uint32_t>{0}));
}

// The gradient of the maximum of x * w + x.
constexpr const char* kMaximum = R"(graph {
  %0: f32[64,64] = input argument
  %1: f32[64,64] = input parameter
  %2: f32[64,1] = input argument "tangent"
  %3: f32[64,64] = aten::mul.Tensor(%0, %1)
  %4: f32[64,64] = aten::add.Tensor(%3, %0, 1)
  %5: f32[64,1] = aten::amax(%4, [1], true)
  %6: bool[64,64] = aten::eq.Tensor(%5, %4)
  %7: f32[64,64] = aten::mul.Tensor(%2, %6)
  return %5, RESULTS
})";

std::string maximum(const std::string& results) {
  std::string text = kMaximum;
  return text.replace(text.find("RESULTS"), 7, results);
}

TEST(Partition, WhatIsComparedWithItsMaximumIsReadWhereItWasKept) {
  Partition p = parted(maximum("%7").c_str(), 1, 1, Joint::Reads{{0}, {0}});
  EXPECT_EQ(names(p.saved), (Names{"aten::add.Tensor", "aten::amax"}));
  EXPECT_EQ(count(p.backward, graph::Op::add_Tensor), 0u);
  // Under a smaller budget, too: then the maximum is taken again, of what was kept.
  Partition small = parted(maximum("%7").c_str(), 1, 0, Joint::Reads{{0}, {0}});
  EXPECT_EQ(count(small.backward, graph::Op::add_Tensor), 0u);
}

TEST(Partition, AComparisonWithAnOutputThatMayChangeIsNotDoneAgain) {
  Partition p = parted(maximum("%4, %7").c_str(), 2, 1, Joint::Reads{{0}, {0}});
  EXPECT_EQ(names(p.saved), (Names{"aten::eq.Tensor"}));
  EXPECT_EQ(count(p.backward, graph::Op::eq_Tensor), 0u);
}

TEST(Partition, NamesInputsThatGradientsDependOnAndTheirCopies) {
  Partition p = parted(R"(graph {
  %0: f32[8] = input argument
  %1: f32[8] = input argument
  %2: f32[8] = input buffer
  %3: f32[8] = input argument "tangent"
  %4: f32[8] = aten::clone(%0, none)
  %5: f32[8] = aten::add.Tensor(%4, %1, 1)
  %6: f32[8] = aten::add.Scalar(%2, 1, 1)
  %7: f32[8] = aten::mul.Tensor(%3, %4)
  return %5, %7
  writeback %2 %6
  writeback %0 %5
})",
                       1);
  EXPECT_EQ(p.needed_inputs, (std::vector<uint32_t>{0}));
  ASSERT_EQ(p.copies.size(), 1u);
  EXPECT_EQ(p.copies[0].input, 0u);
  ASSERT_EQ(p.sources.size(), 2u);
  EXPECT_EQ(p.copies[0].output, p.sources[0].index);
}

TEST(Partition, RandomValuesAreKeptUnderAnyBudget) {
  const char* text = R"(graph {
  %0: f32[64,64] = input argument
  %1: f32[64,64] = input argument "tangent"
  %2: f32[64,64] = aten::bernoulli.p(%0, 0.5, none)
  %3: f32[64,64] = aten::mul.Tensor(%0, %2)
  %4: f32[64,64] = aten::mul.Tensor(%1, %2)
  return %3, %4
})";
  for (double budget : {1.0, 0.0}) {
    Partition p = parted(text, 1, budget);
    EXPECT_EQ(names(p.saved), (Names{"aten::bernoulli.p"}));
    EXPECT_EQ(count(p.backward, graph::Op::bernoulli_p), 0u);
    EXPECT_TRUE(p.random);
  }
}

TEST(Partition, AnOutputIsKeptOnlyWhereTheBackwardReadsItItself) {
  // The first output may be written to before the backward runs: what is made from it is kept instead.
  Partition p = parted(R"(graph {
  %0: f32[8,8] = input argument
  %1: f32[8,8] = input parameter
  %2: f32[8,8] = input argument "tangent"
  %3: f32[8,8] = aten::mm(%0, %1)
  %4: f32[8,8] = aten::add.Scalar(%3, 1, 1)
  %5: f32[8,8] = aten::sin(%4)
  %6: f32[8,8] = aten::cos(%4)
  %7: f32[8,8] = aten::mul.Tensor(%2, %6)
  return %3, %5, %7
})",
                       2);
  for (const Source& s : p.sources) {
    if (s.kind == Source::Kind::Saved) {
      EXPECT_NE(s.index, 0u);
    }
  }
  EXPECT_TRUE(p.read_outputs.empty());
}

TEST(Partition, AnInputThatIsOverwrittenIsNotKept) {
  Partition p = parted(R"(graph {
  %0: f32[8] = input argument
  %1: f32[8] = input argument "tangent"
  %2: f32[8] = aten::add.Scalar(%0, 1, 1)
  %3: f32[8] = aten::sin(%2)
  %4: f32[8] = aten::cos(%2)
  %5: f32[8] = aten::mul.Tensor(%1, %4)
  %6: f32[8] = aten::zeros_like(%0, none, none, none, none, none)
  return %3, %5
  writeback %0 %6
})",
                       1);
  ASSERT_EQ(p.saved.size(), 1u);
  EXPECT_NE(p.saved[0].what, "input");
  const char* reads = R"(graph {
  %0: f32[8] = input argument
  %1: f32[8] = input argument "tangent"
  %2: f32[8] = aten::sin(%0)
  %3: f32[8] = aten::mul.Tensor(%1, %0)
  return %2, %3
  writeback %0 %2
})";
  EXPECT_THROW(parted(reads, 1), Unsupported);
}

TEST(Partition, SizesOfTheBackwardAreGiven) {
  Partition p = parted(R"(graph {
  symbol s0 size 2 1000
  %0: f32[s0,32] = input argument
  %1: f32[32,16] = input parameter
  %2: f32[s0,16] = input argument "tangent"
  size s0 %0 0
  %3: f32[s0,16] = aten::mm(%0, %1)
  %4: f32[32,s0]{1,32} = aten::t(%0)
  %5: f32[32,16] = aten::mm(%4, %2)
  return %3, %5
})",
                       1);
  for (const graph::Graph* g : {&p.forward, &p.backward}) ASSERT_EQ(g->size_symbols.size(), 1u);
  EXPECT_EQ(p.forward.size_symbols[0].second.first, 0u);
  EXPECT_EQ(p.backward.size_symbols[0].second.first, sym::kGivenSymbol);
  EXPECT_EQ(p.saved_bytes, 64 * 32 * 4);  // a symbol counts as 64
  Backward all = specialise(p, {true});
  EXPECT_EQ(all.graph.size_symbols, p.backward.size_symbols);
}

TEST(Specialise, LeavesOutWhatDependsOnAbsentTangents) {
  Partition p = parted(R"(graph {
  %0: f32[8] = input argument
  %1: f32[8] = input argument
  %2: f32[8] = input argument "tangent"
  %3: f32[8] = input argument "tangent"
  %4: f32[8] = aten::mul.Tensor(%0, %1)
  %5: f32[8] = aten::sqrt(%0)
  %6: f32[8] = aten::mul.Tensor(%2, %1)
  %7: f32[8] = aten::mul.Tensor(%2, %0)
  %8: f32[8] = aten::div.Tensor(%3, %5)
  %9: f32[8] = aten::add.Tensor(%6, %8, 1)
  return %4, %5, %9, %7
})",
                       2);
  EXPECT_EQ(p.depends_on, (std::vector<std::vector<uint32_t>>{{0, 1}, {0}}));
  Backward first = specialise(p, {true, false});
  graph::verify(first.graph);
  EXPECT_EQ(count(first.graph, graph::Op::div_Tensor), 0u);
  EXPECT_TRUE(first.graph.outputs[1].valid());
  Backward second = specialise(p, {false, true});
  graph::verify(second.graph);
  EXPECT_EQ(count(second.graph, graph::Op::mul_Tensor), 0u);
  EXPECT_FALSE(second.graph.outputs[1].valid());
  EXPECT_EQ(second.inputs.size(), 2u);
}

}  // namespace
}  // namespace braze::autodiff
