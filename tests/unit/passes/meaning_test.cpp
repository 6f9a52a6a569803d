// Passes keep what graphs compute, and the interpreter that says so knows every operator that they name.
#include "meaning.h"

#include <gtest/gtest.h>

#include <map>
#include <regex>

#include "base/check.h"
#include "passes/dce.h"
#include "passes/decompose.h"
#include "passes/fold_into_weights.h"
#include "passes/frozen.h"
#include "passes/merge_products.h"
#include "passes/seed_random.h"
#include "random_graph.h"

namespace braze::passes {
namespace {

using graph::Graph;
using graph::Op;

const std::map<std::string, Op>& enumerators() {
  static const std::map<std::string, Op> all = {
#define BRAZE_OP(name, aten, cls, result, accepts, cost, raises, traits) {#name, Op::name},
#include "graph/ops.def"
#undef BRAZE_OP
  };
  return all;
}

// What passes match and make: rows of graph/ops.def as Op::NAME, others as "aten::NAME". A name that ends with an
// underscore stands for all that begin with it. Of the files whose names begin with `files`.
std::set<std::string> named_by_passes(const std::string& files = "") {
  std::set<std::string> out;
  for (std::string_view suffix : {".cpp", ".h"})
    for (const std::string& path : sources("src/passes", suffix)) {
      if (path.find("src/passes/" + files) == std::string::npos) continue;
      std::string text = std::regex_replace(source(path), std::regex("//[^\n]*"), "");
      EXPECT_EQ(text.find("using enum"), std::string::npos)
          << path << ": operators are named as Op::NAME, for this test";
      const std::regex name(R"(\bOp::(\w+)|"((?:aten|quantized_decomposed)::[\w.]+)\")");
      for (std::sregex_iterator it(text.begin(), text.end(), name), end; it != end; ++it) {
        if (!(*it)[1].matched)
          out.insert((*it)[2]);
        else if ((*it)[1] != "Extern")
          out.emplace(graph::op_name(enumerators().at((*it)[1])));
      }
    }
  return out;
}

// tests/unit/passes/graphs, whose graphs have all operators that passes name.
std::vector<std::string> graphs() { return sources("tests/unit/passes/graphs", ".graph"); }

TEST(Meaning, PassesKeepThatOfEveryOperatorTheyName) {
  std::set<std::string> seen;
  std::vector<std::string> paths = graphs();
  for (const std::string& path : sources("tests/filetests/passes", ".graph")) paths.push_back(path);
  for (const std::string& path : paths) {
    SCOPED_TRACE(path);
    expect_passes_keep_meaning(graph::parse(source(path)), &seen);
  }
  std::set<std::string> named = named_by_passes();
  EXPECT_GT(named.size(), 150u);  // they were found
  for (const std::string& name : named) {
    bool compared = seen.contains(name);
    if (name.ends_with("_"))
      compared = seen.lower_bound(name) != seen.end() && seen.lower_bound(name)->starts_with(name);
    EXPECT_TRUE(compared) << name
                          << " is named by a pass: give it to a graph of tests/unit/passes/graphs, and a rule to "
                          << "graph/interpret_*.cpp";
  }
}

// Else a rule that has given up would pass for one that is right.
TEST(Meaning, DecompositionsAreCarriedOut) {
  std::set<std::string> named = named_by_passes("decompose");
  for (const std::string& path : graphs()) {
    Graph g = dce(seed_random(decompose(graph::parse(source(path)))));
    for (const graph::Node& n : g.nodes()) {
      if (n.op == Op::Extern)
        EXPECT_FALSE(n.extern_name.starts_with("aten::_foreach_") || named.contains(n.extern_name))
            << path << ": " << n.extern_name;
      else
        EXPECT_NE(graph::op_class(n.op), graph::OpClass::Decompose) << path << ": " << graph::op_name(n.op);
    }
  }
}

TEST(Meaning, OfRandomGraphs) {
  std::map<std::string, size_t> changed;
  constexpr uint64_t kGraphs = 300;
  for (uint64_t seed = 0; seed < kGraphs; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Graph g = random_graph(seed);
    graph::verify(g);
    expect_passes_keep_meaning(g);
    if (HasFatalFailure()) return;
    for (const Pass& pass : pipeline()) changed[pass.name] += graph::print(pass.run(g, machine())) != graph::print(g);
  }
  // Of a pass that finds nothing to do they would say nothing. There are no singular values in them, no attention, no
  // images to resample (see resampling.graph) and no vocabulary of a language (see
  // tests/python/linear_cross_entropy_test.py).
  changed.erase("ask_less");
  changed.erase("unfold_attention");
  changed.erase("attention_products");
  changed.erase("fuse_attention");
  changed.erase("causal_masks");  // see causal_masks.graph and element_formula_test.cpp
  changed.erase("simplify_parts");
  changed.erase("chunk_logits");
  changed.erase("split_resampling");
  changed.erase("pack_weights");    // no parameters: see frozen.graph
  changed.erase("unfold_complex");  // see complex.graph
  changed.erase("widen_products");  // see half_products.graph
  changed.erase("pad_products");    // no products large enough: see pad_products_test.cpp
  EXPECT_EQ(changed.size(), pipeline().size() - 12);
  for (const auto& [pass, graphs] : changed) EXPECT_GE(graphs, kGraphs / 50) << pass;
}

// What freezing makes of a graph, put together again: the values that are made first come to the rest as its last
// inputs.
void expect_freezing_keeps_meaning(const Graph& g, size_t& folded, size_t& made) {
  Graph with = merge_products(fold_into_weights(g));
  graph::verify(with);
  folded += graph::print(with) != graph::print(g);
  ASSERT_EQ(difference(g, with, Within::Rounding), "") << graph::print(with) << "of\n" << graph::print(g);
  FrozenSplit split = split_frozen(g);
  graph::verify(split.made);
  graph::verify(split.rest);
  made += split.made.outputs.size();
  std::vector<graph::HostTensor> inputs = sample_inputs(g), sources;
  for (uint32_t i : split.sources) sources.push_back(inputs.at(i));
  std::vector<graph::HostTensor> want = graph::interpret(g, inputs, sample_sizes(g));
  for (graph::HostTensor& t : graph::interpret(split.made, sources)) inputs.push_back(std::move(t));
  std::vector<graph::HostTensor> got = graph::interpret(split.rest, inputs, sample_sizes(g));
  ASSERT_EQ(want.size(), got.size());
  for (size_t k = 0; k < want.size(); ++k)
    ASSERT_EQ(difference(want[k], got[k], Within::Nothing), "") << graph::print(split.made) << graph::print(split.rest);
}

TEST(Meaning, OfWhatFreezingCuts) {
  size_t folded = 0, made = 0;
  for (const std::string& path : graphs()) {
    SCOPED_TRACE(path);
    expect_freezing_keeps_meaning(graph::parse(source(path)), folded, made);
    if (HasFatalFailure()) return;
  }
  EXPECT_GE(folded, 1u);
  EXPECT_GE(made, 1u);
  made = 0;
  constexpr uint64_t kGraphs = 300;
  for (uint64_t seed = 0; seed < kGraphs; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Graph g = random_graph(seed);
    for (size_t i = 0; i < g.inputs.size(); ++i)
      if ((seed >> i) % 2 == 0) g.inputs[i].kind = graph::InputKind::Parameter;
    expect_freezing_keeps_meaning(g, folded, made);
    if (HasFatalFailure()) return;
  }
  EXPECT_GE(made, kGraphs / 10);
}

TEST(Meaning, ADifferenceIsSeen) {
  const char* text = "graph {\n%0: f32[3] = input argument\n%1: f32[3] = aten::NAME(%0)\nreturn %1\n}";
  auto with = [&](const char* name) { return graph::parse(std::regex_replace(text, std::regex("NAME"), name)); };
  EXPECT_EQ(difference(with("sin"), with("sin"), Within::Nothing), "");
  EXPECT_NE(difference(with("sin"), with("cos"), Within::Rounding), "");
}

TEST(Interpreter, RefusesWhatItDoesNotKnow) {
  Graph g = graph::parse("graph {\n%0: f32[3] = input argument\n%1: f32[3] = custom::f(%0)\nreturn %1\n}");
  EXPECT_THROW(graph::interpret(g, sample_inputs(g)), InternalError);
}

}  // namespace
}  // namespace braze::passes
