// Nests -> LLVM IR for one GPU kernel.
//
// The kernel `symbol(pointer..., size..., error)` computes, with the threads of their Shapes, every outer point of its
// nests; each has the pointers, the sizes and the blocks after those of the ones before it. A thread's code is scalar;
// it has some elements in flight (the Flight): `copies` groups of `lanes` neighbouring values of one axis. An op is
// emitted once where its operands are the same for all of them, else once per element. Groups beyond the end of an axis
// read element 0 instead and neither store nor count in reductions.
//
// Threads that share an outer point meet at a barrier between a stage that stores and one that loads the same buffer.
// `error` points to one word of host memory, which is set where an index was out of range (see runtime/cuda).
#pragma once
#include <functional>
#include <map>
#include <unordered_map>

#include "codegen/llvm/arith.h"
#include "codegen/llvm/integers.h"
#include "codegen/nvptx/math.h"
#include "codegen/nvptx/shape.h"
#include "codegen/signature.h"

namespace braze::codegen::nvptx {

using ir::LaneFacts;
using llvm::Type;
using llvm::Value;
using loop::BufferId;
using loop::LoopOp;
using loop::Nest;
using loop::Program;
using sym::Expr;

// One nest of a launch.
struct Part {
  const Nest* nest = nullptr;
  Signature signature;
  Shape shape;  // all parts have the same number of threads per block; of several each has a known number of blocks
  bool ahead = false;  // as Mapping::ahead, of the whole launch
};

// Adds the kernel to the module. `early`: launched so (see CompiledKernel).
void emit_kernel(const Program& program, const std::vector<Part>& parts, const Target& target, bool early,
                 const std::string& symbol, llvm::Module& module);

// Where the code of one nest goes: pointers and sizes from an argument on, the blocks that count from `first_block` on.
struct Place {
  llvm::Function* function = nullptr;
  llvm::BasicBlock* begin = nullptr;
  unsigned first_buffer = 0, first_size = 0;
  int64_t first_block = 0;
};

constexpr int kMostWordsAhead = 64;  // registers of a thread for what is read before it is needed

class Emitter {
 public:
  Emitter(const Program& program, const Part& part, const Target& target, bool early, llvm::Module& module);
  void run(const Place& place);
  // What it placed in a block's memory: multiples of 16 bytes.
  const std::vector<std::pair<llvm::GlobalVariable*, uint64_t>>& shared() const { return shared_; }

 private:
  using Values = llvm::SmallVector<Value*, 8>;
  // One value for all elements in flight, or one for each.
  struct Lanes {
    Values v;
    DType dtype = DType::F32;
    Value* at(int element) const { return v.size() == 1 ? v[0] : v[static_cast<size_t>(element)]; }
    bool uniform() const { return v.size() == 1; }
  };
  struct Flight {
    std::optional<Expr> var;  // the axis that the lanes run along
    int lanes = 1, copies = 1;
    Values active;  // per copy: whether it exists; null: certainly. Empty: all do.
    int elements() const { return lanes * copies; }
    Value* active_at(int copy) const { return active.empty() ? nullptr : active[static_cast<size_t>(copy)]; }
  };
  struct Binding {
    Lanes value;                // integers
    bool same_in_lanes = true;  // differs between copies at most
  };
  struct Scope {
    std::map<std::tuple<uint32_t, int, bool>, Value*> exprs;  // (expression, element or -1, 64 bits)
  };
  struct Accumulator {  // of one Reduce op
    const LoopOp* op = nullptr;
    DType operand = DType::F32;
    int parts = 1;        // as llvm/combine.h has them
    bool shared = false;  // the same parts as an earlier one
    bool wide = false;    // arg: the index needs 64 bits
    size_t first = 0;     // into the carried values; one set of parts per lane of an outer point
  };

  // emitter.cpp
  void begin(const Place& place);
  void run_points();
  void run_tiles();
  bool mirrored();
  Value* in_shells(Value* n, Expr side);
  void run_rows();
  void run_columns();
  void run_stages();
  void run_stage(const loop::Stage& stage);
  void run_axes(const loop::Stage& stage);
  void run_ops(const loop::Stage& stage, Values* carried);
  bool loads_together(const loop::Stage& stage) const;
  void emit_op(const LoopOp& op);
  void emit_pure(const LoopOp& op);
  void divide_all(const LoopOp& op, const Lanes& dividends, const Lanes& divisor);
  void emit_indirect(const LoopOp& op);
  void bind_points(Expr point, const std::vector<loop::Axis>& axes);
  // Runs `body` with the axes' variables at this thread's point among all of them, where there is one, and `lanes`
  // neighbouring points of the last axis in flight.
  void at_own_point(std::vector<loop::Axis> axes, int lanes, const std::function<void()>& body);
  void bind_positions(const std::vector<loop::Axis>& axes, const Values& positions, int lanes, bool along = true);
  void meet(const loop::Stage& stage);
  void barrier();
  // Memory that what precedes on the stream may still write is accessed after this alone. An input that is read ahead
  // needs none.
  void wait();
  void wait_for(BufferId read) {
    if (!is_steady(read)) wait();
  }
  bool is_steady(BufferId read) const;
  void if_then(Value* condition, const std::function<void()>& body);
  Values loop(Value* begin, Value* end, Value* step, Values init, const std::function<Values(Value*, Values)>& body);
  Value* intrinsic(llvm::Intrinsic::ID id, llvm::ArrayRef<Value*> args = {});
  Value* worker_is_first();  // of those that share an outer point; null: there is one

