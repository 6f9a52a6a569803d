#include "autodiff/max_flow.h"

#include <algorithm>

namespace braze::autodiff {

void FlowNetwork::add_edge(uint32_t from, uint32_t to, int64_t capacity) {
  edges_.push_back({to, first_[from], capacity});
  first_[from] = static_cast<uint32_t>(edges_.size() - 1);
  edges_.push_back({from, first_[to], 0});
  first_[to] = static_cast<uint32_t>(edges_.size() - 1);
}

bool FlowNetwork::build_levels() {
  level_.assign(first_.size(), kNone);
  std::vector<uint32_t> queue{source_};
  level_[source_] = 0;
  for (size_t at = 0; at < queue.size() && level_[sink_] == kNone; ++at)
    for (uint32_t e = first_[queue[at]]; e != kNone; e = edges_[e].next)
      if (edges_[e].capacity > 0 && level_[edges_[e].to] == kNone) {
        level_[edges_[e].to] = level_[queue[at]] + 1;
        queue.push_back(edges_[e].to);
      }
  return level_[sink_] != kNone;
}

int64_t FlowNetwork::run(uint32_t source, uint32_t sink) {
  source_ = source;
  sink_ = sink;
  int64_t total = 0;
  std::vector<uint32_t> next, path;
  while (total < kInfinite && build_levels()) {
    next = first_;
    path.clear();
    // Depth first without recursion: graphs are thousands of nodes deep.
    uint32_t at = source;
    for (;;) {
      if (at == sink) {
        int64_t least = kInfinite;
        for (uint32_t e : path) least = std::min(least, edges_[e].capacity);
        size_t keep = path.size();
        for (size_t i = path.size(); i-- > 0;) {
          Edge& edge = edges_[path[i]];
          if (edge.capacity < kInfinite) edge.capacity -= least;
          Edge& back = edges_[path[i] ^ 1];
          if (back.capacity < kInfinite) back.capacity += least;
          if (edge.capacity == 0) keep = i;
        }
        total += least;
        if (keep == path.size()) return total;  // a path of infinite edges
        at = edges_[path[keep] ^ 1].to;
        path.resize(keep);
        continue;
      }
      uint32_t& e = next[at];
      while (e != kNone && !(edges_[e].capacity > 0 && level_[edges_[e].to] == level_[at] + 1)) e = edges_[e].next;
      if (e != kNone) {
        path.push_back(e);
        at = edges_[e].to;
        continue;
      }
      if (path.empty()) break;
      level_[at] = kNone;  // a dead end
      at = edges_[path.back() ^ 1].to;
      path.pop_back();
    }
  }
  return total;
}

std::vector<bool> FlowNetwork::source_side() const {
  std::vector<bool> seen(first_.size(), false);
  std::vector<uint32_t> queue{source_};
  seen[source_] = true;
  for (size_t at = 0; at < queue.size(); ++at)
    for (uint32_t e = first_[queue[at]]; e != kNone; e = edges_[e].next)
      if (edges_[e].capacity > 0 && !seen[edges_[e].to]) {
        seen[edges_[e].to] = true;
        queue.push_back(edges_[e].to);
      }
  return seen;
}

std::vector<bool> FlowNetwork::source_side_of_last_cut() const {
  std::vector<bool> side(first_.size(), true);
  std::vector<uint32_t> queue{sink_};
  side[sink_] = false;
  for (size_t at = 0; at < queue.size(); ++at)
    for (uint32_t e = first_[queue[at]]; e != kNone; e = edges_[e].next)
      if (edges_[e ^ 1].capacity > 0 && side[edges_[e].to]) {
        side[edges_[e].to] = false;
        queue.push_back(edges_[e].to);
      }
  return side;
}

}  // namespace braze::autodiff
