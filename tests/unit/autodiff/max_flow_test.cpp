#include "autodiff/max_flow.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace braze::autodiff {
namespace {

struct Edge {
  uint32_t from, to;
  int64_t capacity;
};

FlowNetwork network(uint32_t nodes, const std::vector<Edge>& edges) {
  FlowNetwork flow(nodes);
  for (const Edge& e : edges) flow.add_edge(e.from, e.to, e.capacity);
  return flow;
}

int64_t crossing(const std::vector<Edge>& edges, const std::vector<bool>& side) {
  int64_t sum = 0;
  for (const Edge& e : edges)
    if (side[e.from] && !side[e.to]) sum += e.capacity;
  return sum;
}

// The least cut over all subsets of nodes with the source and without the sink.
int64_t least_cut(uint32_t nodes, const std::vector<Edge>& edges) {
  int64_t best = INT64_MAX;
  for (uint32_t set = 0; set < (1u << nodes); ++set) {
    if (!(set & 1) || (set & 2)) continue;
    std::vector<bool> side(nodes);
    for (uint32_t n = 0; n < nodes; ++n) side[n] = set >> n & 1;
    best = std::min(best, crossing(edges, side));
  }
  return best;
}

TEST(MaxFlow, FindsTheLeastCutOfRandomNetworks) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    uint32_t nodes = 2 + random() % 9;
    std::vector<Edge> edges;
    for (uint32_t i = 0; i < nodes * 3; ++i)
      edges.push_back({static_cast<uint32_t>(random() % nodes), static_cast<uint32_t>(random() % nodes),
                       static_cast<int64_t>(random() % 20)});
    FlowNetwork flow = network(nodes, edges);
    int64_t value = flow.run(0, 1);
    ASSERT_EQ(value, least_cut(nodes, edges)) << "seed " << seed;
    ASSERT_EQ(value, crossing(edges, flow.source_side())) << "seed " << seed;
    ASSERT_EQ(value, crossing(edges, flow.source_side_of_last_cut())) << "seed " << seed;
  }
}

TEST(MaxFlow, AmongEqualCutsBothEndsCanBeAskedFor) {
  FlowNetwork flow = network(4, {{0, 2, 5}, {2, 3, 5}, {3, 1, 5}});
  EXPECT_EQ(flow.run(0, 1), 5);
  EXPECT_EQ(flow.source_side(), (std::vector<bool>{true, false, false, false}));
  EXPECT_EQ(flow.source_side_of_last_cut(), (std::vector<bool>{true, false, true, true}));
}

TEST(MaxFlow, APathThatCannotBeCutIsInfinite) {
  FlowNetwork flow = network(3, {{0, 2, FlowNetwork::kInfinite}, {2, 1, FlowNetwork::kInfinite}, {0, 1, 3}});
  EXPECT_GE(flow.run(0, 1), FlowNetwork::kInfinite);
}

TEST(MaxFlow, InfiniteEdgesAreNotCut) {
  std::vector<Edge> edges{
      {0, 2, FlowNetwork::kInfinite}, {2, 3, 7}, {3, 4, FlowNetwork::kInfinite}, {4, 1, 9}, {2, 4, 1}};
  FlowNetwork flow = network(5, edges);
  EXPECT_EQ(flow.run(0, 1), 8);
}

}  // namespace
}  // namespace braze::autodiff
