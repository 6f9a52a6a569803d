// Builds one loop nest: appends ops to the current stage, with common subexpressions found by structure.
#pragma once
#include <unordered_map>
#include <utility>

#include "loop/loop.h"

namespace braze::lower {

using loop::BufferId;
using loop::OpCode;
using loop::ReduceKind;
using loop::ValId;
using sym::Expr;

class Symbols;

// Appends ops to a nest's stages.
class Body {
 public:
  Body(sym::ExprArena& arena, Symbols& symbols, const Store<BufferId, loop::Buffer>& buffers, bool float8_saturates);

  ValId op(OpCode code, DType dtype, ValId a, ValId b = {}, ValId c = {});
  ValId load(BufferId buffer, Expr index);
  void store(BufferId buffer, Expr index, ValId value, bool accumulate = false);
  ValId constant(double value, DType dtype);  // rounded or converted to dtype
  ValId constant(int64_t value, DType dtype);
  ValId index(Expr e, DType dtype);  // an integer expression as a value of any type
  ValId cast(ValId v, DType dtype);
  ValId bitcast(ValId v, DType dtype);
  // What a tensor of type `half` would hold of it, in its own type. What was read from such a tensor stands for itself.
  ValId rounded(ValId v, DType half);
  // The value as an index into a dimension of size `bound`, checked when it runs. A value that is an index expression
  // anyway, and inside, stands for itself.
  Expr indirect(ValId v, Expr bound, loop::IndexCheck check);
  // While it lives, what is read is used where `condition` holds, and may be read of a tensor without elements
  // elsewhere: an index there is none that was asked for.
  class UsedWhere {
   public:
    UsedWhere(Body& body, ValId condition) : body_(body), before_(std::exchange(body.used_, condition)) {}
    ~UsedWhere() { body_.used_ = before_; }
    UsedWhere(const UsedWhere&) = delete;

   private:
    Body& body_;
    ValId before_;
  };
  ValId reduce(ReduceKind kind, DType dtype, ValId v);
  ValId scan(ReduceKind kind, ValId v);  // of the points of the stage's axis so far
  DType dtype(ValId v) const { return dtypes_[v.index]; }

  // Starts the next stage; values of earlier ones are no longer found, but for reductions' results.
  void begin_stage(std::vector<loop::Axis> axes);
  // What was computed for this graph value at these indices in this stage.
  ValId remembered(uint32_t value, std::span<const Expr> index) const;
  void remember(uint32_t value, std::span<const Expr> index, ValId v);

  loop::Nest finish(std::string name, std::vector<loop::Axis> outer);
  sym::ExprArena& arena() { return arena_; }

 private:
  ValId append(loop::LoopOp op);
  const loop::LoopOp* made_here(ValId v) const;  // of the current stage
  // Integer arithmetic on index expressions is one: then its loads stay affine.
  ValId fold(OpCode code, ValId a, ValId b);
  const Expr* expr_of(ValId v) const;
  void drop_unused();
  struct Seen {
    uint32_t value;
    std::vector<Expr> index;
    ValId result;
  };
  sym::ExprArena& arena_;
  Symbols& symbols_;
  ValId used_;  // see UsedWhere
  const Store<BufferId, loop::Buffer>& buffers_;
  loop::Nest nest_;
  std::vector<DType> dtypes_;
  std::unordered_map<uint32_t, Expr> exprs_;             // values of type i64 that are index expressions
  std::unordered_multimap<uint64_t, uint32_t> by_hash_;  // of the current stage's ops
  std::unordered_multimap<uint64_t, Seen> seen_;
  int indirects_ = 0;
  bool float8_saturates_;  // Options
};

// Loop variables and indirect symbols by position and extent: one per arena, whatever the nest.
class Symbols {
 public:
  explicit Symbols(sym::ExprArena& arena) : arena_(arena) {}
  Expr loop_var(char prefix, int position, Expr extent) {
    return make(prefix, position, extent, sym::SymbolKind::LoopVar);
  }
  Expr indirect(int number, Expr bound) { return make('t', number, bound, sym::SymbolKind::Indirect); }
  // The number of values of a symbol made here; nullptr for others.
  const Expr* extent_of(Expr symbol) const;

 private:
  Expr make(char prefix, int position, Expr extent, sym::SymbolKind kind);
  sym::ExprArena& arena_;
  std::unordered_map<uint32_t, Expr> extents_;
};

}  // namespace braze::lower
