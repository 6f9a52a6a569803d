#include "schedule/split_reduce.h"

#include <algorithm>
#include <cmath>

#include "loop/analysis.h"
#include "schedule/index.h"
#include "schedule/normalise.h"

namespace braze::schedule {
namespace {

using loop::Buffer;
using loop::BufferId;
using loop::Item;
using loop::LoopOp;
using loop::Nest;
using loop::OpCode;
using loop::Program;
using loop::ReduceKind;
using loop::Stage;
using loop::ValId;

constexpr int64_t kWorth = 1 << 16;                    // elements
constexpr int64_t kFewRows = 16;                       // results that are too few to be the parallel points
constexpr int64_t kFewColumns = 256;                   // the same where the results are the vector
constexpr int64_t kBlocks = 528, kBlockColumns = 128;  // GPU: blocks that fill it; columns of a block
constexpr int64_t kLeastBlockPiece = 4096,
                  kLeastBlockRows = 32;  // GPU: elements of a row, or rows, that are worth a block
constexpr int64_t kPieces = 64, kMostPieces = 4096, kLeastPiece = 256;
constexpr int64_t kOpenPieces = 32;  // of a length that only the run knows, which may be short

bool combines_with_itself(const LoopOp& op) {
  // Partial results of a 16 bit dtype would be rounded.
  bool rounds = op.dtype == DType::F16 || op.dtype == DType::BF16;
  return is_choice(op.reduce) || (loop::reduce_row(op.reduce).family == loop::ReduceFamily::Fold && !rounds);
}

// The divisor of n nearest above `wanted` that leaves pieces of `least`; 0: none.
int64_t pieces_of(int64_t n, int64_t least, int64_t wanted, int64_t fewest) {
  for (int64_t p = wanted; p <= std::min(kMostPieces, n / least); ++p)
    if (n % p == 0) return p;
  for (int64_t p = wanted - 1; p >= fewest; --p)
    if (n % p == 0 && n / p >= least) return p;
  return 0;
}

// Result vectors: does the last outer axis run through memory?
bool by_columns(sym::ExprArena& arena, const Nest& n) {
  if (n.outer.empty()) return false;
  for (const LoopOp& op : n.stages[0].ops) {
    if (op.code != OpCode::Load) continue;
    auto f = arena.affine_in(op.index, n.outer.back().var);
    if (f && arena.is_const(f->coefficient, 1)) return true;
  }
  return false;
}

// What a reduction starts from, as a Const of `dtype`; nullopt: not said here.
std::optional<LoopOp> start_of(ReduceKind kind, DType dtype) {
  LoopOp c;
  c.code = OpCode::Const;
  c.dtype = dtype;
  bool fp = is_floating(dtype), one = false;
  switch (loop::reduce_row(kind).start) {
    case loop::ReduceStart::Zero: break;
    case loop::ReduceStart::One: one = true; break;
    case loop::ReduceStart::Lowest:
    case loop::ReduceStart::Highest:
      if (!fp) return std::nullopt;
      c.number = loop::reduce_row(kind).start == loop::ReduceStart::Lowest ? -HUGE_VAL : HUGE_VAL;
      return c;
  }
  if (fp)
    c.number = one;
  else
    c.integer = one;
  return c;
}

// Pieces of an axis that is open: the last ones end where it does. There the last element is read again, and what it
// gives is left out: `position` runs to the end of a piece, `size` is the axis's. False: a reduction has no start.
bool leave_out_what_is_beyond(Nest& n, Expr position, Expr size) {
  std::vector<LoopOp> ops;
  ValId inside;
  auto add = [&](LoopOp op) {
    op.result = ValId(static_cast<size_t>(n.values++));
    ops.push_back(op);
    return op.result;
  };
  auto index = [&](Expr e) {
    LoopOp op;
    op.code = OpCode::Index;
    op.dtype = DType::I64;
    op.index = e;
    return add(op);
  };
  for (LoopOp& op : n.stages[0].ops) {
    if (op.code == OpCode::Reduce) {
      if (!inside.valid()) {
        LoopOp less;
        less.code = OpCode::Lt;
        less.dtype = DType::Bool;
        ValId at = index(position);
        less.args = {at, index(size), ValId()};
        inside = add(less);
      }
      DType operand = op.dtype;
      for (const LoopOp& from : n.stages[0].ops)
        if (from.result == op.args[0]) operand = from.dtype;
      auto start = start_of(op.reduce, operand);
      if (!start) return false;
      LoopOp where;
      where.code = OpCode::Where;
      where.dtype = operand;
      ValId left_out = add(*start);
      where.args = {inside, op.args[0], left_out};
      op.args[0] = add(where);
    }
    ops.push_back(op);
  }
  n.stages[0].ops = std::move(ops);
  return true;
}

bool split(Program& p, const Nest& n, bool open, std::vector<Item>& out) {
  sym::ExprArena& arena = *p.arena;
  if (n.stages.empty() || n.stages[0].axes.empty() || n.stages.size() > 2) return false;
  if (n.stages.size() == 2 && !n.stages[1].axes.empty()) return false;
  const Stage& body = n.stages[0];
  std::vector<const LoopOp*> reductions;
  for (const LoopOp& op : body.ops) {
    if (op.code == OpCode::Store) return false;
    if (op.code != OpCode::Reduce) continue;
    if (!combines_with_itself(op)) return false;
    reductions.push_back(&op);
  }
  auto points = arena.as_const(volume(arena, n.outer)),
       rest = arena.as_const(volume(arena, std::span(body.axes).subspan(1))),
       first = arena.as_const(body.axes[0].extent);
  if (!points || !rest || *points <= 0 || *rest <= 0) return false;
  if (!first && !open) return false;
  int64_t most = first ? *first : arena.range(body.axes[0].extent).hi;
  if (most < kWorth / *points / *rest) return false;
  bool columns = by_columns(arena, n);
  int64_t pieces;
  bool gpu = false;
  for (const LoopOp& op : body.ops)
    gpu = gpu || (op.code == OpCode::Load && p.buffers[op.buffer].device.type == DeviceType::CUDA);
  if (gpu) {
    // Blocks: a row is one, kBlockColumns columns are.
    int64_t blocks = columns ? (*points + kBlockColumns - 1) / kBlockColumns : *points;
    if (10 * blocks > kBlocks) return false;  // one pass with fewer blocks is better than a second over the data
    int64_t wanted = std::max<int64_t>(2, kBlocks / std::max<int64_t>(1, blocks));
    int64_t least = std::max<int64_t>(1, (columns ? kLeastBlockRows : kLeastBlockPiece) / *rest);
    pieces = first ? pieces_of(*first, least, wanted, 2) : wanted;
  } else {
    if (*points >= (columns ? kFewColumns : kFewRows)) return false;
    int64_t least = std::max<int64_t>(1, kLeastPiece / std::max<int64_t>(1, *rest * (columns ? *points : 1)));
    pieces = first ? pieces_of(*first, least, kPieces, 8) : kOpenPieces;
  }
  if (!pieces) return false;

  // An open length: a GPU's last pieces end where it does; on a CPU, where loads are to be whole vectors, what no piece
  // has is one more.
  const Expr size = body.axes[0].extent;
  const bool cut = !first && gpu, rest_apart = !first && !gpu;
  Axis piece = fresh_axis(arena, arena.constant(pieces)), slot = piece;
  if (rest_apart) slot = fresh_axis(arena, arena.constant(pieces + 1));
  Axis inside =
      fresh_axis(arena, arena.floordiv(cut ? arena.add(size, arena.constant(pieces - 1)) : size, piece.extent));
  // Where the results are the vector, they stay innermost.
  auto partial_index = [&](Expr at, Expr point) {
    return columns ? arena.add(arena.mul(at, arena.constant(*points)), point)
                   : arena.add(arena.mul(point, slot.extent), at);
  };
  Expr point = arena.constant(0);
  for (const Axis& a : n.outer) point = arena.add(arena.mul(point, a.extent), a.var);

  Nest partial;
  partial.name = n.name + "_partial";
  partial.locs = n.locs;
  partial.values = n.values;
  partial.outer = n.outer;
  partial.outer.insert(columns ? partial.outer.begin() : partial.outer.end(), piece);
  partial.stages = {body, Stage{}};
  partial.stages[0].axes[0] = inside;
  Expr position = arena.add(arena.mul(piece.var, inside.extent), inside.var);
  substitute(arena, partial.stages[0],
             {{body.axes[0].var, cut ? arena.min(position, arena.sub(size, arena.constant(1))) : position}});
  if (cut && !leave_out_what_is_beyond(partial, position, size)) return false;

  Nest left_over;
  if (rest_apart) {
    Axis few = fresh_axis(arena, arena.mod(size, piece.extent));
    left_over.name = n.name + "_left_over";
    left_over.locs = n.locs;
    left_over.values = n.values;
    left_over.outer = n.outer;
    left_over.stages = {body, Stage{}};
    left_over.stages[0].axes[0] = few;
    substitute(arena, left_over.stages[0],
               {{body.axes[0].var, arena.add(arena.mul(piece.extent, inside.extent), few.var)}});
  }

  Nest total;
  total.name = n.name;
  total.locs = n.locs;
  total.values = n.values;
  total.outer = n.outer;
  total.stages = {Stage{{slot}, {}}};

  for (const LoopOp* r : reductions) {
    Buffer b;
    b.name = "partial";
    b.dtype = r->dtype;
    for (const LoopOp& op : body.ops)
      if (op.code == OpCode::Load) b.device = p.buffers[op.buffer].device;
    b.sizes = {arena.mul(arena.constant(*points), slot.extent)};
    b.strides = {arena.constant(1)};
    b.offset = arena.constant(0);
    BufferId id = p.buffers.add(std::move(b));
    LoopOp store;
    store.code = OpCode::Store;
    store.dtype = r->dtype;
    store.buffer = id;
    store.index = partial_index(piece.var, point);
    store.args[0] = r->result;
    partial.stages[1].ops.push_back(store);
    if (rest_apart) {
      store.index = partial_index(piece.extent, point);
      left_over.stages[1].ops.push_back(store);
    }
    LoopOp load;
    load.code = OpCode::Load;
    load.dtype = r->dtype;
    load.buffer = id;
    load.index = partial_index(slot.var, point);
    load.result = ValId(static_cast<size_t>(total.values++));
    LoopOp reduce = *r;
    reduce.args[0] = load.result;
    total.stages[0].ops.push_back(load);
    total.stages[0].ops.push_back(reduce);
  }
  if (n.stages.size() == 2) total.stages.push_back(n.stages[1]);
  normalise(arena, partial);
  normalise(arena, total);
  out.push_back(std::move(partial));
  if (rest_apart) {
    normalise(arena, left_over);
    out.push_back(std::move(left_over));
  }
  out.push_back(std::move(total));
  return true;
}

}  // namespace

void split_reductions(Program& p, bool open) {
  std::vector<Item> out;
  out.reserve(p.items.size());
  for (Item& item : p.items) {
    auto* n = std::get_if<Nest>(&item);
    if (!n || !split(p, *n, open, out)) out.push_back(std::move(item));
  }
  p.items = std::move(out);
}

}  // namespace braze::schedule
