#include "schedule/group.h"

#include <algorithm>
#include <optional>
#include <queue>
#include <tuple>
#include <unordered_set>

#include "base/check.h"
#include "loop/analysis.h"
#include "loop/product.h"
#include "schedule/clean.h"
#include "schedule/fuse.h"
#include "schedule/index.h"
#include "schedule/mapping.h"

namespace braze::schedule {
namespace {

using loop::BufferId;
using loop::Item;
using loop::Nest;
using loop::OpCode;
using loop::Program;

constexpr int64_t kMinPoints = 8;  // outer points that keep the machine busy
// Element operations below which parallelism does not matter: those of one core, and of a GPU's block, beside which a
// launch of its own takes longer.
constexpr double kSmallWork = 1 << 16, kSmallWorkOfBlock = 1 << 18;
constexpr size_t kMaxOps = 600, kMaxBuffers = 32;
constexpr int64_t kMinRow = 16;           // elements of a row that are worth a loop of their own
constexpr int64_t kHorizontalReach = 12;  // items between two nests that only share inputs

constexpr double kHeldBytes = 1 << 20;  // of temporaries, over a call: less does not matter

struct Group {
  std::optional<Nest> nest;     // none: an extern call
  std::vector<uint32_t> items;  // ascending
  std::vector<BufferId> reads, writes;
  std::vector<uint32_t> succ;   // groups, possibly repeated; resolved through `into`
  uint32_t into = UINT32_MAX;   // merged into that group
  double work = 0, points = 1;  // estimates: element operations; outer points
  bool pointwise = false;
  bool product = false;  // that its device multiplies at once
  size_t ops = 0;
};

class Grouper {
 public:
  Grouper(const Program& p, const Options& options, const Targets& targets)
      : p_(p), arena_(*p.arena), options_(options), targets_(targets) {}

  std::vector<Item> run() {
    build();
    if (options_.fuse)
      while (round()) {
      }
    return order();
  }

 private:
  uint32_t find(uint32_t g) {
    while (groups_[g].into != UINT32_MAX) g = groups_[g].into;
    return g;
  }

  void measure(Group& g) {
    const Nest& n = *g.nest;
    g.points = 1;
    for (const Axis& a : n.outer) g.points *= static_cast<double>(estimate(arena_, a.extent));
    g.work = 0;
    g.ops = 0;
    for (const loop::Stage& s : n.stages) {
      double points = g.points;
      for (const Axis& a : s.axes) points *= static_cast<double>(estimate(arena_, a.extent));
      double cost = 0;
      for (const loop::LoopOp& op : s.ops) cost += loop::cost(op.code);
      g.work += cost * points;
      g.ops += s.ops.size();
    }
    g.pointwise = is_pointwise(n);
    g.product = is_product(n);
  }

  // As its stages will be.
  bool is_product(const Nest& n) {
    int columns = is_pointwise(n) ? 0 : target_of(targets_, p_, n).most_product_columns();
    if (!columns) return false;
    Nest merged = n;
    merge_stages(arena_, merged);
    return loop::product_of(p_, merged, columns).has_value();
  }

  void build() {
    auto deps = loop::dependencies(p_);
    groups_.resize(p_.items.size());
    bytes_.resize(p_.buffers.size());
    for (size_t i = 0; i < p_.buffers.size(); ++i) {
      const loop::Buffer& b = p_.buffers[BufferId(i)];
      double n = static_cast<double>(size_of(b.dtype));
      for (size_t d = 0; d < b.sizes.size(); ++d)
        if (!arena_.is_const(b.strides[d], 0)) n *= static_cast<double>(estimate(arena_, b.sizes[d]));
      bytes_[i] = n;
    }
    for (uint32_t i = 0; i < p_.items.size(); ++i) {
      Group& g = groups_[i];
      g.items = {i};
      auto e = loop::effects(p_.items[i]);
      g.reads = std::move(e.reads);
      g.writes = std::move(e.writes);
      if (auto* n = std::get_if<Nest>(&p_.items[i])) {
        g.nest = *n;
        measure(g);
      }
      for (uint32_t d : deps[i]) groups_[d].succ.push_back(i);
    }
    sort_groups();
  }

