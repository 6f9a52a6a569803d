// Tiles: nests of which some reads run along another axis than the stores.
#include "codegen/cpu/emitter.h"
#include "loop/analysis.h"

namespace braze::codegen::cpu {

using loop::OpCode;

// A tile of kTile rows and columns: what is read along the rows' axis is first transposed into a scratch tile, square
// by square of width x width points; then the rows are run from end to end. So memory is touched in runs of several
// lines. What the CPU asks for by itself ends with a run: meanwhile both ask for what the next tile reads.
void Emitter::run_tile(Value* rows, Value* begin, Value* end) {
  const loop::Axis& row = nest_.outer[nest_.outer.size() - 2];
  int level = top();
  Value* extent = emit(row.extent);
  Value* rows_end = B.CreateAdd(rows, B.getInt64(kTile), "", true, true);
  rows_end = B.CreateSelect(B.CreateICmpSLT(rows_end, extent), rows_end, extent);
  bind(row.var, rows, level);
  std::vector<const LoopOp*> across;
  for (const loop::Stage& s : nest_.stages)
    for (const LoopOp& op : s.ops) {
      if (op.code != OpCode::Load || stores_to(op.buffer) ||
          program_.buffers[op.buffer].kind == loop::BufferKind::Local)
        continue;
      if (!varies(op.index) || lane_step(op.index) == 1 || loop::is_indirect(arena_, op.index)) continue;
      auto down = arena_.affine_in(op.index, row.var), along = arena_.affine_in(op.index, *vector_.var);
      bool known = std::any_of(across.begin(), across.end(),
                               [&](const LoopOp* o) { return o->buffer == op.buffer && o->index == op.index; });
      if (!known && down && arena_.is_const(down->coefficient, 1) && along &&
          !arena_.contains(along->coefficient, row.var))
        across.push_back(&op);
    }
  Value* tile_step = B.getInt64(kTile);
  auto place = [&](Value* r, Value* column) {  // in a scratch tile
    return B.CreateAdd(B.CreateMul(B.CreateSub(r, rows), tile_step), B.CreateSub(column, begin), "", true, true);
  };
  if (!across.empty())
    run_columns(begin, end, block_length_, [&] {
      Value* columns = B.getInt64(static_cast<uint64_t>(width_));
      if (vector_.mask) {
        Value* left = B.CreateSub(end, vector_.iv);
        columns = B.CreateSelect(B.CreateICmpSLT(left, columns), left, columns);
      }
      loop(rows, rows_end, width_, true, {}, [&](Value* first, Values) {
        bind(row.var, first, top());
        Value* last = B.CreateAdd(first, B.getInt64(static_cast<uint64_t>(width_)), "", true, true);
        last = B.CreateSelect(B.CreateICmpSLT(last, rows_end), last, rows_end);
        for (const LoopOp* op : across)
          transpose_square(*op, place(first, vector_.iv), B.CreateSub(last, first), columns);
        return Values();
      });
    });
  for (const LoopOp* op : across) {
    auto key = std::make_pair(op->buffer.index, op->index.id);
    tiles_[key] = squares_[key];
  }
  // Row by row: of several at a time, lines would be written in parts.
  int cost = 0;
  for (const loop::Stage& s : nest_.stages) cost += body_cost(s);
  copies_ = cost <= 12 ? 4 : cost <= 24 ? 2 : 1;
  loop(rows, rows_end, 1, true, {}, [&](Value* i, Values) {
    bind(row.var, i, top());
    run_columns(begin, end, block_length_, [&] {
      tile_row_ = place(i, vector_.iv);
      run_stages();
    });
    return Values();
  });
  copies_ = 1;
  tiles_.clear();
}

// Elements from what `load` reads to the same in the tile that comes after this one; null: it is not worth asking for.
Value* Emitter::to_next_tile(const LoopOp& load) {
  constexpr int64_t kAtHand = 4 << 20;  // bytes that are in caches of one core, or soon
  if (footprint().value_or(INT64_MAX) <= std::min(kAtHand, vb_.target.cache_bytes)) return nullptr;
  auto tiles = [&](Expr axis) {
    auto step = arena_.affine_in(load.index, axis);
    return step ? B.CreateMul(emit(step->coefficient), B.getInt64(kTile)) : B.getInt64(0);
  };
  auto below = [&] { return tiles(nest_.outer[nest_.outer.size() - 2].var); };
  if (arena_.is_const(blocks_, 1)) return below();
  Value* beside = tiles(*vector_.var);
  if (!ends_stripe_) return beside;
  Value* back = B.CreateMul(beside, B.getInt64(static_cast<uint64_t>(stripe_ - 1)));
  return B.CreateSelect(ends_stripe_, B.CreateSub(below(), back), beside);
}

// Transposes what `op` reads at the current position into its scratch tile at `place`.
void Emitter::transpose_square(const LoopOp& op, Value* place, Value* rows, Value* columns) {
  DType dtype = program_.buffers[op.buffer].dtype;
  Type* element = storage_type(vb_, dtype);
  Value*& tile = squares_[{op.buffer.index, op.index.id}];
  if (!tile) {
    llvm::IRBuilderBase::InsertPointGuard guard(B);
    B.SetInsertPoint(entry_, entry_->begin());
    auto* a = B.CreateAlloca(llvm::ArrayType::get(element, static_cast<uint64_t>(kTile * kTile)));
    a->setAlignment(llvm::Align(64));
    tile = a;
  }
  Type* i64 = B.getInt64Ty();
  auto transpose = vb_.declare("braze_transpose" + std::to_string(size_of(dtype)), B.getVoidTy(),
                               {B.getPtrTy(), i64, B.getPtrTy(), i64, i64, i64, i64, i64});
  Value* ahead = to_next_tile(op);
  Expr stride = arena_.affine_in(op.index, *vector_.var)->coefficient;
  B.CreateCall(transpose, {address(op.buffer, op.index), emit(stride), B.CreateInBoundsGEP(element, tile, place),
                           B.getInt64(kTile), rows, columns, B.getInt64(static_cast<uint64_t>(width_)),
                           ahead ? ahead : B.getInt64(0)});
}

}  // namespace braze::codegen::cpu
