#include "capture/guards/check_order.h"

#include <algorithm>

#include "base/check.h"

namespace braze::capture {
namespace {

// Guards that are done after the watch table, because they cost more than a few instructions.
bool is_late(GuardKind k) { return k == GuardKind::Tensor || k == GuardKind::Answer; }
bool is_pair(GuardKind k) { return k == GuardKind::SameObject || k == GuardKind::Distinct; }
// Guards on one value alone.
bool is_single(GuardKind k) {
  return !is_pair(k) && k != GuardKind::AllDistinct && k != GuardKind::Apart && k != GuardKind::FloatHolds;
}

int rank(GuardKind k) {
  switch (k) {
    case GuardKind::TypeIs: return 0;
    case GuardKind::Identity:
    case GuardKind::WeakIdentity: return 1;
    case GuardKind::Absent:
    case GuardKind::Exists:
    case GuardKind::Lacks:
    case GuardKind::Length: return 2;
    case GuardKind::Equal: return 3;
    default: return 4;
  }
}

}  // namespace

struct CheckOrder::Builder {
  CheckOrder& out;
  const Sources& all;
  const std::vector<Guard>& guards;
  const Source* const followed;
  // By source.
  std::vector<char> needed, identity, anchored, trailing, in_check, below_followed;
  std::vector<uint32_t> reg;

  Builder(CheckOrder& order, const Sources& sources, const std::vector<Guard>& given, const Source* follow)
      : out(order),
        all(sources),
        guards(given),
        followed(follow),
        needed(all.size()),
        identity(all.size()),
        anchored(all.size()),
        trailing(all.size()),
        in_check(all.size()),
        below_followed(all.size()),
        reg(all.size(), kNone) {}

  void need(SourceId s) {
    for (; s.valid() && !needed[s.index]; s = all[s].base) needed[s.index] = 1;
  }

  void find_needed(const std::vector<SourceId>& wanted, const std::vector<SizeGuards::Place>& places) {
    for (const Guard& g : guards) {
      BRAZE_CHECK(g.source.index < all.size(), "a guard without a source");
      need(g.source);
      need(g.other);
      for (SourceId s : g.group) need(s);
      if (g.kind == GuardKind::Identity) identity[g.source.index] = 1;
    }
    for (SourceId s : wanted) {
      BRAZE_CHECK(s.index < all.size(), "a value without a source is loaded");
      need(s);
    }
    for (const SizeGuards::Place& p : places) need(p.source);
  }

  // A base has a smaller id than what hangs off it.
  void classify() {
    std::vector<char> fixed(all.size());
    for (size_t i = 0; i < all.size(); ++i) {
      if (!needed[i]) continue;
      const Source& s = all[SourceId(i)];
      anchored[i] = s.kind == SourceKind::Const ||
                    (s.base.valid() && fixed[s.base.index] && !trailing[s.base.index] && !is_fleeting(s.kind));
      const bool follows = &s == followed;
      fixed[i] = anchored[i] || identity[i] || follows;
      below_followed[i] = follows || (s.base.valid() && below_followed[s.base.index]);
      // What is fetched anew from something that is watched comes after the watched.
      trailing[i] = !anchored[i] && s.base.valid() && (anchored[s.base.index] || trailing[s.base.index]);
      if (!anchored[i]) in_check[i] = 1;
      if (trailing[i]) in_check[s.base.index] = 1;
    }
  }

  bool all_anchored(const Guard& g) const {
    if (!g.group.empty())
      return std::all_of(g.group.begin(), g.group.end(), [&](SourceId s) { return anchored[s.index]; });
    return anchored[g.source.index] && (!g.other.valid() || anchored[g.other.index]);
  }
  bool watched(const Guard& g) const {
    return all_anchored(g) && !is_late(g.kind) && g.kind != GuardKind::Apart && g.kind != GuardKind::FloatHolds;
  }

  void number_registers(const std::vector<SourceId>& wanted, const std::vector<SizeGuards::Place>& places) {
    for (const Guard& g : guards) {
      if (is_single(g.kind) && !is_late(g.kind)) continue;
      if (watched(g)) continue;
      if (g.group.empty()) in_check[g.source.index] = 1;
      if (g.other.valid()) in_check[g.other.index] = 1;
      for (SourceId s : g.group)
        if (g.kind != GuardKind::AllDistinct || !anchored[s.index]) in_check[s.index] = 1;
    }
    for (const SizeGuards::Place& p : places) in_check[p.source.index] = 1;
    for (SourceId s : wanted) {
      in_check[s.index] = 1;
      uint32_t r = out.num_registers++;
      if (reg[s.index] == kNone)
        reg[s.index] = r;
      else
        out.again.emplace_back(r, reg[s.index]);
    }
    for (size_t i = 0; i < all.size(); ++i)
      if (needed[i] && in_check[i] && reg[i] == kNone) reg[i] = out.num_registers++;
    out.num_all = out.num_registers;
    for (size_t i = 0; i < all.size(); ++i) {
      if (needed[i] && reg[i] == kNone) reg[i] = out.num_all++;
      if (anchored[i] && in_check[i]) out.imported.push_back(reg[i]);
    }
  }

