#include "schedule/reduce_cut.h"

#include <algorithm>
#include <numeric>

#include "schedule/index.h"

namespace braze::schedule {
namespace {

using loop::LoopOp;
using loop::Nest;
using loop::OpCode;
using loop::Stage;

constexpr int64_t kWorth = 1 << 16;   // elements
constexpr int64_t kFewRows = 16;      // results that are too few to be the parallel points
constexpr int64_t kFewColumns = 256;  // the same where the results are the vector
// Of more columns each piece has whole rows, which memory gives faster than some columns of all rows, where the passes
// are long: elements; points beside the columns; columns that are a page; rows, pieces.
constexpr int64_t kWorthRows = 1 << 20, kFewUnits = 16, kPage = 1024, kLeastRows = 64, kRowPieces = 32;
// Rows of no more than a vector of columns: elements that are worth it, and of a share; shares of an open length;
// vectors side by side.
constexpr int64_t kWorthNarrow = 1 << 11, kNarrowShare = 1 << 13, kNarrowOpen = 4, kNarrowVectors = 8, kNarrowRows = 4;
constexpr int64_t kBlocksEach = 4, kBlockColumns = 128;  // GPU: blocks that fill a multiprocessor; columns of one
constexpr int64_t kLeastBlockPiece = 4096,
                  kLeastBlockRows = 32;  // GPU: elements of a row, or rows, that are worth a block
constexpr int64_t kPieces = 64, kMostPieces = 4096, kLeastPiece = 256;
constexpr int64_t kOpenPieces = 32;  // of a length that only the run knows, which may be short

// The divisor of n nearest above `wanted` that leaves pieces of `least`; 0: none.
int64_t pieces_of(int64_t n, int64_t least, int64_t wanted, int64_t fewest) {
  for (int64_t p = wanted; p <= std::min(kMostPieces, n / least); ++p)
    if (n % p == 0) return p;
  for (int64_t p = wanted - 1; p >= fewest; --p)
    if (n % p == 0 && n / p >= least) return p;
  return 0;
}

// Result vectors: does the last outer axis run through the memory of what is reduced?
bool by_columns(sym::ExprArena& arena, const Nest& n) {
  if (n.outer.empty()) return false;
  for (const LoopOp& op : n.stages[0].ops) {
    if (op.code != OpCode::Load) continue;
    if (std::none_of(n.stages[0].axes.begin(), n.stages[0].axes.end(),
                     [&](const Axis& a) { return arena.contains(op.index, a.var); }))
      continue;
    auto f = arena.affine_in(op.index, n.outer.back().var);
    if (f && arena.is_const(f->coefficient, 1)) return true;
  }
  return false;
}

// Of rows one after the other that have no more columns than a vector has lanes, on a CPU: how many side by side make
// whole vectors, about kNarrowVectors of them; 1: of other reductions.
int64_t rows_side_by_side(sym::ExprArena& arena, const Nest& n, const Target& target) {
  const Stage& body = n.stages[0];
  if (target.is_gpu() || body.axes.size() != 1 || n.outer.empty()) return 1;
  const Axis &row = body.axes[0], &column = n.outer.back();
  const auto columns = arena.as_const(column.extent);
  int64_t lanes = 0;
  for (const LoopOp& op : body.ops) {
    if (op.code == OpCode::Indirect) return 1;
    if (op.code == OpCode::Reduce && is_moment(op.reduce)) return 1;
    if (op.code != OpCode::Load || !arena.contains(op.index, row.var)) continue;
    auto by_row = arena.affine_in(op.index, row.var), by_column = arena.affine_in(op.index, column.var);
    if (!by_row || !by_column || by_row->coefficient != column.extent || !arena.is_const(by_column->coefficient, 1))
      return 1;
    lanes = std::max<int64_t>(lanes, target.lanes(static_cast<int>(size_of(op.dtype))));
  }
  if (!columns || *columns < 2 || *columns > lanes) return 1;
  const int64_t least = lanes / std::gcd(lanes, *columns);
  return least * std::max<int64_t>(1, kNarrowVectors * lanes / (least * *columns));
}

}  // namespace

std::optional<ReduceCut> choose_cut(sym::ExprArena& arena, const Nest& n, const Target& target, bool open) {
  const Stage& body = n.stages[0];
  auto points = arena.as_const(volume(arena, n.outer)),
       rest = arena.as_const(volume(arena, std::span(body.axes).subspan(1))),
       first = arena.as_const(body.axes[0].extent);
  if (!points || !rest || *points <= 0 || *rest <= 0) return std::nullopt;
  if (!first && !open) return std::nullopt;
  int64_t most = first ? *first : arena.range(body.axes[0].extent).hi;
  const int64_t side = rows_side_by_side(arena, n, target);
  if (most < (side > 1 ? kWorthNarrow : kWorth) / *points / *rest) return std::nullopt;
  bool columns = by_columns(arena, n);
  int64_t pieces;
  const bool gpu = target.is_gpu();
  const bool moments = std::any_of(body.ops.begin(), body.ops.end(),
                                   [](const LoopOp& op) { return op.code == OpCode::Reduce && is_moment(op.reduce); });
  // On a CPU one pass over all is more exact, where an element far from the others comes first. There is to be a first
  // element, found without looking it up.
  if (moments &&
      (!gpu || arena.range(body.axes[0].extent).lo < 1 ||
       std::any_of(body.ops.begin(), body.ops.end(), [](const LoopOp& op) { return op.code == OpCode::Indirect; })))
    return std::nullopt;
  if (gpu) {
    // Blocks: a row is one, kBlockColumns columns are.
    int64_t blocks = columns ? (*points + kBlockColumns - 1) / kBlockColumns : *points;
    const int64_t filling = kBlocksEach * target.multiprocessors;
    if (10 * blocks > filling) return std::nullopt;  // one pass with fewer blocks is better than a second over the data
    int64_t wanted = std::max<int64_t>(2, filling / std::max<int64_t>(1, blocks));
    int64_t least = std::max<int64_t>(1, (columns ? kLeastBlockRows : kLeastBlockPiece) / *rest);
    pieces = first ? pieces_of(*first, least, wanted, 2) : wanted;
  } else if (side > 1) {
    // Where there is more than those columns, that is enough to share.
    const bool alone = arena.is_const(n.outer.back().extent, *points);
    pieces = side * (!alone  ? 1
                     : first ? std::clamp<int64_t>(*first * *points / kNarrowShare, 1, kPieces)
                             : kNarrowOpen);
    if (first && *first < kNarrowRows * pieces) return std::nullopt;
  } else {
    int64_t least = std::max<int64_t>(1, kLeastPiece / std::max<int64_t>(1, *rest * (columns ? *points : 1)));
    int64_t wanted = kPieces;
    if (*points >= (columns ? kFewColumns : kFewRows)) {
      if (!columns || !first || most < kWorthRows / *points / *rest) return std::nullopt;
      auto row = arena.as_const(n.outer.back().extent);
      if (!row || *points / *row * ((*row + kPage - 1) / kPage) >= kFewUnits) return std::nullopt;
      least = kLeastRows, wanted = kRowPieces;
    }
    pieces = first ? pieces_of(*first, least, wanted, 8) : kOpenPieces;
  }
  if (!pieces) return std::nullopt;
  return ReduceCut{*points, *rest, first, pieces, side, columns};
}

}  // namespace braze::schedule
