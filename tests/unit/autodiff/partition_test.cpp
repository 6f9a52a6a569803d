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

TEST(Partition, KeepsASumThatWorkSeparatesFromAnEarlierReader) {
  // Of a residual stream: kept is the sum, though the product that was added is half as wide.
  constexpr const char* kStream = R"(graph {
  %0: f32[64,32] = input argument
  %1: f32[32,32] = input parameter
  %2: bf16[32,32] = input parameter
  %3: f32[64,32] = input argument "tangent"
  %4: f32[64,32] = aten::mm(%0, %1)
  %5: bf16[64,32] = aten::_to_copy(%4, dtype.bf16, none, none, none, false, none)
  %6: bf16[64,32] = aten::mm(%5, %2)
  %7: f32[64,32] = aten::_to_copy(%6, dtype.f32, none, none, none, false, none)
  %8: f32[64,32] = aten::add.Tensor(%4, %7, 1)
  %9: f32[64,32] = aten::sin(%8)
  %10: f32[64,32] = aten::cos(%8)
  %11: f32[64,32] = aten::exp(%8)
  %12: f32[64,32] = aten::mul.Tensor(%3, %10)
  %13: f32[64,32] = aten::mul.Tensor(%12, %11)
  return %9, %13
})";
  EXPECT_EQ(names(parted(kStream, 1).saved), (Names{"aten::add.Tensor"}));
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
  // The program may write to it before the backward runs: a copy is kept, which is less than two results are.
  Partition p = parted(kChain, 1, 1, Joint::Reads{{}, {0}});
  EXPECT_EQ(names(p.saved), (Names{"input"}));
  ASSERT_EQ(p.copies.size(), 1u);
  EXPECT_EQ(p.copies[0].input, 0u);
  EXPECT_TRUE(
      std::none_of(p.sources.begin(), p.sources.end(), [](const Source& s) { return s.kind == Source::Kind::Input; }));
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

// Two regions, each tanh(x @ w), the second on a view of what the first gives.
constexpr const char* kCheckpoints = R"(graph {
  %0: f32[64,64] = input argument
  %1: f32[64,64] = input parameter
  %2: f32[64,64] = input parameter
  %3: f32[64,64] = input argument "tangent"
  %4: f32[64,64] = aten::mm(%0, %1) checkpoint 1 FIRST
  %5: f32[64,64] = aten::tanh(%4) checkpoint 1 must_recompute
  %6: f32[64,64]{1,64} = aten::t(%5) checkpoint 1 must_recompute
  %7: f32[64,64] = aten::mm(%6, %2) checkpoint 2 must_recompute
  %8: f32[64,64] = aten::tanh(%7) checkpoint 2 must_recompute
  %9: f32[64,64] = aten::sin(%8)
  %10: f32[64,64] = aten::cos(%8)
  %11: f32[64,64] = aten::mul.Tensor(%3, %10)
  %12: f32[64,64] = aten::tanh_backward(%11, %8) checkpoint 2 must_recompute
  %13: f32[64,64]{1,64} = aten::t(%6) checkpoint 2 must_recompute
  %14: f32[64,64] = aten::mm(%13, %12) checkpoint 2 must_recompute
  %15: f32[64,64]{1,64} = aten::t(%2) checkpoint 2 must_recompute
  %16: f32[64,64] = aten::mm(%12, %15) checkpoint 2 must_recompute
  %17: f32[64,64]{1,64} = aten::t(%16) checkpoint 1 must_recompute
  %18: f32[64,64] = aten::tanh_backward(%17, %5) checkpoint 1 must_recompute
  %19: f32[64,64]{1,64} = aten::t(%0) checkpoint 1 must_recompute
  %20: f32[64,64] = aten::mm(%19, %18) checkpoint 1 must_recompute
  return %9, %14, %20
})";

Partition with_checkpoints(const std::string& first, double budget = 1) {
  std::string text = kCheckpoints;
  return parted(text.replace(text.find("FIRST"), 5, first).c_str(), 1, budget, Joint::Reads{{0}, {0}});
}

TEST(Partition, OfACheckpointOnlyWhatOthersReadIsKept) {
  Partition p = with_checkpoints("must_recompute");
  // The input of the first, that of the second (the base of the view), and what the sine outside reads: the last is
  // there for the second's own backward, too, the other for the first's.
  EXPECT_EQ(names(p.saved), (Names{"aten::tanh", "aten::tanh", "input", "parameter"}));
  EXPECT_EQ(count(p.backward, graph::Op::tanh), 0u);
  EXPECT_EQ(count(p.backward, graph::Op::mm), 3u);
}

TEST(Partition, ACheckpointComputesAgainWhatTheFullBudgetKeeps) {
  std::string text = kCheckpoints;
  text.replace(text.find("FIRST"), 5, "must_recompute");
  text.replace(text.find("aten::cos(%8)"), 13, "aten::cos(%3)");  // nothing outside reads it now
  Partition p = parted(text.c_str(), 1, 1, Joint::Reads{{0}, {0}});
  EXPECT_EQ(names(p.saved), (Names{"aten::tanh", "input", "parameter"}));
  EXPECT_EQ(names(p.recomputed), (Names{"aten::mm", "aten::tanh"}));  // of the second
}

