// One nest -> LLVM IR.
//
// The kernel `symbol(pointers, sizes)` hands a range of units to braze_parallel_for; a unit is one point of the outer
// axes but the vectorised one, times a block of that. Its body walks the units with a counter that carries from axis to
// axis (no division per unit). Inside:
//   Mapping Outer: the points of a block in vectors of W lanes, `copies` vectors at a time; all stages run for each
//   group. Mapping Inner: one outer point at a time; each stage's last axis in vectors, reductions in `copies`
//   accumulators. Mapping None:  the same with one lane.
// What is left over runs under a lane mask.
//
// Loop invariant values are put where they belong at once: each expression and each pure op is emitted in the outermost
// loop that knows its operands (there is no LICM pass).
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <unordered_map>

#include "codegen/cpu/builder.h"
#include "codegen/llvm/arith.h"
#include "codegen/llvm/integers.h"
#include "codegen/signature.h"

namespace braze::codegen::cpu {

using ir::LaneFacts;
using ir::VectorBuilder;
using loop::BufferId;
using loop::LoopOp;
using loop::Nest;
using loop::Program;
using sym::Expr;

// A value of the nest: one scalar for all points in flight, or one vector per copy.
struct Lanes {
  llvm::SmallVector<Value*, 8> v;
  bool vec = false;
  int depth = 0;  // loop level where it was computed
  DType dtype = DType::F32;
  Value* wide = nullptr;  // the scalar, splat once it was needed
};

class Emitter {
 public:
  Emitter(const Program& program, const Nest& nest, const Signature& signature, std::unique_ptr<CpuBuilder> builder);
  void run(const std::string& symbol);

 private:
  static constexpr int64_t kStripe = 4;
  static constexpr int64_t kRun = 64, kShortRun = 16;  // additions to one accumulator, of sums and of variances
  // What one pass over a block of columns takes: so many rows, so far apart.
  static constexpr int64_t kSweepRows = 8, kSweepStride = 8;
  static_assert(kSweepRows * kSweepStride == kRun);
  static constexpr int64_t kGroupRows = 4, kGroupStride = 4;  // rows that are reduced at a time, and how far apart
  static constexpr int64_t kTile = 64;  // rows and columns: transposed reads use runs of cache lines and few pages
  using Values = llvm::SmallVector<Value*, 8>;
  struct Scope {
    llvm::Instruction* enter = nullptr;  // the branch into this loop: invariants go before it
    bool nonempty = true;                // the loop runs at least once
    std::unordered_map<uint32_t, Value*> exprs;
    std::map<std::pair<uint32_t, uint32_t>, Value*> pointers;
  };
  // The vectorised variable while code for it is emitted. Without: one point.
  struct Vector {
    std::optional<Expr> var;
    Value* iv = nullptr;  // its value in lane 0 of copy 0
    int copies = 1;
    Value* mask = nullptr;     // lanes in use; null: all. Only with one copy, or with rows.
    std::optional<Expr> rows;  // tiles, strips: copies are the next values of this variable, `columns` vectors at each
    int columns = 1;
    bool anywhere = false;   // iv may be no multiple of the width
    int64_t apart = 0;       // from one copy to the next; 0: the width
    int64_t rows_apart = 1;  // from a copy's value of `rows` to the next one's
  };
  struct Accumulator {  // of one Reduce or Scan
    const LoopOp* op = nullptr;
    size_t first = 0;           // into the carried values
    int copies = 1, parts = 1;  // parts: values per copy
    bool vec = false;
    bool shared = false;  // Welford, a maximum of exponents: the same values as an earlier one
    DType operand = DType::F32;
  };

  struct Welford {  // places among the carried values: reduce.cpp
    bool rows;
    size_t centres, count, rest, centre, started, mean, total, total_rest, end;
  };

  struct ExpSum {  // places among the carried values: maxima, one of a row's copies or one each, and sums
    size_t tops, top, sum;
  };

  // emitter.cpp: loops and stages
  void choose_shape();
  llvm::Function* begin_body(const std::string& symbol);
  void emit_entry(const std::string& symbol, llvm::Function* body);
  void run_units(Value* lo, Value* hi);
  void run_unit(llvm::ArrayRef<Value*> digits);
  void run_tile(Value* rows, Value* begin, Value* end);
  Value* to_next_tile(const LoopOp& load);
  void transpose_square(const LoopOp& op, Value* place, Value* rows, Value* columns);
  void run_stages();
  void run_stage(const loop::Stage& stage);
  Values run_axis(const loop::Stage& stage, size_t k, Values carried);
  Values run_last_axis(const loop::Stage& stage, Value* begin, Value* end, std::optional<int64_t> length,
                       Values carried);
  void run_ops(const loop::Stage& stage, Values* carried);
  void emit_op(const LoopOp& op);
  void emit_pure(const LoopOp& op);
  void emit_index(const LoopOp& op);
  void emit_indirect(const LoopOp& op);
  llvm::Instruction* last_instruction();
  void check_divisor(Value* divisor);
  void report_if(Value* bad, loop::IndexCheck what, Value* value, Value* bound);
  Values loop(Value* begin, Value* end, int64_t step, bool nonempty, Values init,
              const std::function<Values(Value*, Values)>& body);
  int body_cost(const loop::Stage& stage) const;
  int fewer_copies(int copies, int64_t extent, bool keeps_many) const;
  int choose_copies(int cost, int accumulators, std::optional<int64_t> extent) const;
  std::vector<Expr> digit_extents();
  Expr units();
  bool stores_to(BufferId buffer) const;
  bool loads_from(BufferId buffer) const;

