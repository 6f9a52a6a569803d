#include "schedule/check_updates.h"

#include <algorithm>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "loop/analysis.h"
#include "schedule/clean.h"
#include "schedule/normalise.h"

namespace braze::schedule {
namespace {

using loop::BufferId;
using loop::Item;
using loop::LoopOp;
using loop::Nest;
using loop::OpCode;
using loop::Program;
using loop::Stage;
using loop::ValId;

const Nest* nest_on_cpu(const Program& p, const Item& item) {
  auto* nest = std::get_if<Nest>(&item);
  if (!nest) return nullptr;
  auto device = loop::device_of(p, *nest);
  return !device || device->type == DeviceType::CPU ? nest : nullptr;
}

// What a nest asks of its data and no more; it has no stages where that needs what the nest itself stores.
class Checks {
 public:
  Checks(Program& p, const Nest& nest) : p_(p), n_(nest), symbols_(canonical_names(*p.arena, n_)) {}

  Nest run() {
    loop::Effects e = loop::effects(Item(n_));
    if (loop::have_common(e.reads, e.writes)) return {};
    for (Stage& s : n_.stages) {
      std::vector<LoopOp> ops;
      for (const LoopOp& op : s.ops) {
        if (op.code == OpCode::Store) continue;
        if (loop::divides_integers(op)) ask_divisor(op, ops);
        ops.push_back(op);
      }
      s.ops = std::move(ops);
    }
    simplify(p_, n_, std::vector<char>(p_.buffers.size(), 0));
    drop_axes();
    normalise(*p_.arena, n_);
    n_.name = "check";
    n_.mapping = {};
    n_.commits = false;
    return std::move(n_);
  }

 private:
  ValId append(std::vector<LoopOp>& ops, LoopOp op) {
    op.result = ValId(static_cast<size_t>(n_.values++));
    ops.push_back(op);
    return op.result;
  }

  void ask_divisor(const LoopOp& division, std::vector<LoopOp>& ops) {
    LoopOp zero, is_zero, number, check;
    zero.code = OpCode::Const;
    zero.dtype = division.dtype;
    is_zero.code = OpCode::Eq;
    is_zero.dtype = DType::Bool;
    is_zero.args = {division.args[1], append(ops, zero), {}};
    number.code = OpCode::Cast;
    number.dtype = DType::I64;
    number.args[0] = append(ops, is_zero);
    check.code = OpCode::Indirect;
    check.dtype = DType::I64;
    check.args[0] = append(ops, number);
    check.bound = p_.arena->constant(1);
    check.check = {loop::Fault::Division, false, 0};
    check.index = p_.arena->positional_symbol('x', symbols_++, check.bound, sym::SymbolKind::Indirect);
    ops.push_back(check);
  }

  // Asking once is enough for what is the same all along an axis, as long as it is asked at all.
  void drop_axes() {
    auto used = [&](const std::vector<Stage>& stages, const loop::Axis& a) {
      return p_.arena->range(a.extent).lo < 1 ||
             std::ranges::any_of(
                 stages,
                 [&](const Stage& s) {
                   return std::ranges::any_of(s.ops, [&](const LoopOp& op) {
                     bool by_index = op.code == OpCode::Load || op.code == OpCode::Index;
                     return loop::accumulates(op.code) || (by_index && p_.arena->contains(op.index, a.var)) ||
                            (op.code == OpCode::Indirect && p_.arena->contains(op.bound, a.var));
                   });
                 });
    };
    std::erase_if(n_.outer, [&](const loop::Axis& a) { return !used(n_.stages, a); });
    for (Stage& s : n_.stages) {
      const std::vector<Stage> own{s};
      std::erase_if(s.axes, [&](const loop::Axis& a) { return !used(own, a); });
    }
  }

  Program& p_;
  Nest n_;
  size_t symbols_;
};

class Order {
 public:
  explicit Order(Program& p) : p_(p) {
    for (const Item& item : p.items) effects_.push_back(loop::effects(item));
  }

  void run() {
    if (!mark()) return;
    sink();
    const auto first = static_cast<size_t>(std::ranges::find_if(p_.items, commits) - p_.items.begin());
    std::vector<Item> items;
    std::unordered_set<std::string> asked;
    auto ask = [&](size_t i) {
      const Nest* nest = nest_on_cpu(p_, p_.items[i]);
      if (!nest || !loop::may_fault(*nest)) return;
      Nest check = Checks(p_, *nest).run();
      if (check.stages.empty()) return;
      auto locs = std::exchange(check.locs, {});
      if (!asked.insert(loop::print(p_, check)).second) return;
      check.locs = std::move(locs);
      items.emplace_back(std::move(check));
    };
    std::unordered_set<uint32_t> made;  // since the first commit
    std::vector<bool> early(p_.items.size());
    for (size_t i = first; i < p_.items.size(); ++i) {
      early[i] = std::ranges::none_of(effects_[i].reads, [&](BufferId b) { return made.count(b.index) != 0; });
      for (BufferId b : effects_[i].writes) made.insert(b.index);
    }
    for (size_t i = 0; i < p_.items.size(); ++i) {
      if (i == first)
        for (size_t k = first; k < p_.items.size(); ++k)
          if (early[k]) ask(k);
      if (commits(p_.items[i]) && !early[i]) ask(i);
      items.push_back(p_.items[i]);
    }
    p_.items = std::move(items);
  }

 private:
  static bool commits(const Item& item) {
    auto* nest = std::get_if<Nest>(&item);
    return nest && nest->commits;
  }

  // False where there is nothing to ask or to wait.
  bool mark() {
    std::vector<BufferId> in_place;
    for (const loop::Writeback& w : p_.writebacks)
      if (w.in_place) in_place.push_back(w.from.buffer);
    bool any = false, faults = false;
    for (size_t i = 0; i < p_.items.size() && !in_place.empty(); ++i) {
      if (!nest_on_cpu(p_, p_.items[i])) continue;
      auto& nest = std::get<Nest>(p_.items[i]);
      faults = faults || loop::may_fault(nest);
      any = any || loop::have_common(effects_[i].writes, in_place);
    }
    for (size_t i = 0; any && faults && i < p_.items.size(); ++i)
      if (nest_on_cpu(p_, p_.items[i]) && loop::have_common(effects_[i].writes, in_place))
        std::get<Nest>(p_.items[i]).commits = true;
    return any && faults;
  }

  // What commits goes right before what needs it: all else has found its faults by then.
  void sink() {
    for (size_t i = p_.items.size(); i-- > 0;) {
      if (!commits(p_.items[i])) continue;
      size_t to = i;
      while (to + 1 < p_.items.size() && !loop::have_common(effects_[to + 1].reads, effects_[i].writes) &&
             !loop::have_common(effects_[to + 1].writes, effects_[i].reads) &&
             !loop::have_common(effects_[to + 1].writes, effects_[i].writes))
        ++to;
      auto rotate = [&](auto& v) {
        auto at = [&](size_t k) { return v.begin() + static_cast<std::ptrdiff_t>(k); };
        std::rotate(at(i), at(i + 1), at(to + 1));
      };
      rotate(p_.items);
      rotate(effects_);
    }
  }

  Program& p_;
  std::vector<loop::Effects> effects_;  // per item
};

}  // namespace

void check_updates(Program& p) { Order(p).run(); }

}  // namespace braze::schedule