// What is read twice in a region, and by nobody outside: y = sum(exp(x @ w) @ v).
constexpr const char* kPolicies = R"(graph {
  %0: f32[64,64] = input argument
  %1: f32[64,64] = input parameter
  %2: f32[64,1] = input parameter
  %3: f32[64,1] = input argument "tangent"
  %4: f32[64,64] = aten::mm(%0, %1) checkpoint 1 MM
  %5: f32[64,64] = aten::exp(%4) checkpoint 1 EXP
  %6: f32[64,1] = aten::mm(%5, %2) checkpoint 1 must_recompute
  %7: f32[1,64]{64,64} = aten::t(%2) checkpoint 1 must_recompute
  %8: f32[64,64] = aten::mm(%3, %7) checkpoint 1 must_recompute
  %9: f32[64,64] = aten::mul.Tensor(%8, %5) checkpoint 1 must_recompute
  %10: f32[64,64]{1,64} = aten::t(%0) checkpoint 1 must_recompute
  %11: f32[64,64] = aten::mm(%10, %9) checkpoint 1 must_recompute
  return %6, %11
})";

Names kept_by(const std::string& mm, const std::string& exp, double budget = 1) {
  std::string text = kPolicies;
  text.replace(text.find("MM"), 2, mm);
  text.replace(text.find("EXP"), 3, exp);
  return names(parted(text.c_str(), 1, budget, Joint::Reads{{0}, {0}}).saved);
}

TEST(Partition, FollowsThePolicyOfACheckpoint) {
  EXPECT_EQ(kept_by("must_recompute", "must_recompute"), (Names{"input", "parameter", "parameter"}));
  EXPECT_EQ(kept_by("must_save", "must_recompute"), (Names{"aten::mm", "input", "parameter"}));
  EXPECT_EQ(kept_by("must_recompute", "must_save"), (Names{"aten::exp", "input", "parameter"}));
  EXPECT_EQ(kept_by("prefer_recompute", "prefer_recompute"), (Names{"input", "parameter", "parameter"}));
  EXPECT_EQ(kept_by("prefer_save", "must_recompute"), (Names{"aten::mm", "input", "parameter"}));
  // A budget may undo what is only preferred.
  EXPECT_EQ(kept_by("must_save", "must_recompute", 0), (Names{"aten::mm", "input", "parameter"}));
  EXPECT_EQ(kept_by("prefer_save", "must_recompute", 0.6), (Names{"input", "parameter", "parameter"}));
}

TEST(Partition, APreferenceGivesWayToMuchLessMemory) {
  // The backward reads the sum of each row alone, a 64th of what it is made of.
  std::string text = R"(graph {
  %0: f32[64,64] = input argument
  %1: f32[64,1] = input argument "tangent"
  %2: f32[64,1] = aten::sum.dim_IntList(%0, [1], true, none) checkpoint 1 KEEP
  %3: f32[64,1] = aten::sin(%2) checkpoint 1 KEEP
  %4: f32[64,1] = aten::cos(%2) checkpoint 1 must_recompute
  %5: f32[64,1] = aten::mul.Tensor(%1, %4) checkpoint 1 must_recompute
  return %3, %5
})";
  auto kept = [&](const std::string& keep) {
    std::string t = text;
    for (size_t at; (at = t.find("KEEP")) != std::string::npos;) t.replace(at, 4, keep);
    return names(parted(t.c_str(), 1, 1, Joint::Reads{{0}, {0}}).saved);
  };
  EXPECT_EQ(kept("must_recompute"), (Names{"input"}));
  EXPECT_EQ(kept("prefer_recompute"), (Names{"aten::sum.dim_IntList"}));
}

TEST(Partition, ACheckpointReadsACopyOfWhatIsOverwritten) {
  Partition p = parted(R"(graph {
  %0: f32[64] = input argument
  %1: f32[64] = input argument "tangent"
  %2: f32[64] = aten::exp(%0) checkpoint 1 must_recompute
  %3: f32[64] = aten::sin(%2) checkpoint 1 must_recompute
  %4: f32[64] = aten::cos(%2) checkpoint 1 must_recompute
  %5: f32[64] = aten::mul.Tensor(%1, %4) checkpoint 1 must_recompute
  %6: f32[64] = aten::zeros_like(%0, none, none, none, none, none)
  return %3, %5
  writeback %0 %6
})",
                       1);
  ASSERT_EQ(p.copies.size(), 1u);
  EXPECT_EQ(p.copies[0].input, 0u);
  EXPECT_EQ(count(p.forward, graph::Op::clone), 1u);
  EXPECT_EQ(count(p.backward, graph::Op::exp), 1u);
}

TEST(Partition, SeedsAreKeptAndMasksDrawnAgain) {
  Partition p = parted(R"(graph {
  %0: f32[64,64] = input argument
  %1: f32[64,64] = input argument "tangent"
  %2: i64[] = aten::randint.low(-9223372036854775807, 9223372036854775807, [], dtype.i64, none, device.cpu, none) checkpoint 1 must_recompute
  %3: bool[64,64] = aten::bernoulli.p(none, 0.5, none, %2) checkpoint 1 must_recompute
  %4: f32[64,64] = aten::mul.Tensor(%0, %3) checkpoint 1 must_recompute
  %5: f32[64,64] = aten::mul.Tensor(%1, %3) checkpoint 1 must_recompute
  return %4, %5
})",
                       1);
  EXPECT_EQ(names(p.saved), (Names{"aten::randint.low"}));
  EXPECT_EQ(p.saved_bytes, 8);
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
