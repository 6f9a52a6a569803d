#include "schedule/share_rows.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "loop/analysis.h"
#include "schedule/index.h"

namespace braze::schedule {
namespace {

using loop::arity;
using loop::Buffer;
using loop::BufferId;
using loop::BufferKind;
using loop::LoopOp;
using loop::Nest;
using loop::OpCode;
using loop::Program;
using loop::Stage;
using loop::ValId;

constexpr int kWorthARow = 6;             // cost of an element's computation, loads included, above that of a load
constexpr int64_t kLongestRow = 1 << 16;  // elements

struct Where {
  uint32_t stage, op;
};

// Equal numbers are equal values at equal points of stages over the same axes.
class Numbering {
 public:
  explicit Numbering(const Nest& n) : number_(n.values, 0) {
    for (const Stage& s : n.stages)
      for (const LoopOp& op : s.ops)
        if (op.code == OpCode::Store) written_.push_back(op.buffer);
  }

  // 0: a value of its own.
  uint32_t operator()(const LoopOp& op) {
    bool pure = !loop::accumulates(op.code) && op.code != OpCode::Store && op.code != OpCode::Indirect;
    if (op.code == OpCode::Load) pure = std::find(written_.begin(), written_.end(), op.buffer) == written_.end();
    if (!pure) {
      if (op.result.valid()) number_[op.result.index] = next_++;
      return 0;
    }
    std::array<uint32_t, 3> args{};
    for (int i = 0; i < arity(op.code); ++i)
      args[static_cast<size_t>(i)] = number_[op.args[static_cast<size_t>(i)].index];
    Key key{op.code,
            op.dtype,
            args,
            op.code == OpCode::Load ? op.buffer.index : 0,
            op.code == OpCode::Load || op.code == OpCode::Index ? op.index.id : 0,
            op.code == OpCode::Const ? op.integer : 0};
    auto [it, fresh] = known_.emplace(key, next_);
    if (fresh) ++next_;
    return number_[op.result.index] = it->second;
  }

 private:
  using Key = std::tuple<OpCode, DType, std::array<uint32_t, 3>, uint32_t, uint32_t, int64_t>;
  std::map<Key, uint32_t> known_;
  std::vector<uint32_t> number_;
  std::vector<BufferId> written_;
  uint32_t next_ = 1;
};

}  // namespace

void share_rows(Program& p, Nest& n) {
  sym::ExprArena& arena = *p.arena;
  size_t loops = 0;
  for (const Stage& s : n.stages) loops += !s.axes.empty();
  if (loops < 2) return;

  Numbering number(n);
  std::map<uint32_t, Where> first;      // number -> its first computation
  std::map<uint32_t, BufferId> row_of;  // number -> the row that holds it
  struct RowStore {
    Where after;
    LoopOp store;
  };
  std::vector<RowStore> stores;
  for (uint32_t si = 0; si < n.stages.size(); ++si) {
    Stage& t = n.stages[si];
    std::vector<uint32_t> numbers(t.ops.size());
    for (size_t i = 0; i < t.ops.size(); ++i) numbers[i] = number(t.ops[i]);
    if (t.axes.empty()) continue;
    std::vector<int> here(n.values, -1);
    for (size_t i = 0; i < t.ops.size(); ++i)
      if (t.ops[i].result.valid()) here[t.ops[i].result.index] = static_cast<int>(i);

    auto again = [&](size_t i) {
      if (!numbers[i]) return false;
      auto it = first.find(numbers[i]);
      return it != first.end() && same_axes(n.stages[it->second.stage].axes, t.axes);
    };
    // Values that something new needs; those below them then need not be computed again.
    std::vector<char> wanted(t.ops.size(), 0);
    for (size_t i = 0; i < t.ops.size(); ++i)
      if (!again(i))
        for (int k = 0; k < arity(t.ops[i].code); ++k)
          if (int d = here[t.ops[i].args[static_cast<size_t>(k)].index]; d >= 0) wanted[static_cast<size_t>(d)] = 1;
    for (size_t i = t.ops.size(); i-- > 0;) {
      if (!wanted[i] || !again(i) || t.ops[i].code == OpCode::Load) continue;
      int cost = 0;
      std::vector<char> in(t.ops.size(), 0);
      in[i] = 1;
      for (size_t j = i + 1; j-- > 0;) {
        if (!in[j]) continue;
        cost += loop::cost(t.ops[j].code);
        for (int k = 0; k < arity(t.ops[j].code); ++k)
          if (int d = here[t.ops[j].args[static_cast<size_t>(k)].index]; d >= 0) in[static_cast<size_t>(d)] = 1;
      }
      DType type = t.ops[i].dtype;
      auto length = volume(arena, t.axes);
      if (cost < kWorthARow || is_rounded_float(type) || estimate(arena, length) > kLongestRow) continue;
      Expr at = arena.constant(0);
      for (const Axis& a : t.axes) at = arena.add(arena.mul(at, a.extent), a.var);
      auto [row, fresh] = row_of.emplace(numbers[i], BufferId());
      if (fresh) {
        Buffer b;
        b.name = "row";
        b.dtype = type;
        b.kind = BufferKind::Local;
        b.sizes = {length};
        b.strides = {arena.constant(1)};
        b.offset = arena.constant(0);
        for (const Stage& s : n.stages)
          for (const LoopOp& op : s.ops)
            if (op.code == OpCode::Store) b.device = p.buffers[op.buffer].device;
        row->second = p.buffers.add(std::move(b));
        Where w = first.at(numbers[i]);
        LoopOp store;
        store.code = OpCode::Store;
        store.dtype = type;
        store.buffer = row->second;
        store.index = at;
        store.args[0] = n.stages[w.stage].ops[w.op].result;
        stores.push_back({w, store});
      }
      LoopOp load;
      load.code = OpCode::Load;
      load.dtype = type;
      load.buffer = row->second;
      load.index = at;
      load.result = t.ops[i].result;
      t.ops[i] = load;  // what it was computed from is dropped as unused
    }
    for (size_t i = 0; i < t.ops.size(); ++i)
      if (numbers[i]) first.emplace(numbers[i], Where{si, static_cast<uint32_t>(i)});
  }
  // From the back, so that positions stay valid.
  std::sort(stores.begin(), stores.end(), [](const RowStore& a, const RowStore& b) {
    return std::tuple(a.after.stage, a.after.op) > std::tuple(b.after.stage, b.after.op);
  });
  for (const RowStore& s : stores) {
    auto& ops = n.stages[s.after.stage].ops;
    ops.insert(ops.begin() + s.after.op + 1, s.store);
  }
}

}  // namespace braze::schedule