  void order_nodes() {
    std::vector<std::vector<const Guard*>> by_source(all.size());
    for (const Guard& g : guards)
      if (!is_late(g.kind) && is_single(g.kind)) by_source[g.source.index].push_back(&g);
    for (size_t i = 0; i < all.size(); ++i) {
      if (!needed[i]) continue;
      const Source& s = all[SourceId(i)];
      Node n{reg[i], s.base.valid() ? reg[s.base.index] : kNone, &s};
      auto& list = by_source[i];
      std::stable_sort(list.begin(), list.end(), [](auto* a, auto* b) { return rank(a->kind) < rank(b->kind); });
      n.guards_begin = static_cast<uint32_t>(out.early.size());
      out.early.insert(out.early.end(), list.begin(), list.end());
      n.guards_end = static_cast<uint32_t>(out.early.size());
      (anchored[i] ? out.anchored : trailing[i] ? out.trailing : out.moving).push_back(n);
      const bool follows = &s == followed;
      if ((identity[i] || follows) && !anchored[i]) out.roots.push_back(n.reg);
      if (follows) out.followed = n.reg;
    }
  }

  bool is_argument(SourceId s) const { return !anchored[s.index] && !trailing[s.index]; }

  void order_late() {
    for (const Guard& g : guards) {
      if (!g.group.empty()) {
        // Objects that are watched are told from each other when the table is written.
        bool splits = g.kind == GuardKind::AllDistinct;
        Group every_time{&g, {}}, at_times{&g, {}};
        for (SourceId s : g.group)
          (splits && anchored[s.index] ? at_times : every_time).registers.push_back(reg[s.index]);
        if (!at_times.registers.empty()) {
          every_time.beside = static_cast<uint32_t>(out.anchored_groups.size());
          out.anchored_groups.push_back(std::move(at_times));
        }
        if (!every_time.registers.empty())
          (g.kind != GuardKind::Apart ? out.late_groups : out.apart).push_back(std::move(every_time));
      } else if (is_late(g.kind) || is_pair(g.kind)) {
        Late l{&g, reg[g.source.index], g.other.valid() ? reg[g.other.index] : kNone,
               g.kind == GuardKind::Tensor && !is_argument(g.source) && !below_followed[g.source.index] ? g.tensor.get()
                                                                                                        : nullptr};
        (watched(g) ? out.anchored_pairs : out.late).push_back(l);
      }
    }
    // Cheap comparisons of identities before tensors, tensors that are arguments before parameters.
    std::stable_sort(out.late.begin(), out.late.end(), [&](const Late& a, const Late& b) {
      auto key = [&](const Late& l) {
        return l.guard->kind != GuardKind::Tensor ? 0 : anchored[l.guard->source.index] ? 2 : 1;
      };
      return key(a) < key(b);
    });
    // What looks at arguments only comes before the watched objects: another size is found at once.
    auto stays = [&](const Late& l) {
      return !is_argument(l.guard->source) || (l.guard->other.valid() && !is_argument(l.guard->other));
    };
    auto rest = std::stable_partition(out.late.begin(), out.late.end(), [&](const Late& l) { return !stays(l); });
    out.of_arguments.assign(out.late.begin(), rest);
    out.late.erase(out.late.begin(), rest);
  }
};

CheckOrder::CheckOrder(const Sources& sources, const std::vector<Guard>& guards, const std::vector<SourceId>& wanted,
                       const std::vector<SizeGuards::Place>& given, const Source* follow) {
  Builder b(*this, sources, guards, follow);
  b.find_needed(wanted, given);
  b.classify();
  b.number_registers(wanted, given);
  b.order_nodes();
  b.order_late();
  std::vector<char> seen;
  for (const SizeGuards::Place& p : given) {
    if (seen.size() <= p.symbol) seen.resize(p.symbol + 1);
    places.push_back({b.reg[p.source.index], p.dim, p.symbol, p.integer, !std::exchange(seen[p.symbol], 1)});
  }
}

}  // namespace braze::capture