  // columns.cpp
  bool masks_well() const { return vb_.target.vector_bits >= 512; }  // a store under a mask costs what others do
  void run_columns(Value* begin, Value* end, std::optional<int64_t> length, const std::function<void()>& point);
  bool may_end_whole(bool outer) const;  // of the last outer axis, or of a stage's
  // A row of more than a vector: its last `width_` points, then the others in vectors, then what is stored of the last.
  void end_whole(Value* begin, Value* end, int64_t length, int copies, const std::function<void(Value*, int)>& step);

  // strips.cpp
  void choose_strip();
  void begin_strip(size_t axis, int64_t points, int columns);
  bool may_repeat() const;
  void run_strip(Value* digit, Value* begin, Value* end);
  bool writes_taps_out(const loop::Stage& stage, std::optional<int64_t> taps) const;
  const LoopOp* product_of(const Accumulator& a) const;

  // sweep.cpp
  class Kept;
  bool only_reduces() const;  // the first stage: the others take nothing of it but results
  bool may_sweep() const;
  int vectors_of_line() const;
  int64_t sweep_columns() const;  // of a block
  void run_sweep(Value* begin, Value* end);

  // long_rows.cpp
  int64_t copies_apart(const loop::Stage& stage) const;  // along its last axis; 0: they are side by side
  Value* after(Value* begin, int64_t n) {
    return B.CreateAdd(begin, B.getInt64(static_cast<uint64_t>(n)), "", true, true);
  }
  Values run_vectors(const loop::Stage& stage, Value* begin, int64_t length, Values carried);
  Values run_apart(const loop::Stage& stage, int64_t apart, int64_t run, Values carried);
  std::optional<LoopOp> read_once(const loop::Stage& stage) const;  // in unit steps of its last axis, and nothing else
  bool may_group_rows() const;
  void run_row_group(Value* first);
  Value* read_later(const LoopOp& load);  // elements to what to fetch meanwhile; null: nothing
  void fetch_ahead(const LoopOp& load, Value* apart);

  // reduce.cpp
  Values begin_reductions(const loop::Stage& stage);
  void update_reduction(const Accumulator& a, const Lanes& x, Values& carried);
  Lanes update_scan(const Accumulator& a, const Lanes& x, Values& carried);
  Value* scan_lanes(const Accumulator& a, Value* v);
  void update_welford(const Accumulator& a, Lanes x, Values& carried);
  void update_exp_sum(const Accumulator& a, Lanes x, Values& carried);
  void finish_reductions(const loop::Stage& stage, const Values& carried);
  void fold_welford(const Accumulator& a, Values& carried);
  void move_centres(const Accumulator& a, Values& carried);
  std::pair<Value*, Value*> join_lanes(const Accumulator& a,
                                       const Values& carried);  // mean and sum of squared deviations
  void fold_lanes(Values& parts, const std::function<void(Value** into, Value* const* from)>& join);
  Welford welford(const Accumulator& a) const;
  ExpSum exp_sum(const Accumulator& a) const;
  bool runs(const Accumulator& a) const;                     // sums up, so that long ones are taken in runs
  int64_t steps(const loop::Stage& stage, size_t k) const;   // of one accumulator along axes k..., where known
  bool folds(const loop::Stage& stage, size_t k) const;      // run_axis(k) takes variances in runs by itself
  Values restart(const Values& carried);                     // sums begin again at 0, others go on
  Values resume(const Values& before, const Values& after);  // and are added to what was there
  Value* reduce_identity(const Accumulator& a, int part, Type* type);
  Type* accumulator_type(const Accumulator& a, int part);
  void combine(const Accumulator& a, Value** into, Value* const* from);  // parts of one copy with those of another
  Value* flat_index(int copy);

  // index.cpp
  int depth_of(Expr e);
  template <class F>
  auto at_depth(int depth, F&& f) {
    if (depth >= top()) return f();
    llvm::IRBuilderBase::InsertPointGuard guard(B);
    B.SetInsertPoint(scopes_[depth + 1].enter);
    return f();
  }
  int top() const { return static_cast<int>(scopes_.size()) - 1; }
  void bind(Expr symbol, Value* value, int depth);
  Value* emit(Expr e);  // an int64 scalar, where it belongs
  Value* emit_here(Expr e);
  Value* lane_values(Expr e, int copy);  // per lane, as vector of i32 or i64
  Value* lane_values_as(Expr e, int copy, Type* element);
  bool fits_i32(Expr e) const;
  bool varies(Expr e);  // among the lanes
  // e(lane) = e(0) + step * lane within every vector; nullopt: no such form is known.
  LaneFacts lane_facts();
  std::optional<int64_t> lane_step(Expr e);
  bool aligned(Expr e, int64_t divisor);  // e at lane 0 is a multiple of divisor
  Expr at_copy(Expr e, int copy);

