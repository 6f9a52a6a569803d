// Loads and stores: contiguous vectors, broadcasts, gathers, and the nest's private buffers.
#include <llvm/Analysis/VectorUtils.h>

#include <optional>
#include <set>

#include "base/check.h"
#include "codegen/cpu/emitter.h"
#include "loop/analysis.h"

namespace braze::codegen::cpu {

using loop::BufferKind;
using sym::Kind;

namespace {
constexpr int64_t kInterleaved = 4;  // elements apart that are still read by whole vectors
}  // namespace

// A pointer to buffer[index] at lane 0, with the part that outer loops know added there.
Value* Emitter::address(BufferId buffer, Expr index) {
  int depth = depth_of(index);
  auto key = std::make_pair(buffer.index, index.id);
  auto it = scopes_[depth].pointers.find(key);
  if (it != scopes_[depth].pointers.end()) return it->second;
  Type* element = storage_type(vb_, program_.buffers[buffer].dtype);
  Value* p = at_depth(depth, [&]() -> Value* {
    if (arena_.is_const(index, 0)) return bases_.at(buffer.index);
    if (arena_.kind(index) == Kind::Add && depth > 0) {
      std::vector<Expr> outer, inner;
      for (Expr o : arena_.operands(index)) (depth_of(o) < depth ? outer : inner).push_back(o);
      Value* base = outer.empty() ? bases_.at(buffer.index) : address(buffer, arena_.sum(outer));
      return B.CreateInBoundsGEP(element, base, emit(arena_.sum(inner)));
    }
    return B.CreateInBoundsGEP(element, bases_.at(buffer.index), emit(index));
  });
  scopes_[depth].pointers[key] = p;
  return p;
}

Expr Emitter::local_index(Expr index) {
  // A local buffer belongs to one outer point: its position does not count.
  std::vector<std::pair<Expr, Expr>> to;
  for (const loop::Axis& a : nest_.outer)
    if (arena_.contains(index, a.var)) to.emplace_back(a.var, arena_.constant(0));
  return to.empty() ? index : arena_.substitute(index, to);
}

// Copies lie at a fixed distance where the index is affine in the vectorised variable, or that of the rows.
Value* Emitter::address_of_copy(BufferId buffer, Expr index, int copy, Type* element) {
  const Expr moved = at_copy(index, copy);
  const auto distance = arena_.as_const(arena_.sub(moved, index));
  Value* p = address(buffer, distance ? index : moved);
  return distance && *distance ? B.CreateConstInBoundsGEP1_64(element, p, static_cast<uint64_t>(*distance)) : p;
}

Value* Emitter::local_address(BufferId buffer, Expr index, int copy) {
  // One vector per element and copy: every lane is an outer point of its own.
  BRAZE_CHECK(!varies(index), "a private buffer indexed by a value that differs between lanes");
  Type* element = storage_type(vb_, program_.buffers[buffer].dtype);
  Expr scaled = arena_.mul(index, arena_.constant(static_cast<int64_t>(copies_) * width_));
  Value* p = address(buffer, scaled);
  return copy ? B.CreateConstInBoundsGEP1_64(element, p, static_cast<uint64_t>(copy) * width_) : p;
}

bool Emitter::stores_to(BufferId buffer) const {
  for (const loop::Stage& s : nest_.stages)
    for (const LoopOp& op : s.ops)
      if (op.code == loop::OpCode::Store && op.buffer == buffer) return true;
  return false;
}

bool Emitter::loads_from(BufferId buffer) const {
  for (const loop::Stage& s : nest_.stages)
    for (const LoopOp& op : s.ops)
      if ((op.code == loop::OpCode::Load || op.atomic_add) && op.buffer == buffer) return true;
  return false;
}

void Emitter::emit_load(const LoopOp& op) {
  const loop::Buffer& buffer = program_.buffers[op.buffer];
  Lanes out;
  out.dtype = op.dtype;
  auto finish = [&](Value* stored) {
    return emit_cast(vb_, from_storage(vb_, buffer.dtype, stored), buffer.dtype, op.dtype);
  };
  bool local = buffer.kind == BufferKind::Local;
  Expr index = local ? local_index(op.index) : op.index;
  Type* element = storage_type(vb_, buffer.dtype);
  llvm::Align align(std::max<int64_t>(1, size_of(buffer.dtype)));
  if (vectorised() && ((local && outer_vector_) || varies(index))) {
    out.vec = true;
    out.depth = top();
    std::optional<Guarded> guard;
    if (!local && !lane_step(index) && vb_.target.loads_masked(size_of(buffer.dtype))) guard = guarded(op);
    auto step = guard ? lane_step(guard->index) : std::nullopt;
    if (!step || *step < 1 || *step > kInterleaved) guard.reset();
    for (int c = 0; c < vector_.copies; ++c) {
      if (guard) {
        out.v.push_back(finish(load_guarded(op.buffer, guard->index, c, copy_of(value(guard->condition), c))));
        continue;
      }
      // Points of a strip, which has no indices that are loaded, share what they all read, and so do a point's vectors.
      int from = c;
      if (strip_ && vector_.rows) {
        if (!arena_.contains(index, *vector_.rows)) from = c % vector_.columns;
        if (!arena_.contains(index, *vector_.var)) from -= from % vector_.columns;
      }
      out.v.push_back(from < c ? out.v[static_cast<size_t>(from)] : finish(load_lanes(op.buffer, index, c)));
    }
    if (Value* apart = read_later(op)) fetch_ahead(op, apart);
  } else {
    int depth = depth_of(index);
    bool hoist = !local && !stores_to(op.buffer);
    for (int d = depth + 1; d <= top(); ++d) hoist = hoist && scopes_[d].nonempty;
    if (!hoist) depth = top();
    out.depth = depth;
    Value* p = address(op.buffer, index);
    out.v.push_back(at_depth(depth, [&] { return finish(B.CreateAlignedLoad(element, p, align)); }));
  }
  value(op.result) = std::move(out);
}

Value* Emitter::load_lanes(BufferId buffer, Expr index, int copy) {
  DType dtype = program_.buffers[buffer].dtype;
  Type* element = storage_type(vb_, dtype);
  Type* type = VectorBuilder::vector(element, width_);
  llvm::Align align(std::max<int64_t>(1, size_of(dtype)));
  if (program_.buffers[buffer].kind == BufferKind::Local && outer_vector_)
    return B.CreateAlignedLoad(type, local_address(buffer, index, copy), align);
  if (auto it = tiles_.find({buffer.index, index.id}); it != tiles_.end()) {
    Value* p = B.CreateInBoundsGEP(element, it->second, tile_row_);
    if (copy) p = B.CreateConstInBoundsGEP1_64(element, p, static_cast<uint64_t>(copy) * static_cast<uint64_t>(width_));
    return B.CreateAlignedLoad(type, p, align);
  }
  auto step = lane_step(index);
  if (step && (*step == 0 || *step == 1)) {
    Value* p = address_of_copy(buffer, index, copy, element);
    if (*step == 0) return vb_.splat(B.CreateAlignedLoad(element, p, align), width_);
    if (!vector_.mask) return B.CreateAlignedLoad(type, p, align);
    if (vb_.target.loads_masked(size_of(dtype)))
      return B.CreateMaskedLoad(type, p, align, vector_.mask, llvm::Constant::getNullValue(type));
  }
  if (step && *step == -1 && !vector_.mask) {
    Value* p =
        B.CreateConstInBoundsGEP1_64(element, address(buffer, at_copy(index, copy)), static_cast<uint64_t>(1 - width_));
    return B.CreateVectorReverse(B.CreateAlignedLoad(type, p, align));
  }
  if (step && *step >= 2 && *step <= kInterleaved && !vector_.mask)
    return load_interleaved(buffer, index, copy, element, *step);
  if (Value* shared = load_shared(buffer, index, copy, element)) return shared;
  if (Value* either = load_ramp(buffer, index, copy, element)) return either;
  return gather(buffer, index, copy, element);
}

// Lanes that are neighbours, or every second, third or fourth element, in most vectors, as those of a rolled, mirrored,
// repeated or padded axis: a branch decides. nullptr: they may be anywhere.
Value* Emitter::load_ramp(BufferId buffer, Expr index, int copy, Type* element) {
  if (vector_.mask || !vector_.var || width_ < 4) return nullptr;
  int64_t step = 1;
  while (step <= kInterleaved && !ir::lane_slope(arena_, index, lane_facts(), step).up) ++step;
  if (step > kInterleaved) return nullptr;
  const Expr first = at_copy(index, copy);
  const auto steps = static_cast<uint64_t>(step * (width_ - 1));
  std::pair<Expr, Expr> to_last[] = {{*vector_.var, arena_.add(*vector_.var, arena_.constant(width_ - 1))}};
  Value* distance = B.CreateSub(emit(arena_.substitute(first, to_last)), emit(first));
  Value* p = address(buffer, first);
  auto block = [&] { return llvm::BasicBlock::Create(vb_.context(), "", function_); };
  llvm::BasicBlock *near = block(), *apart = block(), *join = block();
  B.CreateCondBr(B.CreateICmpEQ(distance, B.getInt64(steps)), near, apart);
  B.SetInsertPoint(near);
  llvm::Align align(std::max<int64_t>(1, size_of(program_.buffers[buffer].dtype)));
  Value* whole = step == 1 ? B.CreateAlignedLoad(VectorBuilder::vector(element, width_), p, align)
                           : load_interleaved(buffer, index, copy, element, step);
  B.CreateBr(join);
  B.SetInsertPoint(apart);
  // What this block computes is not known behind it.
  const Scope known = scopes_.back();
  Value* each = gather(buffer, index, copy, element);
  scopes_.back() = known;
  llvm::BasicBlock* gathered = B.GetInsertBlock();
  B.CreateBr(join);
  B.SetInsertPoint(join);
  llvm::PHINode* out = B.CreatePHI(whole->getType(), 2);
  out->addIncoming(whole, near);
  out->addIncoming(each, gathered);
  return out;
}

// Neighbours, or every second, third or fourth element, of which those count that are not masked. The others load
// nothing.
Value* Emitter::load_guarded(BufferId buffer, Expr index, int copy, Value* mask) {
  Type* element = storage_type(vb_, program_.buffers[buffer].dtype);
  Type* type = VectorBuilder::vector(element, width_);
  if (vector_.mask) mask = B.CreateAnd(mask, vector_.mask);
  if (int64_t step = *lane_step(index); step > 1) return load_interleaved(buffer, index, copy, element, step, mask);
  llvm::Align align(std::max<int64_t>(1, size_of(program_.buffers[buffer].dtype)));
  return B.CreateMaskedLoad(type, address(buffer, at_copy(index, copy)), align, mask,
                            llvm::Constant::getNullValue(type));
}

// Every second, third or fourth element: whole vectors over all that lies between the first lane and the last, and of
// each what the lanes take. None goes beyond the last lane's element.
Value* Emitter::load_interleaved(BufferId buffer, Expr index, int copy, Type* element, int64_t step, Value* mask) {
  const int64_t lanes = width_, last = (lanes - 1) * step;
  llvm::Align align(std::max<int64_t>(1, size_of(program_.buffers[buffer].dtype)));
  Type* type = VectorBuilder::vector(element, width_);
  Value *p = address(buffer, at_copy(index, copy)), *out = nullptr;
  for (int64_t i = 0; i < step; ++i) {
    const int64_t from = std::min(i * lanes, last + 1 - lanes);
    // Lanes keep what they have, or take theirs of this part, of which no others are loaded under a mask.
    llvm::SmallVector<int, 16> take, used(static_cast<size_t>(lanes), static_cast<int>(lanes));
    bool any = false;
    for (int64_t l = 0; l < lanes; ++l) {
      const int64_t at = l * step - from;
      const bool here = at >= 0 && at < lanes && (l * step) / lanes == i;
      take.push_back(here ? static_cast<int>(lanes + at) : static_cast<int>(l));
      if (here) used[static_cast<size_t>(at)] = static_cast<int>(l);
      any = any || here;
    }
    if (!any) continue;
    Value *at = B.CreateConstInBoundsGEP1_64(element, p, static_cast<uint64_t>(from)), *part = nullptr;
    if (mask) {
      Value* of_part = B.CreateShuffleVector(mask, llvm::Constant::getNullValue(mask->getType()), used);
      part = B.CreateMaskedLoad(type, at, align, of_part, llvm::Constant::getNullValue(type));
    } else {
      part = B.CreateAlignedLoad(type, at, align);
    }
    out = B.CreateShuffleVector(out ? out : llvm::PoisonValue::get(type), part, take);
  }
  return out;
}

// Lanes that share elements, as those do that unpack them: all that they read at once. nullptr: they read otherwise.
Value* Emitter::load_shared(BufferId buffer, Expr index, int copy, Type* element) {
  if (vector_.mask || lane_step(index)) return nullptr;
  const std::vector<int64_t> at = ir::lane_offsets(arena_, index, lane_facts());
  if (at.empty() || at.back() + 1 >= width_) return nullptr;
  const auto n = static_cast<unsigned>(at.back() + 1);
  llvm::Align align(std::max<int64_t>(1, size_of(program_.buffers[buffer].dtype)));
  Value* p = address(buffer, at_copy(index, copy));
  if (n == 1) return vb_.splat(B.CreateAlignedLoad(element, p, align), width_);
  llvm::SmallVector<int, 16> lanes(at.begin(), at.end());
  return B.CreateShuffleVector(B.CreateAlignedLoad(VectorBuilder::vector(element, n), p, align), lanes);
}

Value* Emitter::gather(BufferId buffer, Expr index, int copy, Type* element) {
  DType dtype = program_.buffers[buffer].dtype;
  Type* type = VectorBuilder::vector(element, width_);
  llvm::Align align(std::max<int64_t>(1, size_of(dtype)));
  // The part that all lanes share goes into the pointer, so that the rest often fits 32 bits.
  std::vector<Expr> shared, own;
  if (arena_.kind(index) == Kind::Add) {
    for (Expr o : arena_.operands(index)) (varies(o) ? own : shared).push_back(o);
  } else {
    own.push_back(index);
  }
  Value* base = address(buffer, arena_.sum(shared));
  const Expr offset = arena_.sum(own);
  const bool at_once = vb_.target.gathers(size_of(dtype));
  // One by one, an index that was loaded is not made narrow and wide again.
  Value* lanes = !at_once && arena_.kind(offset) == Kind::Symbol ? lane_values_as(offset, copy, B.getInt64Ty())
                                                                 : lane_values(offset, copy);
  if (at_once) {
    Value* pointers = B.CreateGEP(element, base, lanes);
    return B.CreateMaskedGather(type, pointers, align, vector_.mask,
                                vector_.mask ? llvm::Constant::getNullValue(type) : nullptr);
  }
  // Lane by lane; lanes out of use read what lane 0 reads.
  if (vector_.mask)
    lanes = B.CreateSelect(vector_.mask, lanes, vb_.splat(B.CreateExtractElement(lanes, uint64_t(0)), width_));
  Value* out = llvm::PoisonValue::get(type);
  for (int l = 0; l < width_; ++l) {
    Value* p = B.CreateGEP(element, base, B.CreateExtractElement(lanes, l));
    out = B.CreateInsertElement(out, B.CreateAlignedLoad(element, p, align), l);
  }
  return out;
}

void Emitter::emit_store(const LoopOp& op) {
  const loop::Buffer& buffer = program_.buffers[op.buffer];
  Lanes& x = value(op.args[0]);
  bool local = buffer.kind == BufferKind::Local;
  Expr index = local ? local_index(op.index) : op.index;
  llvm::Align align(std::max<int64_t>(1, size_of(buffer.dtype)));
  auto stored = [&](Value* v) { return to_storage(vb_, buffer.dtype, emit_cast(vb_, v, x.dtype, buffer.dtype)); };
  bool each = vectorised() &&
              ((local && outer_vector_) || varies(index) || (op.atomic_add && (x.vec || outer_vector_ || vector_.var)));
  if (!each) {
    Value* v = x.vec ? B.CreateExtractElement(x.v[0], uint64_t(0)) : x.v[0];
    if (op.atomic_add)
      add_to(op.buffer, index, emit_cast(vb_, v, x.dtype, buffer.dtype));
    else
      B.CreateAlignedStore(stored(v), address(op.buffer, index), align);
    return;
  }
  const int joined = op.atomic_add ? 1 : joined_copies(op.buffer, index);
  for (int c = 0; c < vector_.copies; c += joined) {
    if (joined > 1)
      store_joined(op.buffer, index, c, joined, [&](int k) { return stored(copy_of(x, k)); });
    else if (op.atomic_add)
      add_lanes(op.buffer, index, c, emit_cast(vb_, copy_of(x, c), x.dtype, buffer.dtype));
    else
      store_lanes(op.buffer, index, c, stored(copy_of(x, c)));
  }
}

// How many neighbouring vectors of narrow elements that were made from wide ones are stored as one: together they are
// packed by fewer instructions. Those of AVX-512 pack one by one.
int Emitter::joined_copies(BufferId buffer, Expr index) {
  const loop::Buffer& b = program_.buffers[buffer];
  const int size = static_cast<int>(size_of(b.dtype));
  const int fit = vb_.target.vector_bits / 8 / (size * width_);
  const bool halves = b.dtype == DType::F16;  // converted by an instruction of their own
  const int neighbours = vector_.rows ? vector_.columns : vector_.copies;
  if (vb_.target.vector_bits > 256 || fit < 2 || halves || neighbours % 2 || vector_.mask || late_) return 1;
  if (b.kind == BufferKind::Local && outer_vector_) return 1;
  if (lane_step(index) != 1 || !arena_.is_const(arena_.sub(at_copy(index, 1), index), width_)) return 1;
  int joined = 2;
  while (2 * joined <= fit && neighbours % (2 * joined) == 0) joined *= 2;
  return joined;
}

void Emitter::store_joined(BufferId buffer, Expr index, int first, int count,
                           const std::function<Value*(int)>& stored) {
  const DType dtype = program_.buffers[buffer].dtype;
  llvm::SmallVector<Value*, 4> parts;
  for (int c = first; c < first + count; ++c) parts.push_back(stored(c));
  B.CreateAlignedStore(llvm::concatenateVectors(B, parts),
                       address_of_copy(buffer, index, first, storage_type(vb_, dtype)),
                       llvm::Align(std::max<int64_t>(1, size_of(dtype))));
}

std::optional<int64_t> Emitter::bytes(BufferId id) const {
  const loop::Buffer& b = program_.buffers[id];
  int64_t total = size_of(b.dtype);
  for (size_t d = 0; d < b.sizes.size(); ++d) {
    if (arena_.is_const(b.strides[d], 0)) continue;
    auto n = arena_.as_const(b.sizes[d]);
    if (!n) return std::nullopt;
    total *= *n;
  }
  return total;
}

// Bytes of the buffers that the nest touches; nullopt: their sizes vary.
std::optional<int64_t> Emitter::footprint() const {
  std::set<uint32_t> seen;
  int64_t total = 0;
  for (const loop::Stage& s : nest_.stages)
    for (const LoopOp& op : s.ops) {
      if (op.code != loop::OpCode::Load && op.code != loop::OpCode::Store) continue;
      const loop::Buffer& b = program_.buffers[op.buffer];
      if (b.kind == BufferKind::Local || !seen.insert(op.buffer.index).second) continue;
      auto known = bytes(op.buffer);
      if (!known) return std::nullopt;
      total += *known;
    }
  return total;
}

// Whole vectors to a large buffer of a nest that touches more than the caches hold: past them, which saves reading the
// lines first. They fault where the address is no multiple of theirs, as a caller's memory may be; and what is updated
// there was mostly read just before, so that its lines are at hand: none go this way.
bool Emitter::streams(BufferId buffer, Expr index) {
  const loop::Buffer& b = program_.buffers[buffer];
  bool whole = static_cast<int64_t>(width_) * size_of(b.dtype) * 8 == vb_.target.vector_bits;
  if (b.kind == BufferKind::Local || !whole || !vb_.target.streaming_stores) return false;
  if (loop::of_caller(program_, buffer)) return false;
  int64_t bytes = size_of(b.dtype);
  for (const std::vector<loop::Axis>* axes : {&nest_.outer, &stage_->axes})
    for (const loop::Axis& a : *axes) {
      auto n = arena_.as_const(a.extent);
      if (!n) return false;
      bytes *= *n;
    }
  constexpr int64_t kStreamed = 12 << 20;
  return bytes >= std::min(kStreamed, vb_.target.cache_bytes) &&
         footprint().value_or(INT64_MAX) > vb_.target.cache_bytes &&
         aligned(index, vb_.target.vector_bits / 8 / size_of(b.dtype)) && !loads_from(buffer);
}

void Emitter::store_lanes(BufferId buffer, Expr index, int copy, Value* v) {
  DType dtype = program_.buffers[buffer].dtype;
  Type* element = storage_type(vb_, dtype);
  llvm::Align align(std::max<int64_t>(1, size_of(dtype)));
  if (program_.buffers[buffer].kind == BufferKind::Local && outer_vector_) {
    B.CreateAlignedStore(v, local_address(buffer, index, copy), align);
    return;
  }
  auto step = lane_step(index);
  if (step && *step == 1) {
    Value* p = address_of_copy(buffer, index, copy, element);
    if (vector_.mask) {
      B.CreateMaskedStore(v, p, align, vector_.mask);
    } else if (late_) {
      late_->push_back([this, v, p, align] { B.CreateAlignedStore(v, p, align); });
    } else if (streams(buffer, at_copy(index, copy))) {
      auto* store = B.CreateAlignedStore(v, p, llvm::Align(vb_.target.vector_bits / 8));
      store->setMetadata("nontemporal", llvm::MDNode::get(vb_.context(), llvm::ConstantAsMetadata::get(B.getInt32(1))));
      streams_ = true;
    } else {
      B.CreateAlignedStore(v, p, align);
    }
    return;
  }
  auto once_read = [&](std::function<void()> store) { late_ ? late_->push_back(std::move(store)) : store(); };
  const bool interleaved = step && *step <= kInterleaved && vb_.target.stores_masked(size_of(dtype));
  if (step && *step >= 2 && !vector_.mask && (interleaved || !vb_.target.scatters(size_of(dtype)))) {
    Value* p = address(buffer, at_copy(index, copy));
    once_read(
        [=, this, by = *step] { interleaved ? store_interleaved(p, v, align, by) : store_apart(p, v, align, by); });
    return;
  }
  Value* lanes = lane_values(index, copy);
  Value* base = bases_.at(buffer.index);
  if (vb_.target.scatters(size_of(dtype))) {
    B.CreateMaskedScatter(v, B.CreateGEP(element, base, lanes), align, vector_.mask);
    return;
  }
  once_read([=, this, mask = vector_.mask] {
    for (int l = 0; l < width_; ++l) {
      Value* p = B.CreateGEP(element, base, B.CreateExtractElement(lanes, l));
      Value* x = B.CreateExtractElement(v, l);
      llvm::Instruction* resume = nullptr;
      if (mask) resume = vb_.begin_if(B.CreateExtractElement(mask, l), false);
      B.CreateAlignedStore(x, p, align);
      if (mask) vb_.end_if(resume);
    }
  });
}

// To every second, third or fourth element: whole vectors, masked between the lanes.
void Emitter::store_interleaved(Value* p, Value* v, llvm::Align align, int64_t step) {
  Type* element = llvm::cast<llvm::VectorType>(v->getType())->getElementType();
  for (int64_t i = 0; i < step; ++i) {
    llvm::SmallVector<int, 16> take;
    llvm::SmallVector<llvm::Constant*, 16> here;
    for (int64_t l = 0; l < width_; ++l) {
      const int64_t at = i * width_ + l;
      take.push_back(static_cast<int>(at / step));
      here.push_back(B.getInt1(at % step == 0));
    }
    B.CreateMaskedStore(B.CreateShuffleVector(v, take),
                        B.CreateConstInBoundsGEP1_64(element, p, static_cast<uint64_t>(i * width_)), align,
                        llvm::ConstantVector::get(here));
  }
}

// Lane by lane, to places a number of elements apart.
void Emitter::store_apart(Value* p, Value* v, llvm::Align align, int64_t step) {
  Type* element = llvm::cast<llvm::VectorType>(v->getType())->getElementType();
  for (int64_t l = 0; l < width_; ++l)
    B.CreateAlignedStore(B.CreateExtractElement(v, static_cast<uint64_t>(l)),
                         B.CreateConstInBoundsGEP1_64(element, p, static_cast<uint64_t>(l * step)), align);
}

// Additions to memory need no atomic operations: outer points never add to the same element, and what a task adds it
// adds in order.
void Emitter::add_to(BufferId buffer, Expr index, Value* v) {
  DType dtype = program_.buffers[buffer].dtype;
  llvm::Align align(std::max<int64_t>(1, size_of(dtype)));
  Value* p = address(buffer, index);
  Value* old = from_storage(vb_, dtype, B.CreateAlignedLoad(storage_type(vb_, dtype), p, align));
  B.CreateAlignedStore(to_storage(vb_, dtype, sum_of(old, v)), p, align);
}

void Emitter::add_lanes(BufferId buffer, Expr index, int copy, Value* v) {
  DType dtype = program_.buffers[buffer].dtype;
  if (varies(index)) {
    BRAZE_CHECK(outer_vector_, "lanes that may add to one element");
    Value* old = from_storage(vb_, dtype, load_lanes(buffer, index, copy));
    store_lanes(buffer, index, copy, to_storage(vb_, dtype, sum_of(old, v)));
    return;
  }
  for (int l = 0; l < width_; ++l) {  // all to one element
    llvm::Instruction* resume = nullptr;
    if (vector_.mask) resume = vb_.begin_if(B.CreateExtractElement(vector_.mask, l), false);
    add_to(buffer, index, B.CreateExtractElement(v, l));
    if (vector_.mask) vb_.end_if(resume);
  }
}

Value* Emitter::sum_of(Value* a, Value* b) {
  Type* t = a->getType();
  return t->isFPOrFPVectorTy() ? B.CreateFAdd(a, b) : t->isIntOrIntVectorTy(1) ? B.CreateOr(a, b) : B.CreateAdd(a, b);
}

// Small private buffers live on the stack of the task, others in a scratch block of the thread.
void Emitter::allocate_locals() {
  constexpr int64_t kStackLimit = 64 << 10;
  std::vector<std::pair<uint32_t, Expr>> heap;  // buffer, bytes
  int64_t on_stack = 0;
  std::vector<bool> seen(program_.buffers.size());
  for (const loop::Stage& s : nest_.stages)
    for (const LoopOp& op : s.ops) {
      if ((op.code != loop::OpCode::Store && op.code != loop::OpCode::Load) || seen[op.buffer.index]) continue;
      const loop::Buffer& b = program_.buffers[op.buffer];
      if (b.kind != BufferKind::Local) continue;
      seen[op.buffer.index] = true;
      Expr elements = arena_.constant(1);
      for (size_t d = 0; d < b.sizes.size(); ++d)
        elements = arena_.add(elements, arena_.mul(arena_.sub(b.sizes[d], arena_.constant(1)), b.strides[d]));
      int64_t lanes = outer_vector_ ? static_cast<int64_t>(copies_) * width_ : 1;
      Expr bytes = arena_.mul(elements, arena_.constant(lanes * size_of(b.dtype)));
      auto known = arena_.as_const(bytes);
      if (known && on_stack + *known <= kStackLimit) {
        on_stack += *known;
        auto* a =
            B.CreateAlloca(llvm::ArrayType::get(B.getInt8Ty(), static_cast<uint64_t>(std::max<int64_t>(*known, 1))));
        a->setAlignment(llvm::Align(64));
        bases_[op.buffer.index] = a;
      } else {
        heap.emplace_back(op.buffer.index, arena_.mul(arena_.ceildiv(bytes, arena_.constant(64)), arena_.constant(64)));
      }
    }
  if (heap.empty()) return;
  std::vector<Expr> all;
  for (auto& [b, bytes] : heap) all.push_back(bytes);
  Value* block = B.CreateCall(vb_.declare("braze_scratch", B.getPtrTy(), {B.getInt64Ty()}), {emit(arena_.sum(all))});
  Expr offset = arena_.constant(0);
  for (auto& [b, bytes] : heap) {
    bases_[b] = B.CreateInBoundsGEP(B.getInt8Ty(), block, emit(offset));
    offset = arena_.add(offset, bytes);
  }
}

}  // namespace braze::codegen::cpu