  // Positions in a topological order; recomputed after each merge.
  void sort_groups() {
    size_t n = groups_.size();
    position_.assign(n, 0);
    std::vector<uint32_t> degree(n, 0);
    for (uint32_t g = 0; g < n; ++g) {
      if (groups_[g].into != UINT32_MAX) continue;
      for (uint32_t s : groups_[g].succ)
        if (uint32_t t = find(s); t != g) ++degree[t];
    }
    // The original position decides between ready groups: that of the last part, so that inputs come late and lives
    // stay short.
    auto later = [&](uint32_t a, uint32_t b) {
      return std::tuple(groups_[a].items.back(), a) > std::tuple(groups_[b].items.back(), b);
    };
    std::priority_queue<uint32_t, std::vector<uint32_t>, decltype(later)> ready(later);
    size_t alive = 0;
    for (uint32_t g = 0; g < n; ++g) {
      if (groups_[g].into != UINT32_MAX) continue;
      ++alive;
      if (!degree[g]) ready.push(g);
    }
    sorted_.clear();
    while (!ready.empty()) {
      uint32_t g = ready.top();
      ready.pop();
      position_[g] = static_cast<uint32_t>(sorted_.size());
      sorted_.push_back(g);
      for (uint32_t s : groups_[g].succ)
        if (uint32_t t = find(s); t != g && --degree[t] == 0) ready.push(t);
    }
    BRAZE_CHECK(sorted_.size() == alive, "fusion made a cycle");
  }

  // Is there a path from a to b through a third group?
  bool detour(uint32_t a, uint32_t b) {
    std::vector<uint32_t> stack;
    std::unordered_set<uint32_t> seen;
    auto push = [&](uint32_t from) {
      for (uint32_t s : groups_[from].succ) {
        uint32_t t = find(s);
        if (t == from) continue;
        if (t == b) {
          if (from != a) return true;
          continue;
        }
        if (position_[t] < position_[b] && seen.insert(t).second) stack.push_back(t);
      }
      return false;
    };
    if (push(a)) return true;
    while (!stack.empty()) {
      uint32_t g = stack.back();
      stack.pop_back();
      if (push(g)) return true;
    }
    return false;
  }

  struct Candidate {
    double score;
    uint32_t distance, a, b;
    bool vertical;
  };

  std::vector<Candidate> candidates() {
    std::vector<std::vector<uint32_t>> users(p_.buffers.size());
    for (uint32_t g : sorted_) {
      if (!groups_[g].nest) continue;
      for (BufferId b : groups_[g].writes) users[b.index].push_back(g);
      for (BufferId b : groups_[g].reads)
        if (users[b.index].empty() || users[b.index].back() != g) users[b.index].push_back(g);
    }
    std::unordered_set<uint64_t> seen;
    std::vector<Candidate> all;
    for (const auto& list : users)
      for (size_t i = 0; i < list.size(); ++i)
        for (size_t k = i + 1; k < list.size() && k < i + 24; ++k) {
          uint32_t a = list[i], b = list[k];
          uint64_t pair = (static_cast<uint64_t>(a) << 32) | b;
          if (failed_.count(pair) || !seen.insert(pair).second) continue;
          Candidate c{0, position_[b] - position_[a], a, b, false};
          for (BufferId x : groups_[b].reads) {
            bool written = contains(groups_[a].writes, x);
            if (written || contains(groups_[a].reads, x)) c.score += bytes_[x.index] * (written ? 2 : 1);
            c.vertical |= written;
          }
          if (groups_[a].pointwise && groups_[b].pointwise)
            for (BufferId x : groups_[b].writes)  // parts of the same rows
              if (contains(groups_[a].writes, x)) c.score += bytes_[x.index];
          if (c.score > 0) all.push_back(c);
        }
    const double weight = options_.fusion_score ? 1 : 0;
    std::sort(all.begin(), all.end(), [weight](const Candidate& x, const Candidate& y) {
      return std::tuple(-weight * x.score, x.distance, x.a, x.b) < std::tuple(-weight * y.score, y.distance, y.a, y.b);
    });
    return all;
  }

