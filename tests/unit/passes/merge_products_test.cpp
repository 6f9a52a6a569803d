#include "passes/merge_products.h"

#include <gtest/gtest.h>

#include "meaning.h"
#include "passes/dce.h"

namespace braze::passes {
namespace {

size_t products(const graph::Graph& g, bool of_arguments) {
  size_t n = 0;
  for (const graph::Node& node : g.nodes()) {
    if (node.op != graph::Op::mm && node.op != graph::Op::addmm) continue;
    graph::ValueId x = std::get<graph::ValueId>(node.args[node.op == graph::Op::addmm]);
    while (g.value(x).node.valid() && graph::op_class(g.node(g.value(x).node).op) == graph::OpClass::View)
      x = std::get<graph::ValueId>(g.node(g.value(x).node).args[0]);
    const bool made = g.value(x).node.valid();
    bool argument = made;
    for (const graph::Input& in : g.inputs)
      if (in.value == x) argument = in.kind == graph::InputKind::Argument;
    n += argument == of_arguments;
  }
  return n;
}

// The adapter's three products are one, the first chain's two; what is read besides and what would multiply more stay.
TEST(MergeProducts, OfOneOperand) {
  graph::Graph before = graph::parse(source(BRAZE_SOURCES "/tests/unit/passes/graphs/merged.graph")),
               after = dce(merge_products(before));
  graph::verify(after);
  EXPECT_EQ(difference(before, after, Within::Rounding), "") << graph::print(after);
  EXPECT_EQ(products(before, true), 9u);
  EXPECT_EQ(products(after, true), 6u) << graph::print(after);
}

}  // namespace
}  // namespace braze::passes
