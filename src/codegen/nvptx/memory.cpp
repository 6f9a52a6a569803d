// Loads and stores: vectors of up to 16 bytes, single elements, tiles through shared memory, and the nest's private
// buffers.
#include <algorithm>

#include "base/check.h"
#include "codegen/nvptx/emitter.h"
#include "codegen/nvptx/local_rows.h"
#include "loop/analysis.h"
#include "schedule/index.h"

namespace braze::codegen::nvptx {

using loop::BufferKind;
using loop::OpCode;

bool Emitter::stores_to(BufferId buffer) const {
  for (const loop::Stage& s : nest_.stages)
    for (const LoopOp& op : s.ops)
      if (op.code == OpCode::Store && op.buffer == buffer) return true;
  return false;
}

uint64_t Emitter::bytes_of(Type* element, uint64_t n) {
  constexpr uint64_t kAlignment = 16;
  return (n * ((element->getScalarSizeInBits() + 7) / 8) + kAlignment - 1) / kAlignment * kAlignment;
}

Value* Emitter::shared_array(Type* element, uint64_t n) {
  auto* type = llvm::ArrayType::get(element, n);
  const uint64_t bytes = bytes_of(element, n);
  shared_bytes_ += bytes;
  if (shared_bytes_ > most_shared())
    throw Unsupported(Reason::UnsupportedOp, "a kernel that needs more than " + std::to_string(most_shared() >> 10) +
                                                 " KiB of shared memory (nest " + nest_.name + ")");
  auto* g =
      new llvm::GlobalVariable(vb_.module, type, false, llvm::GlobalValue::InternalLinkage, llvm::UndefValue::get(type),
                               "shared", nullptr, llvm::GlobalValue::NotThreadLocal, 3);
  g->setAlignment(llvm::Align(16));
  shared_.emplace_back(g, bytes);
  return g;
}

void Emitter::place_locals() {
  const auto each = static_cast<uint64_t>(shape_.threads / shape_.group);
  for (auto& [id, row] : local_rows(program_, nest_, shape_)) {
    if (row.in_registers) {
      locals_[id] = nullptr;
      continue;
    }
    Type* type = ir::storage_type(vb_, program_.buffers[BufferId(static_cast<size_t>(id))].dtype);
    Value* base = shared_array(type, row.elements * each);
    if (each > 1) {
      Value* own = B.CreateUDiv(thread_, B.getInt32(static_cast<uint32_t>(shape_.group)));
      base = B.CreateInBoundsGEP(type, base, B.CreateMul(own, B.getInt32(static_cast<uint32_t>(row.elements))));
    }
    locals_[id] = base;
  }
}

Value* Emitter::address(BufferId buffer, Expr index, int element) {
  Value* base = nullptr;
  if (auto it = bases_.find(buffer.index); it != bases_.end())
    base = it->second;
  else if (auto jt = locals_.find(buffer.index); jt != locals_.end())
    base = jt->second;
  BRAZE_CHECK(base, "buffer " + program_.buffers[buffer].name + " has no address in the kernel");
  return B.CreateInBoundsGEP(ir::storage_type(vb_, program_.buffers[buffer].dtype), base, emit(index, element));
}

Value* Emitter::load_one(BufferId buffer, Expr index, int element) {
  DType dtype = program_.buffers[buffer].dtype;
  llvm::Align align(static_cast<uint64_t>(std::max(1, size_of(dtype))));
  return ir::from_storage(vb_, dtype,
                          B.CreateAlignedLoad(ir::storage_type(vb_, dtype), address(buffer, index, element), align));
}

// `lanes` neighbouring elements, aligned to their size: as 32-bit or wider words.
Emitter::Values Emitter::load_vector(BufferId buffer, Value* p, int lanes) {
  DType dtype = program_.buffers[buffer].dtype;
  unsigned size = static_cast<unsigned>(size_of(dtype)), bytes = size * static_cast<unsigned>(lanes);
  Type* element = ir::storage_type(vb_, dtype);
  llvm::Align align(bytes);
  Values out;
  auto lane = [&](Value* stored) { out.push_back(ir::from_storage(vb_, dtype, stored)); };
  if (size >= 4) {
    Value* v = B.CreateAlignedLoad(llvm::FixedVectorType::get(element, static_cast<unsigned>(lanes)), p, align);
    for (int l = 0; l < lanes; ++l) lane(B.CreateExtractElement(v, static_cast<uint64_t>(l)));
    return out;
  }
  Type* word = bytes >= 4 ? vb_.i32() : vb_.i16();
  unsigned word_bytes = bytes >= 4 ? 4 : 2, words = bytes / word_bytes, per_word = word_bytes / size;
  Value* v =
      B.CreateAlignedLoad(words > 1 ? static_cast<Type*>(llvm::FixedVectorType::get(word, words)) : word, p, align);
  for (unsigned w = 0; w < words; ++w) {
    Value* x = words > 1 ? B.CreateExtractElement(v, static_cast<uint64_t>(w)) : v;
    for (unsigned k = 0; k < per_word; ++k) {
      Value* bits = B.CreateTrunc(k ? B.CreateLShr(x, vb_.integer(x, k * size * 8)) : x, B.getIntNTy(size * 8));
      lane(element->isHalfTy() ? B.CreateBitCast(bits, element) : bits);
    }
  }
  return out;
}

void Emitter::store_vector(BufferId buffer, Value* p, llvm::ArrayRef<Value*> values) {
  DType dtype = program_.buffers[buffer].dtype;
  unsigned size = static_cast<unsigned>(size_of(dtype)), lanes = static_cast<unsigned>(values.size()),
           bytes = size * lanes;
  llvm::Align align(bytes);
  auto join = [&](llvm::ArrayRef<Value*> parts) -> Value* {
    if (parts.size() == 1) return parts[0];
    Value* v =
        llvm::PoisonValue::get(llvm::FixedVectorType::get(parts[0]->getType(), static_cast<unsigned>(parts.size())));
    for (size_t i = 0; i < parts.size(); ++i) v = B.CreateInsertElement(v, parts[i], static_cast<uint64_t>(i));
    return v;
  };
  if (size >= 4) {
    B.CreateAlignedStore(join(values), p, align);
    return;
  }
  Type* word = bytes >= 4 ? vb_.i32() : vb_.i16();
  unsigned per_word = (bytes >= 4 ? 4 : 2) / size;
  auto word_from = [&](unsigned first) {
    Value* x = nullptr;
    if ((dtype == DType::BF16 || dtype == DType::F16) && per_word == 2)
      x = vb_.pack(dtype, values[first], values[first + 1]);
    if (x) return x;
    for (unsigned k = 0; k < per_word; ++k) {
      Value* bits = B.CreateBitCast(ir::to_storage(vb_, dtype, values[first + k]), B.getIntNTy(size * 8));
      bits = B.CreateZExt(bits, word);
      if (k) bits = B.CreateShl(bits, vb_.integer(bits, k * size * 8));
      x = x ? B.CreateOr(x, bits) : bits;
    }
    return x;
  };
  Values words;
  for (unsigned first = 0; first < lanes; first += per_word) words.push_back(word_from(first));
  B.CreateAlignedStore(join(words), p, align);
}

Emitter::Lanes Emitter::load(BufferId buffer, Expr index) {
  Lanes out;
  out.dtype = program_.buffers[buffer].dtype;
  if (!varies(index)) {
    out.v.push_back(load_one(buffer, index, 0));
    return out;
  }
  auto step = lane_step(index);
  int lanes = flight_.lanes;
  bool vector = lanes > 1 && step == 1 && lanes * size_of(out.dtype) <= 16 && aligned(index, lanes);
  // Lanes that share elements, as those do that unpack them: all that they read at once.
  std::vector<int64_t> at;
  if (lanes > 1 && !step) at = ir::lane_offsets(arena_, index, lane_facts());
  const int64_t together = at.empty() ? 0 : at.back() + 1;
  bool shared = together > 1 && together < lanes && std::has_single_bit(static_cast<uint64_t>(together)) &&
                together * size_of(out.dtype) <= 16 && aligned(index, together);
  for (int c = 0; c < flight_.copies; ++c) {
    int first = c * lanes;
    if (shared) {
      Values all = load_vector(buffer, address(buffer, index, first), static_cast<int>(together));
      for (int64_t l : at) out.v.push_back(all[static_cast<size_t>(l)]);
    } else if (vector) {
      out.v.append(load_vector(buffer, address(buffer, index, first), lanes));
    } else if (step == 0) {
      out.v.append(static_cast<size_t>(lanes), load_one(buffer, index, first));
    } else {
      for (int l = 0; l < lanes; ++l) out.v.push_back(load_one(buffer, index, first + l));
    }
  }
  return out;
}

void Emitter::emit_load(const LoopOp& op) {
  auto key = std::make_pair(op.buffer.index, op.index.id);
  Lanes out;
  if (auto t = tiles_.find(key); t != tiles_.end()) {
    out = t->second;
  } else if (auto k = known_.find(key); straight_ && k != known_.end()) {
    out = k->second;
  } else {
    wait_for(op.buffer);
    out = load(op.buffer, op.index);
    if (straight_ && varies(op.index)) known_[key] = out;
  }
  for (Value*& v : out.v) v = ir::emit_cast(vb_, v, out.dtype, op.dtype);
  out.dtype = op.dtype;
  values_[op.result.index] = std::move(out);
}

// What the straight-line stages after this one, over the same axes, read of memory that the nest does not write is on
// its way while this one's sums are combined; before the wait only what needs none.
void Emitter::load_for_later(const loop::Stage& stage) {
  int words = kMostWordsAhead;
  for (const loop::Stage* s = &stage + 1; s != nest_.stages.data() + nest_.stages.size(); ++s) {
    if (s->axes.empty()) continue;
    if (!is_straight(arena_, *s, shape_) || !schedule::same_axes(s->axes, stage.axes)) return;
    for (const LoopOp& op : s->ops) {
      if (op.code != OpCode::Load || locals_.contains(op.buffer.index) || stores_to(op.buffer) || !varies(op.index) ||
          loop::is_indirect(arena_, op.index) || (!waited_ && !is_steady(op.buffer)))
        continue;
      auto key = std::make_pair(op.buffer.index, op.index.id);
      if (known_.contains(key)) continue;
      words -= flight_.elements() * size_of(program_.buffers[op.buffer].dtype) / 4;
      if (words < 0) return;
      known_[key] = load(op.buffer, op.index);
    }
  }
}

void Emitter::emit_store(const LoopOp& op) {
  const loop::Buffer& buffer = program_.buffers[op.buffer];
  Lanes x = values_[op.args[0].index];
  for (Value*& v : x.v) v = ir::emit_cast(vb_, v, x.dtype, buffer.dtype);
  x.dtype = buffer.dtype;
  // What is known of this buffer from before no longer holds, but for the value just stored.
  std::erase_if(known_, [&](auto& kv) { return kv.first.first == op.buffer.index; });
  if (straight_ && !op.atomic_add) {
    Lanes rounded = x;
    for (Value*& v : rounded.v) v = ir::from_storage(vb_, buffer.dtype, ir::to_storage(vb_, buffer.dtype, v));
    known_[{op.buffer.index, op.index.id}] = std::move(rounded);
  }
  if (auto it = locals_.find(op.buffer.index); it != locals_.end() && !it->second) return;
  written_.push_back(op.buffer);
  wait();
  llvm::Align align(static_cast<uint64_t>(std::max(1, size_of(buffer.dtype))));
  auto store_one = [&](int element) {
    Value* p = address(op.buffer, op.index, element);
    if (op.atomic_add)
      store_atomic(op.buffer, p, x.at(element));
    else
      B.CreateAlignedStore(ir::to_storage(vb_, buffer.dtype, x.at(element)), p, align);
  };
  Value* leader = stage_->axes.empty() ? worker_is_first() : nullptr;
  auto both = [&](Value* a, Value* b) { return a && b ? B.CreateAnd(a, b) : a ? a : b; };
  // Elements that share an address are one store, unless each is added.
  if (!varies(op.index) && !(op.atomic_add && flight_.elements() > 1)) {
    Value* active = nullptr;
    for (int c = 0; c < flight_.copies; ++c) {
      Value* a = flight_.active_at(c);
      if (!a) {
        active = nullptr;
        break;
      }
      active = active ? B.CreateOr(active, a) : a;
    }
    if_then(both(leader, active), [&] { store_one(0); });
    return;
  }
  int lanes = flight_.lanes;
  bool vector = !op.atomic_add && lanes > 1 && lane_step(op.index) == 1 && lanes * size_of(buffer.dtype) <= 16 &&
                aligned(op.index, lanes);
  for (int c = 0; c < flight_.copies; ++c)
    if_then(both(leader, flight_.active_at(c)), [&] {
      if (vector) {
        Values values;
        for (int l = 0; l < lanes; ++l) values.push_back(x.at(c * lanes + l));
        store_vector(op.buffer, address(op.buffer, op.index, c * lanes), values);
      } else {
        for (int l = 0; l < lanes; ++l) store_one(c * lanes + l);
      }
    });
}

// Two neighbours at once take half of the time of one, as memory adds words: the other one gets -0, which changes
// nothing. Where a buffer of ours may end within a word, and in others, whose first element may be anywhere, one.
void Emitter::add_half(BufferId buffer, Value* p, Value* bits) {
  const loop::Buffer& b = program_.buffers[buffer];
  const bool ours = b.kind == loop::BufferKind::Temp || b.kind == loop::BufferKind::Output;
  const auto elements = arena_.as_const(schedule::reach(arena_, b));
  const bool both = ours && elements && *elements % 2 == 0;
  const std::string text = std::string("red.relaxed.gpu.global.add.noftz.") +
                           (b.dtype == DType::BF16 ? "bf16" : "f16") + (both ? "x2" : "") + " [$0], $1;";
  if (both) {
    Value* odd = B.CreateICmpNE(B.CreateAnd(B.CreatePtrToInt(p, vb_.i64()), B.getInt64(2)), B.getInt64(0));
    Value* word = B.CreateZExt(bits, vb_.i32());
    bits = B.CreateSelect(odd, B.CreateOr(B.CreateShl(word, B.getInt32(16)), B.getInt32(0x8000)),
                          B.CreateOr(word, B.getInt32(0x80000000u)));
    p = B.CreateGEP(vb_.i8(), p, B.CreateSelect(odd, B.getInt64(-2), B.getInt64(0)));
  }
  auto* type = llvm::FunctionType::get(B.getVoidTy(), {p->getType(), bits->getType()}, false);
  B.CreateCall(llvm::InlineAsm::get(type, text, both ? "l,r,~{memory}" : "l,h,~{memory}", /*hasSideEffects=*/true),
               {p, bits});
}

void Emitter::store_atomic(BufferId buffer, Value* p, Value* value) {
  DType dtype = program_.buffers[buffer].dtype;
  llvm::Align align(static_cast<uint64_t>(std::max(1, size_of(dtype))));
  if (dtype == DType::BF16 ? vb_.target.sm >= 90 : dtype == DType::F16) {
    add_half(buffer, p, B.CreateBitCast(ir::to_storage(vb_, dtype, value), vb_.i16()));
    return;
  }
  if (dtype == DType::BF16) {
    // Compare and swap: the sum is rounded to 16 bits each time, as the unit of memory is.
    Type* bits = vb_.i16();
    Value* before = B.CreateAlignedLoad(bits, p, align);
    auto* from = B.GetInsertBlock();
    auto* again = llvm::BasicBlock::Create(vb_.context(), "", function_);
    auto* after = llvm::BasicBlock::Create(vb_.context(), "", function_);
    B.CreateBr(again);
    B.SetInsertPoint(again);
    auto* seen = B.CreatePHI(bits, 2);
    seen->addIncoming(before, from);
    Value* old = ir::from_storage(vb_, dtype, seen);
    Value* sum = B.CreateBitCast(ir::to_storage(vb_, dtype, B.CreateFAdd(old, value)), bits);
    Value* swap =
        B.CreateAtomicCmpXchg(p, seen, sum, align, llvm::AtomicOrdering::Monotonic, llvm::AtomicOrdering::Monotonic);
    seen->addIncoming(B.CreateExtractValue(swap, 0), B.GetInsertBlock());
    B.CreateCondBr(B.CreateExtractValue(swap, 1), after, again);
    B.SetInsertPoint(after);
    return;
  }
  auto kind = dtype == DType::Bool ? llvm::AtomicRMWInst::Or
              : is_floating(dtype) ? llvm::AtomicRMWInst::FAdd
                                   : llvm::AtomicRMWInst::Add;
  B.CreateAtomicRMW(kind, p, ir::to_storage(vb_, dtype, value), align, llvm::AtomicOrdering::Monotonic);
}

// Calls f on the loads of the nest, each place once, whose address and value are known from the start.
void Emitter::for_each_early_load(const std::function<void(const LoopOp&)>& f) {
  for (const loop::Stage& s : nest_.stages)
    for (const LoopOp& op : s.ops) {
      if (op.code != OpCode::Load || stores_to(op.buffer) || tiles_.contains({op.buffer.index, op.index.id})) continue;
      if (!loop::is_indirect(arena_, op.index)) f(op);
    }
}

// Reads along the rows' axis: a square is loaded as it lies in memory, put into shared memory, and read the other way.
// The rows of the square are one element longer than its columns, so that a warp's reads fall into different banks.
// `turn` sets up the other way; what is read that way from memory is also on its way before the threads meet.
void Emitter::load_tiles(const std::function<void()>& turn) {
  const loop::Axis &row = nest_.outer[nest_.outer.size() - 2], &column = nest_.outer.back();
  std::vector<const LoopOp*> tiles;
  wait();
  for_each_early_load([&](const LoopOp& op) {
    auto along = arena_.affine_in(op.index, row.var);
    auto across = arena_.affine_in(op.index, column.var);
    if (!along || !across || !arena_.is_const(along->coefficient, 1) || arena_.is_const(across->coefficient, 1) ||
        arena_.is_const(across->coefficient, 0))
      return;
    Type* type = ir::compute_type(vb_, program_.buffers[op.buffer].dtype);
    if (type->isIntegerTy(1)) return;
    tiles.push_back(&op);
    tiles_[{op.buffer.index, op.index.id}] = load(op.buffer, op.index);
  });
  turn();
  for_each_early_load([&](const LoopOp& op) { tiles_[{op.buffer.index, op.index.id}] = load(op.buffer, op.index); });
  auto at = [&](Type* type, Value* square, Value* line, Value* place) {
    return B.CreateInBoundsGEP(type, square, B.CreateAdd(B.CreateMul(line, B.getInt32(kTile + 1)), place));
  };
  auto down = [&](int c) { return B.CreateAdd(tile_y_, B.getInt32(static_cast<uint32_t>(c * kTileRows))); };
  // The squares that fit a block's memory, and again as many, and so on.
  auto element = [&](const LoopOp* op) { return tiles_[{op->buffer.index, op->index.id}].v[0]->getType(); };
  const uint64_t points = kTile * (kTile + 1);
  uint64_t largest = 1;
  for (const LoopOp* op : tiles) largest = std::max(largest, bytes_of(element(op), points));
  const size_t most = std::min(tiles.size(), (most_shared() - shared_bytes_) / largest);
  std::vector<Value*> squares;
  for (size_t i = 0; i < most; ++i)
    squares.push_back(most == tiles.size() ? shared_array(element(tiles[i]), points) : shared_array(vb_.i8(), largest));
  for (size_t first = 0; first < tiles.size(); first += most) {
    const size_t n = std::min(most, tiles.size() - first);
    if (first) intrinsic(llvm::Intrinsic::nvvm_barrier0);
    for (size_t i = 0; i < n; ++i) {
      const Lanes& x = tiles_[{tiles[first + i]->buffer.index, tiles[first + i]->index.id}];
      for (int c = 0; c < flight_.copies; ++c)
        B.CreateStore(x.at(c), at(x.at(c)->getType(), squares[i], down(c), tile_x_));
    }
    intrinsic(llvm::Intrinsic::nvvm_barrier0);
    for (size_t i = 0; i < n; ++i) {
      Lanes& x = tiles_[{tiles[first + i]->buffer.index, tiles[first + i]->index.id}];
      Type* type = x.v[0]->getType();
      Lanes turned;
      turned.dtype = x.dtype;
      for (int c = 0; c < flight_.copies; ++c)
        turned.v.push_back(B.CreateLoad(type, at(type, squares[i], tile_x_, down(c))));
      x = std::move(turned);
    }
  }
}

}  // namespace braze::codegen::nvptx