  static bool contains(const std::vector<BufferId>& v, BufferId b) {
    return std::find(v.begin(), v.end(), b) != v.end();
  }

  bool round() {
    bool any = false;
    for (const Candidate& c : candidates()) {
      if (groups_[c.a].into != UINT32_MAX || groups_[c.b].into != UINT32_MAX)
        continue;  // the next round sees their union
      uint64_t pair = (static_cast<uint64_t>(c.a) << 32) | c.b;
      uint32_t a = c.a, b = c.b;
      if (position_[a] > position_[b]) std::swap(a, b);
      if (!holds_more_than_it_saves(a, b, c.score) && try_merge(a, b, c.vertical))
        any = true;
      else
        failed_.insert(pair);
    }
    return any;
  }

  // Whether what the first reads, and the second does not, would be held over a call until the second runs, and is far
  // more than what being one saves: parts of a large computation that calls make one after another stay apart.
  bool holds_more_than_it_saves(uint32_t a, uint32_t b, double saved) {
    bool call_between = false;
    for (size_t at = position_[a] + 1; at < position_[b] && !call_between; ++at)
      call_between = !groups_[sorted_[at]].nest.has_value();
    if (!call_between) return false;
    double held = 0;
    for (BufferId x : groups_[a].reads)
      if (p_.buffers[x].kind == loop::BufferKind::Temp && !contains(groups_[b].reads, x)) held += bytes_[x.index];
    return held > std::max(kHeldBytes, 8 * saved);
  }

  bool try_merge(uint32_t a, uint32_t b, bool vertical) {
    Group &ga = groups_[a], &gb = groups_[b];
    if (ga.ops + gb.ops > kMaxOps || static_cast<int64_t>(ga.items.size() + gb.items.size()) > options_.max_fusion_size)
      return false;
    if (!vertical &&
        std::abs(static_cast<int64_t>(position_[b]) - static_cast<int64_t>(position_[a])) > kHorizontalReach)
      return false;
    const bool mixed = !vertical && ga.pointwise != gb.pointwise, far = mixed && reads_from_afar(ga, gb);
    if (mixed && !far && ga.points != gb.points) return false;
    size_t buffers = ga.reads.size() + ga.writes.size();
    for (BufferId x : gb.reads) buffers += !contains(ga.reads, x) && !contains(ga.writes, x);
    buffers += gb.writes.size();
    if (buffers > kMaxBuffers) return false;
    if (detour(a, b)) return false;
    auto fused = fuse(arena_, *ga.nest, *gb.nest);
    if (!fused) return false;
    Group merged;
    merged.nest = std::move(fused);
    measure(merged);
    if ((ga.product || gb.product) && !merged.product) return false;
    double before = std::max(ga.points, gb.points);
    double small = target_of(targets_, p_, *merged.nest).is_gpu() ? kSmallWorkOfBlock : kSmallWork;
    if (merged.points < std::min<double>(before, kMinPoints) && merged.work > small) return false;
    if (!vertical && !merged.pointwise && (ga.pointwise || gb.pointwise) && !(far && same_axes(*merged.nest)))
      return false;
    if (ga.pointwise && gb.pointwise && !merged.pointwise && shortest_row(*merged.nest) < kMinRow) return false;
    if (!merged.pointwise && ((ga.pointwise && crosses(*ga.nest)) || (gb.pointwise && crosses(*gb.nest)))) return false;

    merged.items = ga.items;
    merged.items.insert(merged.items.end(), gb.items.begin(), gb.items.end());
    std::sort(merged.items.begin(), merged.items.end());
    merged.reads = ga.reads;
    merged.writes = ga.writes;
    for (BufferId x : gb.reads)
      if (!contains(merged.reads, x)) merged.reads.push_back(x);
    for (BufferId x : gb.writes)
      if (!contains(merged.writes, x)) merged.writes.push_back(x);
    merged.succ = ga.succ;
    merged.succ.insert(merged.succ.end(), gb.succ.begin(), gb.succ.end());
    auto id = static_cast<uint32_t>(groups_.size());
    ga.into = gb.into = id;
    ga.nest.reset();
    gb.nest.reset();
    for (uint32_t& s : merged.succ) s = find_or(s, id);
    std::sort(merged.succ.begin(), merged.succ.end());
    merged.succ.erase(std::unique(merged.succ.begin(), merged.succ.end()), merged.succ.end());
    std::erase(merged.succ, id);
    groups_.push_back(std::move(merged));
    sort_groups();
    return true;
  }

