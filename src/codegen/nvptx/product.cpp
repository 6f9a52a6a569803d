// Products of a wide matrix with a narrow one (loop/product.h) by the tensor cores' m16n8k16.
//
// The wide factor is the multiplication's first operand: a block takes 16 wide points, its warps share out k and add up
// their sums through shared memory. Nothing else is staged there: the factors' words go from memory into the operands'
// registers. As the order of a sum's terms is free, a thread holds `vector` neighbouring elements of a row where the
// instruction has pairs four groups apart: the same for both factors.
#include <algorithm>

#include "base/check.h"
#include "codegen/nvptx/emitter.h"
#include "loop/analysis.h"
#include "loop/product.h"

namespace braze::codegen::nvptx {

using loop::OpCode;
using loop::Product;

namespace {

constexpr int kSums = 4;  // of one multiplication, that a thread holds

// Four signed bytes as two words of two halves: as the last bits of a number of which an integer is taken off.
std::array<Value*, 2> halves_of_bytes(ir::VectorBuilder& vb, Value* word, DType half) {
  auto& B = vb.B;
  auto number = [&](uint32_t both) { return B.getInt32(both); };
  std::array<Value*, 2> out{};
  for (uint32_t i = 0; i < 2; ++i) {
    // The bytes 2i and 2i+1, each under a zero.
    Value* x = B.CreateIntrinsic(llvm::Intrinsic::nvvm_prmt, {}, {word, number(0), number(i ? 0x4342 : 0x4140)});
    if (half == DType::F16) {
      Type* pair = llvm::FixedVectorType::get(B.getHalfTy(), 2);
      Value* above = B.CreateBitCast(B.CreateOr(B.CreateXor(x, number(0x00800080)), number(0x64006400)), pair);
      out[i] = B.CreateBitCast(B.CreateFSub(above, llvm::ConstantFP::get(pair, 1024 + 128)), vb.i32());
      continue;
    }
    // 128 + the low seven bits, less 128 or, where the sign is set, 256.
    Type* pair = llvm::FixedVectorType::get(B.getBFloatTy(), 2);
    Value* low = B.CreateOr(B.CreateAnd(x, number(0x007F007F)), number(0x43004300));
    Value* less = B.CreateOr(B.CreateAnd(x, number(0x00800080)), number(0x43004300));
    Value* v =
        B.CreateIntrinsic(llvm::Intrinsic::nvvm_fma_rn_bf16x2, {},
                          {B.CreateBitCast(less, pair), llvm::ConstantFP::get(pair, -1.0), B.CreateBitCast(low, pair)});
    out[i] = B.CreateBitCast(v, vb.i32());
  }
  return out;
}

}  // namespace

// Emits what `v` is made of, for the elements in flight.
void Emitter::emit_with_operands(loop::ValId v) {
  std::vector<char> wanted(nest_.values, 0);
  wanted[v.index] = 1;
  std::vector<const LoopOp*> ops;
  for (size_t s = nest_.stages.size(); s-- > 0;)
    for (size_t i = nest_.stages[s].ops.size(); i-- > 0;) {
      const LoopOp& op = nest_.stages[s].ops[i];
      if (!op.result.valid() || !wanted[op.result.index]) continue;
      for (loop::ValId a : op.args)
        if (a.valid()) wanted[a.index] = 1;
      ops.push_back(&op);
    }
  for (size_t i = ops.size(); i-- > 0;) emit_op(*ops[i]);
}

// The load of a factor that is multiplied as it lies in memory, but for bytes, which are widened; nullptr: it is not.
const LoopOp* Emitter::raw_factor(loop::ValId v, DType half) const {
  const LoopOp* op = loop::op_of(nest_, v);
  bool widens = true;  // each cast on the way keeps every number of `half`; of a byte any float does
  auto keeps_bytes = [](DType d) { return d == DType::BF16 || d == DType::F16 || d == DType::F32 || d == DType::F64; };
  for (; op->code == OpCode::Cast; op = loop::op_of(nest_, op->args[0])) {
    if (!keeps_bytes(op->dtype)) return nullptr;
    widens = widens && (op->dtype == half || op->dtype == DType::F32 || op->dtype == DType::F64);
  }
  if (op->code != OpCode::Load) return nullptr;
  DType stored = program_.buffers[op->buffer].dtype;
  if (stored == DType::I8) return op->dtype == stored || keeps_bytes(op->dtype) ? op : nullptr;
  return stored == half && widens && (op->dtype == half || op->dtype == DType::F32) ? op : nullptr;
}

// The elements in flight as they lie in memory, in words of 32 bits; per copy.
std::vector<Emitter::Values> Emitter::load_words(BufferId buffer, Expr index) {
  wait_for(buffer);
  const int size = size_of(program_.buffers[buffer].dtype), lanes = flight_.lanes;
  const int chunk = std::min(lanes * size, 16) / size;
  const bool vector = lane_step(index) == 1 && aligned(index, chunk);
  std::vector<Values> out;
  for (int c = 0; c < flight_.copies; ++c) {
    Values words;
    auto at = [&](int l) { return address(buffer, index, c * lanes + l); };
    if (vector) {
      auto n = static_cast<unsigned>(chunk * size / 4);
      for (int l = 0; l < lanes; l += chunk) {
        Value* v = B.CreateAlignedLoad(llvm::FixedVectorType::get(vb_.i32(), n), at(l), llvm::Align(4 * n));
        for (unsigned w = 0; w < n; ++w) words.push_back(B.CreateExtractElement(v, static_cast<uint64_t>(w)));
      }
    } else {
      for (int l = 0; l < lanes; l += 4 / size) {
        Value* word = nullptr;
        for (int k = 0; k < 4 / size; ++k) {
          auto* bits = static_cast<Value*>(B.CreateAlignedLoad(B.getIntNTy(static_cast<unsigned>(size) * 8), at(l + k),
                                                               llvm::Align(static_cast<uint64_t>(size))));
          bits = B.CreateShl(B.CreateZExt(bits, vb_.i32()), B.getInt32(static_cast<uint32_t>(k * size * 8)));
          word = word ? B.CreateOr(word, bits) : bits;
        }
        words.push_back(word);
      }
    }
    out.push_back(std::move(words));
  }
  return out;
}

// The elements in flight of a factor, per copy: pairs of halves, or four bytes that are still to be widened.
std::vector<Emitter::Values> Emitter::factor_words(loop::ValId v, DType half) {
  if (const LoopOp* load = raw_factor(v, half)) return load_words(load->buffer, load->index);
  emit_with_operands(v);
  const Lanes& x = values_[v.index];
  auto number = [&](int e) { return ir::emit_cast(vb_, x.at(e), x.dtype, DType::F32); };
  std::vector<Values> out(static_cast<size_t>(flight_.copies));
  for (int e = 0; e < flight_.elements(); e += 2)
    out[static_cast<size_t>(e / flight_.lanes)].push_back(vb_.pack(half, number(e), number(e + 1)));
  return out;
}

// sums += wide * narrow, of a tile: two rows of words of the wide factor and one of the narrow.
void Emitter::multiply(DType half, Words upper, Words lower, Words narrow, Value** sums) {
  bool bf16 = half == DType::BF16;
  Type* pair = llvm::FixedVectorType::get(B.getHalfTy(), 2);
  auto operand = [&](Value* w) { return bf16 ? w : B.CreateBitCast(w, pair); };
  auto id = bf16 ? llvm::Intrinsic::nvvm_mma_m16n8k16_row_col_bf16 : llvm::Intrinsic::nvvm_mma_m16n8k16_row_col_f32_f32;
  for (size_t w = 0; w + 1 < narrow.size(); w += 2) {
    Value* all = intrinsic(id, {operand(upper[w]), operand(lower[w]), operand(upper[w + 1]), operand(lower[w + 1]),
                                operand(narrow[w]), operand(narrow[w + 1]), sums[0], sums[1], sums[2], sums[3]});
    for (unsigned i = 0; i < kSums; ++i) sums[i] = B.CreateExtractValue(all, i);
  }
}

void Emitter::run_product() {
  const Product product = *loop::product_of(program_, nest_, vb_.target.most_product_columns());
  const int warps = shape_.threads / 32, lanes = shape_.vector, turns = shape_.copies;
  const int strips = static_cast<int>((product.columns + kTileNarrow - 1) / kTileNarrow);
  const auto columns = static_cast<int>(product.columns);
  int64_t wide = 1;
  for (const loop::Axis& a : product.wide) wide *= *arena_.as_const(a.extent);
  const bool whole = wide % kTileWide == 0;
  auto number = [&](int64_t n) { return B.getInt32(static_cast<uint32_t>(n)); };
  auto at_most = [&](Value* v, int64_t n) { return B.CreateSelect(B.CreateICmpULT(v, number(n)), v, number(n)); };

  Value *lane = B.CreateAnd(thread_, number(31)), *warp = B.CreateLShr(thread_, number(5));
  Value *line = B.CreateLShr(lane, number(2)), *quarter = B.CreateAnd(lane, number(3));
  Value *first = B.CreateMul(block_, number(kTileWide), "", true, true), *own = B.CreateMul(quarter, number(lanes));
  const size_t terms = product.terms.size(), each = static_cast<size_t>(strips) * kSums;
  // Each warp has a piece of k, of so many steps of 4 * lanes elements, and takes some steps at a time.
  const int64_t steps = *arena_.as_const(product.k.extent) / (4 * lanes), piece = (steps + warps - 1) / warps;
  const int64_t rounds = (piece + turns - 1) / turns;
  Values wide_points, narrow_points;
  for (int half = 0; half < 2; ++half) {
    Value* p = B.CreateAdd(B.CreateAdd(first, line), number(half * kTileWide / 2));
    wide_points.push_back(whole ? p : at_most(p, wide - 1));
  }
  for (int s = 0; s < strips; ++s) {
    Value* p = B.CreateAdd(line, number(s * kTileNarrow));
    narrow_points.push_back(columns % kTileNarrow ? at_most(p, columns - 1) : p);
  }
  // A factor's words of a round: of each step and term those of each of its points, in a row. Zeros where a warp has no
  // more steps.
  Value* own_first = B.CreateMul(warp, number(piece), "", true, true);
  auto load_factor = [&](bool narrow, Value* done) {
    const Values& points = narrow ? narrow_points : wide_points;
    bind_positions(narrow ? product.narrow : product.wide, points, lanes, /*along=*/false);
    Values out;
    for (int t = 0; t < turns; ++t) {
      Value *at = B.CreateAdd(done, number(t), "", true, true), *exists = nullptr;
      Value* step = B.CreateAdd(own_first, at, "", true, true);
      if (piece * warps != steps || piece % turns) {
        exists = B.CreateICmpSLT(step, number(steps));
        if (piece % turns) exists = B.CreateAnd(exists, B.CreateICmpSLT(at, number(piece)));
        step = B.CreateSelect(exists, step, number(steps - 1));
      }
      Value* k = B.CreateAdd(B.CreateMul(step, number(4 * lanes), "", true, true), own, "", true, true);
      Lanes all;
      for (size_t c = 0; c < points.size(); ++c)
        for (int l = 0; l < lanes; ++l) all.v.push_back(l ? B.CreateAdd(k, number(l), "", true, true) : k);
      flight_ = {product.k.var, lanes, static_cast<int>(points.size()), {}};
      bind(product.k.var, std::move(all), false);
      std::map<uint32_t, std::vector<Values>> known;
      for (const Product::Term& term : product.terms) {
        loop::ValId v = narrow ? term.narrow : term.wide;
        auto [it, fresh] = known.try_emplace(v.index);
        if (fresh) it->second = factor_words(v, product.dtype);
        for (const Values& words : it->second)
          for (Value* w : words) out.push_back(exists ? B.CreateSelect(exists, w, number(0)) : w);
      }
    }
    return out;
  };
  // The wide factor first: it may be read before what precedes this kernel has ended.
  auto load = [&](Value* done) {
    Values out = load_factor(false, done);
    out.append(load_factor(true, done));
    // The assembler would put each load before its use, to save registers.
    intrinsic(llvm::Intrinsic::nvvm_bar_warp_sync, {mates_});
    return out;
  };
  auto add = [&](llvm::ArrayRef<Value*> words, Values sums) {
    auto take = [&](loop::ValId v) {
      const LoopOp* raw = raw_factor(v, product.dtype);
      const bool bytes = raw && size_of(program_.buffers[raw->buffer].dtype) == 1;
      Values out;
      for (Value* w : words.take_front(static_cast<size_t>(bytes ? lanes / 4 : lanes / 2)))
        if (bytes)
          for (Value* pair : halves_of_bytes(vb_, w, product.dtype)) out.push_back(pair);
        else
          out.push_back(w);
      words = words.drop_front(static_cast<size_t>(bytes ? lanes / 4 : lanes / 2));
      return out;
    };
    std::vector<std::array<Values, 2>> upper_lower;
    for (int t = 0; t < turns; ++t)
      for (const Product::Term& term : product.terms) {
        Values upper = take(term.wide);
        upper_lower.push_back({upper, take(term.wide)});
      }
    for (size_t t = 0; t < upper_lower.size(); ++t)
      for (size_t j = 0; j < static_cast<size_t>(strips); ++j)
        multiply(product.dtype, upper_lower[t][0], upper_lower[t][1], take(product.terms[t % terms].narrow),
                 sums.data() + t % terms * each + j * kSums);
    return sums;
  };
  const size_t all_sums = terms * each;
  Values carried(all_sums, vb_.num(vb_.f32(), 0.0)), words = load(number(0));
  if (rounds > 1) {
    // What the next round multiplies is on its way during this one.
    carried.append(words);
    carried = loop(number(turns), number(rounds * turns), number(turns), std::move(carried),
                   [&](Value* done, Values current) {
                     Values next = load(done);
                     Values out = add(llvm::ArrayRef(current).drop_front(all_sums),
                                      Values(current.begin(), current.begin() + static_cast<long>(all_sums)));
                     out.append(next);
                     return out;
                   });
    words.assign(carried.begin() + static_cast<long>(all_sums), carried.end());
    carried.resize(all_sums);
  }
  carried = add(words, std::move(carried));

  // Through shared memory: from the sums of each warp to a thread for each point.
  const int points = kTileWide * strips * kTileNarrow;
  std::vector<Value*> arrays;
  for (size_t t = 0; t < terms; ++t) arrays.push_back(shared_array(vb_.f32(), static_cast<uint64_t>(points * warps)));
  auto sum_at = [&](size_t term, Value* at) { return B.CreateInBoundsGEP(vb_.f32(), arrays[term], at); };
  Value* own_sums = B.CreateMul(warp, number(points));
  Value* corner = B.CreateAdd(B.CreateMul(quarter, number(2 * kTileWide)), line);
  for (size_t t = 0; t < terms; ++t)
    for (int j = 0; j < strips; ++j)
      for (int s = 0; s < kSums; ++s) {
        int at = (j * kTileNarrow + s % 2) * kTileWide + s / 2 * (kTileWide / 2);
        B.CreateStore(carried[t * each + static_cast<size_t>(j * kSums + s)],
                      sum_at(t, B.CreateAdd(own_sums, B.CreateAdd(corner, number(at)))));
      }
  intrinsic(llvm::Intrinsic::nvvm_barrier0);
  flight_ = outer_flight_ = {};
  auto finish = [&](Value* point) {
    Value* column = B.CreateUDiv(point, number(kTileWide));
    Value* at = B.CreateAdd(first, B.CreateURem(point, number(kTileWide)));
    if_then(whole ? nullptr : B.CreateICmpULT(at, number(wide)), [&] {
      bind_positions(product.wide, {at}, 1, /*along=*/false);
      bind_positions(product.narrow, {column}, 1, /*along=*/false);
      for (size_t s = 0; s < nest_.stages.size(); ++s) {
        if (s != product.stage) {
          run_stage(nest_.stages[s]);
          continue;
        }
        for (size_t t = 0; t < terms; ++t) {
          Values parts;
          for (int w = 0; w < warps; ++w)
            parts.push_back(B.CreateLoad(vb_.f32(), sum_at(t, B.CreateAdd(point, number(w * points)))));
          for (size_t n = 1; n < parts.size(); n *= 2)
            for (size_t i = 0; i + n < parts.size(); i += 2 * n) parts[i] = B.CreateFAdd(parts[i], parts[i + n]);
          Lanes sum;
          sum.v.push_back(parts[0]);
          sum.dtype = DType::F32;
          values_[nest_.stages[s].ops[product.terms[t].op].result.index] = std::move(sum);
        }
      }
    });
  };
  const int wanted = kTileWide * columns;
  if (wanted > shape_.threads)
    loop(thread_, number(wanted), number(shape_.threads), {}, [&](Value* p, const Values&) {
      finish(p);
      return Values{};
    });
  else
    if_then(wanted == shape_.threads ? nullptr : B.CreateICmpULT(thread_, number(wanted)), [&] { finish(thread_); });
}

}  // namespace braze::codegen::nvptx
