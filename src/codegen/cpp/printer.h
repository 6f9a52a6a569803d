// One nest -> the text of one C++ kernel, written in the words of kernels/.
//
// The kernel `symbol(pointers, sizes)` hands ranges of units to parallel_for; a unit is one point of the outer axes but
// the vectorised one, times a block of that. Mapping Outer: the points of a block in groups of `lanes`, all stages for
// each group. Mapping Inner: one outer point at a time, each stage's last axis in groups. Mapping None: one by one.
// What is left over runs by single numbers, by the same text: it is a function of how many lanes there are.
#pragma once
#include <array>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/target.h"
#include "codegen/signature.h"

namespace braze::codegen::cpp {

using loop::BufferId;
using loop::LoopOp;
using loop::Nest;
using loop::Program;
using sym::Expr;

// What the text is compiled for.
struct Shape {
  int lanes = 2;       // of a register vector
  int mask_bytes = 4;  // of a lane of a truth value
  int group = 1;       // lanes in flight; 1: no vectors
  bool outer = false;  // along the last outer axis
  int64_t block = 1;   // Outer: points of the last axis per unit
};
// Whether private buffers of the nest are more than a thread's stack is to hold, or of a size that only the run knows.
bool keeps_much(const Program& program, const Nest& nest);
Shape choose_shape(const Target& target, const Program& program, const Nest& nest);

class Printer {
 public:
  Printer(const Target& target, const Program& program, const Nest& nest, const Signature& signature);
  std::string run(const std::string& symbol);
  const Shape& shape() const { return shape_; }

 private:
  struct Val {
    std::string text;
    DType dtype = DType::F32;
    bool vec = false;
    const LoopOp* constant = nullptr;
  };
  struct Symbol {
    std::string text;
    bool vec = false;  // differs between lanes
  };
  void line(const std::string& s) { body_ += std::string(static_cast<size_t>(indent_) * 2, ' ') + s + "\n"; }
  std::string fresh(const std::string& name);

  // printer.cpp
  void print_stages();
  void print_stage(const loop::Stage& stage);
  void print_axes(const loop::Stage& stage, size_t k);
  void print_ops(const loop::Stage& stage);
  void open_reductions(const loop::Stage& stage);
  void update_reduction(const LoopOp& op);
  void print_scan(const LoopOp& op);
  void close_reductions(const loop::Stage& stage);
  void reduce_nothing(const LoopOp& op);
  std::string grain();

  // index.cpp
  bool varies(Expr e) const;
  std::optional<int64_t> step(Expr e) const;
  std::string index(Expr e, bool of_lane = false) const;
  std::string each(Expr e) const;          // a function of the lane's number
  std::string lane_numbers(Expr e) const;  // int64_t of each lane

  // ops.cpp
  void print_op(const LoopOp& op);
  void print_load(const LoopOp& op);
  void print_store(const LoopOp& op);
  void set(const LoopOp& op, const std::string& text, bool vec);
  std::string cast(const Val& v, DType to) const;
  std::string arithmetic(const LoopOp& op, const std::array<Val, 3>& v) const;
  std::string float_op(const LoopOp& op, const std::string& x, const std::string& y, const Val& right) const;
  std::string integer_op(const LoopOp& op, const std::string& x, const std::string& y) const;

  const Target& target_;
  const Program& program_;
  const Nest& nest_;
  const Signature& signature_;
  sym::ExprArena& arena_;
  Shape shape_;
  std::string body_;
  int indent_ = 1;
  std::unordered_map<std::string, int> taken_;
  std::unordered_map<uint32_t, std::string> buffers_;
  std::unordered_map<uint32_t, Symbol> symbols_;
  std::vector<Val> values_;
  std::optional<Expr> vector_;  // the variable that the lanes count
  std::string lanes_ = "Lanes<1>()";
  const loop::Stage* stage_ = nullptr;
  std::unordered_map<const LoopOp*, std::string> accumulators_;
};

// Names of dtypes in registers and in memory.
std::string register_type(DType dtype);
std::string memory_type(DType dtype);
std::string literal(int64_t value);

}  // namespace braze::codegen::cpp