  // index.cpp
  void bind(Expr symbol, Lanes value, bool same_in_lanes);
  Expr fresh(const char* name, Expr extent);  // a variable of our own with the range [0, extent-1]
  Value* emit(Expr e, int element, bool wide);
  Value* emit(Expr e, int element) { return emit(e, element, !fits_i32(e)); }
  Value* emit_here(Expr e, int element, bool wide);
  bool fits_i32(Expr e);
  bool varies(Expr e);  // among the elements in flight
  LaneFacts lane_facts();
  std::optional<int64_t> lane_step(Expr e);  // e(lane) = e(0) + step * lane; nullopt: not known
  bool aligned(Expr e, int64_t divisor);     // at lane 0

  // memory.cpp
  void emit_load(const LoopOp& op);
  void emit_store(const LoopOp& op);
  void load_for_later(const loop::Stage& stage);
  Lanes load(BufferId buffer, Expr index);
  Value* address(BufferId buffer, Expr index, int element);
  Value* load_one(BufferId buffer, Expr index, int element);
  Values load_vector(BufferId buffer, Value* p, int lanes);
  void store_vector(BufferId buffer, Value* p, llvm::ArrayRef<Value*> stored);
  void add_half(BufferId buffer, Value* p, Value* bits);
  void store_atomic(BufferId buffer, Value* p, Value* value);
  void place_locals();
  void for_each_early_load(const std::function<void(const LoopOp&)>& f);
  void load_tiles(const std::function<void()>& turn);
  bool stores_to(BufferId buffer) const;
  Value* shared_array(Type* element, uint64_t n);
  static uint64_t bytes_of(Type* element, uint64_t n);  // of an array in shared memory
  uint64_t most_shared() const { return static_cast<uint64_t>(vb_.target.shared_bytes); }
  // Of it, what partial results of reductions have: not less than one reduction takes.
  uint64_t most_partials() const { return most_shared() / 3 * 2; }
  Type* memory_type(Type* t) { return t->isIntegerTy(1) ? vb_.i8() : t; }

  // reduce.cpp
  Values begin_reductions(const loop::Stage& stage);
  void update_reduction(Accumulator& a, const Lanes& x, Values& carried);
  void update_welford(Accumulator& a, const Lanes& x, Values& carried);
  void update_exp_sum(Accumulator& a, const Lanes& x, Values& carried);
  void combine(const Accumulator& a, Value** into, Value** from);
  void finish_reductions(Values carried);
  void combine_group(Values& carried);
  void combine_columns(Values& carried);
  void combine_columns(Values& carried, llvm::ArrayRef<const Accumulator*> those);
  std::vector<Value*> partial_arrays(const std::vector<Type*>& types);
  Value* shuffle(Value* v, int offset);
  Type* part_type(const Accumulator& a, int part);
  int outer_lanes() const { return shape_.way == Shape::Way::Columns ? shape_.vector : 1; }

  // window.cpp
  void run_windows();
  void run_taps(const loop::Stage& stage, const std::vector<std::pair<Expr, Expr>>& points, const loop::Axis& tap,
                Values& sums);

  // product.cpp
  void run_product();
  void emit_with_operands(loop::ValId v);
  const LoopOp* raw_factor(loop::ValId v, DType half) const;
  std::vector<Values> load_words(BufferId buffer, Expr index);
  std::vector<Values> factor_words(loop::ValId v, DType half);
  using Words = llvm::ArrayRef<Value*>;
  void multiply(DType half, Words upper, Words lower, Words narrow, Value** sums);

  const Program& program_;
  const Nest& nest_;
  const Signature& signature_;
  const Shape& shape_;
  bool early_, ahead_;  // launched so (see CompiledKernel); it reads inputs ahead
  bool waited_ = true;  // on every way to here
  sym::ExprArena& arena_;
  DeviceBuilder vb_;
  llvm::IRBuilder<>& B;
  llvm::Function* function_ = nullptr;

  Value *thread_ = nullptr, *block_ = nullptr, *error_ = nullptr;  // i32, i32, pointer
  Value* rank_ = nullptr;   // Rows, Columns: which of those that share a point; i32
  Value* mates_ = nullptr;  // lanes of the warp that take part in shuffles
  int workers_ = 1;         // how many share an outer point
  int positions_ = 0;       // names of our own variables

  Flight flight_, outer_flight_, stage_flight_;
  std::vector<Scope> scopes_{1};
  std::unordered_map<uint32_t, Binding> symbols_;
  std::unordered_map<uint32_t, bool> varies_;
  std::unordered_map<uint32_t, Value*> bases_, sizes_;
  uint64_t shared_bytes_ = 0;
  std::vector<std::pair<llvm::GlobalVariable*, uint64_t>> shared_;
  Value* partials_ = nullptr;  // shared memory that one combination of partial results after the other has
  std::vector<Lanes> values_;
  std::vector<Accumulator> accumulators_;
  const loop::Stage* stage_ = nullptr;
  Values stage_positions_;         // per copy: lane 0's place among the points of the stage
  bool straight_ = false;          // the stage's code is not in a loop
  std::vector<BufferId> written_;  // since the last barrier
  // Straight-line stages over the same axes find what they loaded or stored at the same index before.
  std::map<std::pair<uint32_t, uint32_t>, Lanes> known_;
  const loop::Stage* known_for_ = nullptr;
  std::unordered_map<uint32_t, Value*> locals_;  // Local buffers in shared memory; null: registers alone
  std::map<std::pair<uint32_t, uint32_t>, Lanes> tiles_;
  Value *tile_x_ = nullptr, *tile_y_ = nullptr;
};

}  // namespace braze::codegen::nvptx
