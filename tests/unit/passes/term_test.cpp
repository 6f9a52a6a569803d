// The language of rules, and that each rule of a table has a test of its name.
#include "passes/term.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/check.h"
#include "meaning.h"
#include "passes/apply_patterns.h"
#include "passes/attention_reader.h"

namespace braze::passes {
namespace {

TEST(Term, EachRuleHasATest) {
  auto expect = [](std::span<const std::string_view> names, const std::string& folder) {
    for (std::string_view name : names) {
      const std::string path =
          std::string(BRAZE_SOURCES) + "/tests/filetests/passes/" + folder + "/" + std::string(name) + ".graph";
      EXPECT_TRUE(std::filesystem::exists(path)) << path;
    }
    EXPECT_EQ(names.size(), sources("tests/filetests/passes/" + folder, ".graph").size()) << folder;
  };
  expect(pattern_names(), "patterns");
  expect(attention_form_names(), "attention");
}

TEST(Term, SaysWhereItIsNone) {
  for (const char* text : {"", "mul(", "mul(?x", "mul(?x,)", "mul(?x) 3", "?", "mul(?x; 2)"}) {
    try {
      parse_term(text);
      ADD_FAILURE() << text;
    } catch (const InternalError& e) {
      EXPECT_NE(std::string(e.what()).find("expected"), std::string::npos) << e.what();
    }
  }
}

// Whether the graph's last node is what the term says; with `name`, whether that then stands for something.
bool is(const char* text, const char* node, const char* name = nullptr) {
  const graph::Graph g = graph::parse(std::string(R"(graph {
  %0: f32[4] = input argument "x"
  %1: f32[4] = input argument "y"
  %2: f32[4] = aten::exp(%0)
  %3: f32[] = aten::full([], 0.1, dtype.f32, none, device.cpu, false)
  )") + node + "\n  return %4\n}");
  const Term term = parse_term(text);
  Bindings found;
  std::vector<NodeId> below;
  const bool yes = Matcher(g).matches(term, g.node(NodeId(g.nodes().size() - 1)), found, below);
  EXPECT_TRUE(yes || (below.empty() && found.size() == 0));
  return yes && (!name || found.find(name));
}

TEST(Term, Matches) {
  const char* sum = "%4: f32[4] = aten::add.Tensor(%2, %1, 1)";
  EXPECT_TRUE(is("add(?a, ?b, 1)", sum));
  EXPECT_TRUE(is("add.Tensor(?a, ?b, 1)", sum));
  EXPECT_FALSE(is("add.Scalar(?a, ?b, 1)", sum));
  EXPECT_FALSE(is("mul(?a, ?b)", sum));
  EXPECT_FALSE(is("add(?a, ?b)", sum));
  EXPECT_TRUE(is("add(?a, ...)", sum));
  EXPECT_TRUE(is("add(_, exp(?a), _)", sum));  // either way
  EXPECT_FALSE(is("sub(_, exp(?a), _)", "%4: f32[4] = aten::sub.Tensor(%2, %1, 1)"));
  EXPECT_FALSE(is("add(_, exp(?a), _)", "%4: f32[4] = aten::add.Tensor(%2, %1, 2)"));  // not where one is scaled
  EXPECT_TRUE(is("mul(?a, ?a)", "%4: f32[4] = aten::mul.Tensor(%1, %1)"));
  EXPECT_FALSE(is("mul(?a, ?a)", "%4: f32[4] = aten::mul.Tensor(%1, %2)"));
}

TEST(Term, Numbers) {
  EXPECT_TRUE(is("mul(?a, 2)", "%4: f32[4] = aten::mul.Tensor(%1, 2.0)"));
  EXPECT_TRUE(is("mul(?a, 2)", "%4: f32[4] = aten::mul.Tensor(2, %1)"));
  EXPECT_TRUE(is("mul(?a, -inf)", "%4: f32[4] = aten::mul.Tensor(%1, -inf)"));
  EXPECT_FALSE(is("add(?a, 0, 1)", "%4: f32[4] = aten::add.Tensor(%1, -0.0, 1)"));
  EXPECT_FALSE(is("mul(?a, #c)", "%4: f32[4] = aten::mul.Tensor(%1, %2)"));
  EXPECT_TRUE(is("mul(?a, #c)", "%4: f32[4] = aten::mul.Tensor(%1, %3)", "c"));
  EXPECT_TRUE(is("mul(?a, #c)", "%4: f32[4] = aten::mul.Tensor(%1, 0.1)"));
}

}  // namespace
}  // namespace braze::passes
