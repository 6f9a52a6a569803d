// Maximum flow and minimum cut (Dinic's algorithm: blocking flows over levels of a breadth-first search).
#pragma once
#include <cstdint>
#include <vector>

namespace braze::autodiff {

class FlowNetwork {
 public:
  static constexpr int64_t kInfinite = INT64_MAX / 4;

  explicit FlowNetwork(uint32_t nodes) : first_(nodes, kNone) {}
  void add_edge(uint32_t from, uint32_t to, int64_t capacity);
  // The value of the flow; kInfinite or more: no finite cut separates them. Once per network.
  int64_t run(uint32_t source, uint32_t sink);
  // After run(): the nodes on the source's side of the minimum cut that is nearest to the source.
  std::vector<bool> source_side() const;
  // The same for the minimum cut nearest to the sink.
  std::vector<bool> source_side_of_last_cut() const;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Edge {
    uint32_t to, next;
    int64_t capacity;  // what is left; the reverse edge is at index ^ 1
  };
  bool build_levels();

  std::vector<uint32_t> first_;
  std::vector<Edge> edges_;
  std::vector<uint32_t> level_;
  uint32_t source_ = 0, sink_ = 0;
};

}  // namespace braze::autodiff