  // guarded.cpp
  struct Guarded {
    loop::ValId condition;
    Expr index;  // where the condition holds
  };
  std::optional<Guarded> guarded(const LoopOp& load);
  const LoopOp* made_by(loop::ValId id) const;
  std::optional<loop::ValId> counts_where(const LoopOp& load) const;
  void collect_inside(loop::ValId condition, std::vector<std::pair<Expr, Expr>>& found);

  // memory.cpp
  Value* address(BufferId buffer, Expr index);
  void emit_load(const LoopOp& op);
  void emit_store(const LoopOp& op);
  Value* load_lanes(BufferId buffer, Expr index, int copy);
  void store_lanes(BufferId buffer, Expr index, int copy, Value* value);
  void add_to(BufferId buffer, Expr index, Value* value);
  void add_lanes(BufferId buffer, Expr index, int copy, Value* value);
  Value* sum_of(Value* a, Value* b);
  std::optional<int64_t> bytes(BufferId buffer) const;  // nullopt: its sizes vary
  std::optional<int64_t> footprint() const;
  bool streams(BufferId buffer, Expr index);
  Value* gather(BufferId buffer, Expr index, int copy, Type* element);
  Value* load_shared(BufferId buffer, Expr index, int copy, Type* element);
  Value* load_interleaved(BufferId buffer, Expr index, int copy, Type* element, int64_t step, Value* mask = nullptr);
  Value* load_guarded(BufferId buffer, Expr index, int copy, Value* mask);
  void store_interleaved(Value* p, Value* v, llvm::Align align, int64_t step);
  Value* address_of_copy(BufferId buffer, Expr index, int copy, Type* element);
  int joined_copies(BufferId buffer, Expr index);
  void store_joined(BufferId buffer, Expr index, int first, int count, const std::function<Value*(int)>& stored);
  void store_apart(Value* p, Value* v, llvm::Align align, int64_t step);
  Value* load_ramp(BufferId buffer, Expr index, int copy, Type* element);
  Value* local_address(BufferId buffer, Expr index, int copy);
  Expr local_index(Expr index);
  void allocate_locals();

  Value* copy_of(Lanes& x, int copy);  // as vector of the current width
  Lanes& value(loop::ValId id) { return values_[id.index]; }
  bool vectorised() const { return vector_.var.has_value() && width_ > 1; }
  int64_t lane_bytes(DType dtype);

  const Program& program_;
  const Nest& nest_;
  const Signature& signature_;
  sym::ExprArena& arena_;
  std::unique_ptr<CpuBuilder> builder_;
  CpuBuilder& vb_;
  llvm::IRBuilder<>& B;
  llvm::Function* function_ = nullptr;
  llvm::BasicBlock* entry_ = nullptr;

  int width_ = 1;                        // lanes
  int copies_ = 1;                       // Outer: vectors in flight
  int stage_copies_ = 1;                 // Inner: the same, of the stage at hand
  int64_t block_ = 0;                    // Outer: points of the last axis per unit
  std::optional<int64_t> block_length_;  // Outer: known and equal for all blocks
  bool outer_vector_ = false;
  Expr blocks_;                   // Outer: blocks per row
  bool tiled_ = false;            // the last two outer axes in tiles
  int64_t stripe_ = 1;            // columns of tiles that are walked together
  Value* ends_stripe_ = nullptr;  // whether a row of tiles ends with this one; null: there are no stripes
  std::optional<size_t> strip_;   // Outer: an outer axis of which several points run at once
  int64_t strip_points_ = 1;
  bool groups_rows_ = false;  // Inner: a unit is kGroupRows * kGroupStride points of the last outer axis
  bool sweeps_ = false;       // Outer: rows are reduced a few at a time, for all columns of a block
  bool repeats_ = false;      // strips: a row's last vector may have lanes of the one before, which are made again
  bool ends_whole_ = false;   // Outer: the same of all nests, of blocks of known length
  std::vector<std::function<void()>>* late_ = nullptr;  // stores that wait until all of a block is read

  std::vector<Scope> scopes_;
  std::unordered_map<uint32_t, std::pair<Lanes, int>> symbols_;
  std::unordered_map<uint32_t, int> depths_;
  Vector vector_;
  std::vector<Lanes> values_;
  std::vector<Accumulator> accumulators_;
  std::unordered_map<uint32_t, Value*> bases_;               // buffer -> pointer in the body
  std::map<std::pair<uint32_t, uint32_t>, Value*> tiles_;    // transposed accesses: (buffer, index) -> scratch tile
  std::map<std::pair<uint32_t, uint32_t>, Value*> squares_;  // their memory
  Value* tile_row_ = nullptr;                                // where in the scratch tile the vector at hand starts
  Value* sizes_ = nullptr;
  const loop::Stage* stage_ = nullptr;
  bool streams_ = false;  // stores past the caches were emitted: a fence must follow
};

}  // namespace braze::codegen::cpu