  // Whether two groups read so much of the same that the second would not find it in a cache.
  bool reads_from_afar(const Group& a, const Group& b) {
    double bytes = 0;
    for (BufferId x : b.reads)
      if (contains(a.reads, x)) bytes += bytes_[x.index];
    return bytes > static_cast<double>(target_of(targets_, p_, *a.nest).cache_bytes);
  }

  // The shortest innermost loop, where fusion made rows of pointwise nests.
  int64_t shortest_row(const Nest& n) {
    int64_t least = INT64_MAX;
    for (const loop::Stage& s : n.stages)
      if (!s.axes.empty()) least = std::min(least, estimate(arena_, s.axes.back().extent));
    return least;
  }

  // Reads along another axis than the one it writes along: such a nest wants tiles, not rows.
  bool crosses(const Nest& n) {
    if (n.outer.size() < 2 || estimate(arena_, n.outer.back().extent) < 8) return false;
    Expr last = n.outer.back().var;
    for (const loop::Access& a : loop::accesses(n)) {
      if (a.write) continue;
      auto f = arena_.affine_in(a.index, last);
      if (f && !arena_.is_const(f->coefficient, 0) && !arena_.is_const(f->coefficient, 1)) return true;
    }
    return false;
  }

  uint32_t find_or(uint32_t g, uint32_t fresh) {
    while (g != fresh && groups_[g].into != UINT32_MAX) g = groups_[g].into;
    return g;
  }

  std::vector<Item> order() {
    std::vector<Item> out;
    out.reserve(sorted_.size());
    for (uint32_t g : sorted_) {
      if (groups_[g].nest) {
        Nest n = std::move(*groups_[g].nest);
        name(n, groups_[g]);
        out.push_back(std::move(n));
      } else {
        out.push_back(p_.items[groups_[g].items.front()]);
      }
    }
    return out;
  }

  // "a_b_c": the parts, each word once.
  void name(Nest& n, const Group& g) {
    if (g.items.size() < 2) return;
    std::vector<std::string> parts;
    for (uint32_t i : g.items) {
      const std::string& s = std::get<Nest>(p_.items[i]).name;
      if (!s.empty() && std::find(parts.begin(), parts.end(), s) == parts.end()) parts.push_back(s);
    }
    n.name.clear();
    for (const std::string& s : parts) {
      if (n.name.size() + s.size() > 60) break;
      n.name += (n.name.empty() ? "" : "_") + s;
    }
  }

  const Program& p_;
  sym::ExprArena& arena_;
  const Options& options_;
  const Targets& targets_;
  std::vector<Group> groups_;
  std::vector<double> bytes_;
  std::vector<uint32_t> position_, sorted_;
  std::unordered_set<uint64_t> failed_;
};

}  // namespace

std::vector<Item> fuse_items(const Program& p, const Options& options, const Targets& targets) {
  return Grouper(p, options, targets).run();
}

}  // namespace braze::schedule
