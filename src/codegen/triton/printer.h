// One nest -> the text of one Triton kernel.
//
// The kernel `symbol(buffer..., size..., error)` computes in each program the outer points of one block (see blocks.h).
// Its values are tensors: one dimension for Way::Points, else two, the outer points (or rows of a tile) along the
// first, a stage's points (or columns of a tile) along the second; what is the same along a dimension has size 1 there.
// Elements beyond an extent load 0, and neither store nor count in reductions.
//
// What a stage stores and a later one loads at the same point of the same axes stays a value; else the program's
// threads meet at a barrier in between. `error` points to one word, which is set where an index was out of range.
#pragma once
#include <map>
#include <set>
#include <unordered_map>

#include "codegen/signature.h"
#include "codegen/triton/blocks.h"
#include "codegen/triton/point.h"
#include "codegen/triton/tile.h"

namespace braze::codegen::triton {

using loop::BufferId;
using loop::LoopOp;
using loop::Nest;
using loop::Program;
using sym::Expr;

// What Triton cannot say; the nest then needs another target.
class Inexpressible : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Parameter {
  std::string name, type;  // type as Triton spells it: *fp32, i64
};

class Printer {
 public:
  Printer(const Program& program, const Nest& nest, const Signature& signature, const Blocks& blocks, int sm);
  // A Python module that defines the kernel. Throws Inexpressible.
  std::string run(const std::string& symbol);
  const std::vector<Parameter>& parameters() const { return parameters_; }
  // See tile.h.
  TileText tile(const TileNames& names, std::set<std::string>& helpers);
  bool wide() { return needs_i64(); }
  // See point.h.
  PointText point(const std::array<Expr, 4>& sizes, const PointNames& names, std::set<std::string>& helpers);

 private:
  // Dimensions along which a text's value varies.
  static constexpr unsigned kFirst = 1, kSecond = 2;
  struct Text {
    std::string s;
    unsigned dims = 0;
    bool atom = true;  // needs no parentheses
  };
  struct Val {
    std::string s;  // an atom
    unsigned dims = 0;
    DType dtype = DType::F32;
  };
  struct Accumulator {  // of one Reduce op
    const LoopOp* op = nullptr;
    DType operand = DType::F32;
    std::vector<std::string> parts;  // names of the running values; arg: value, index; Welford: mean, squares, count,
                                     // shift; exponents: maximum, sum
    bool shared = false;             // the same parts as an earlier one
  };
  using Key = std::pair<uint32_t, uint32_t>;  // buffer, index expression

  // printer.cpp
  void line(const std::string& s) { body_ += std::string(static_cast<size_t>(indent_) * 4, ' ') + s + "\n"; }
  std::string fresh(const std::string& name);
  std::string assign(const std::string& name, const std::string& value);
  void declare_parameters();
  void begin_points();
  void begin_tiles();
  void begin_rows();
  void decode(const std::string& position, unsigned dims, const std::vector<loop::Axis>& axes);
  void run_stage(const loop::Stage& stage);
  void run_at_once(const loop::Stage& stage, int block);
  void run_in_turns(const loop::Stage& stage, int block);
  void place(const loop::Stage& stage, const std::string& start, int block);
  void run_ops(const loop::Stage& stage);
  void meet(const loop::Stage& stage);

  // index.cpp
  bool fits_i32(Expr e);
  bool needs_i64();
  Text index(Expr e);
  std::string index_type() const { return wide_ ? "tl.int64" : "tl.int32"; }
  std::string mask(unsigned dims) const;
  unsigned all_dims() const;                                          // of the stage at hand
  std::string shape() const;                                          // of the stage at hand, all dimensions
  std::string whole(const Text& t) const;                             // broadcast to it
  std::string spread(const Text& t, const std::string& shape) const;  // an index without dimensions

  // memory.cpp
  void emit_load(const LoopOp& op);
  void emit_store(const LoopOp& op);
  void emit_indirect(const LoopOp& op);
  std::string address(BufferId buffer, const Text& at) const {
    return names_of_buffers_.at(buffer.index) + " + " + (at.atom ? at.s : "(" + at.s + ")");
  }

  // ops.cpp
  void emit_op(const LoopOp& op);
  std::string constant(const LoopOp& op) const;
  std::string cast(const Val& v, DType to);
  std::string arithmetic(const LoopOp& op, const std::array<Val, 3>& v);
  std::string float_op(const LoopOp& op, const std::string& x, const std::string& y);
  std::string integer_op(const LoopOp& op, const std::string& x, const std::string& y);
  std::string helper(const std::string& name);  // asks for the definition of a function of helpers.h

  // reduce.cpp
  void begin_reductions(const loop::Stage& stage, bool at_once);
  void update_reduction(Accumulator& a);
  void finish_reductions();
  void reduce_nothing(const LoopOp& op);
  std::string fold(loop::ReduceKind kind, DType dtype, const std::string& x);
  void set(const LoopOp& op, const std::string& value, unsigned dims);

  const Program& program_;
  const Nest& nest_;
  const Signature& signature_;
  const Blocks& blocks_;
  int sm_;
  sym::ExprArena& arena_;
  bool wide_ = false;   // indices need 64 bits
  bool quick_ = false;  // division of f32 may be approximate
  std::string body_, prefix_;
  int indent_ = 1;
  std::set<std::string> taken_, helpers_;
  std::vector<Parameter> parameters_;
  std::vector<std::string> open_sizes_;
  std::map<uint32_t, std::string> names_of_buffers_;
  std::unordered_map<uint32_t, Text> symbols_;
  std::vector<Val> values_;
  std::string first_mask_, second_mask_;  // empty: all elements exist
  const loop::Stage* stage_ = nullptr;
  const loop::Stage* placed_ = nullptr;  // whose axes are bound, all points at once
  int placed_block_ = 1;
  std::string position_;           // along the stage's axes
  std::map<Key, Val> known_;       // what is in memory, of the stages over the same axes
  std::vector<BufferId> written_;  // since the last barrier
  std::vector<Accumulator> accumulators_;
};

// Names of dtypes: in memory and in registers.
std::string storage_type(DType dtype);
// Of a parameter that points to such elements, as Triton's signatures name it. Throws Inexpressible.
std::string pointer_type(DType dtype);
std::string compute_type(DType dtype);
std::string literal(DType dtype, double value);
std::string literal(int64_t value);

}  // namespace braze::codegen::triton
