// Facts about nests and items that the scheduler and the code generators share.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "loop/loop.h"

namespace braze::loop {

// Of several points of its stage: what it gives at one is not known from that point alone.
constexpr bool accumulates(OpCode code) { return code == OpCode::Reduce || code == OpCode::Scan; }

struct Access {
  BufferId buffer;
  uint32_t stage = 0, op = 0;  // position in the nest
  Expr index;
  bool write = false, atomic = false;
};

// Loads and stores in program order.
std::vector<Access> accesses(const Nest& nest);

// Buffers that an item reads and writes, each once, in order of appearance. An atomic store reads and writes.
struct Effects {
  std::vector<BufferId> reads, writes;
};
Effects effects(const Item& item);
bool contains(const std::vector<BufferId>& buffers, BufferId b);
bool have_common(const std::vector<BufferId>& some, const std::vector<BufferId>& others);

// Whether the caller may have chosen the buffer's memory, which then begins at any multiple of an element: an input, or
// what is written back to one. Other memory is allocated for the program, at multiples of 64 bytes.
bool of_caller(const Program& program, BufferId buffer);

// The device that a nest runs on: where it stores. nullopt: it stores nothing.
std::optional<Device> device_of(const Program& program, const Nest& nest);

bool divides_integers(const LoopOp& op);
// Whether a kernel asks, where this op runs, if the data is as it must be.
bool may_fault(const LoopOp& op);
bool may_fault(const Nest& nest);

// The items each item must follow: RAW, WAR and WAW through buffers, definitions of unbacked symbols, the order of
// operators with effects, and what may find a fault before what commits. Ascending, each once.
std::vector<std::vector<uint32_t>> dependencies(const Program& program);

// The nest's text with buffers renumbered by first appearance, and what generated code depends on: their dtypes and the
// mapping. Two nests with equal keys can share one kernel, whose pointer arguments are `buffers` in that order. Local
// buffers also show their sizes.
std::string key(const Program& program, const Nest& nest, std::vector<BufferId>* buffers = nullptr);
uint64_t hash(const Program& program, const Nest& nest);

// The stages' op that defines `value`; nullptr where none does.
const LoopOp* op_of(const Nest& nest, ValId value);
// What it gives.
std::optional<DType> dtype_of(const Nest& nest, ValId value);

// Whether the index has an Indirect symbol: it is known only where the stage has read what binds it.
bool is_indirect(const sym::ExprArena& arena, Expr index);

inline int arity(OpCode code) { return op_row(code).arity; }
inline bool is_comparison(OpCode c) { return c >= OpCode::Eq && c <= OpCode::Ge; }
inline int cost(OpCode code) { return op_row(code).cost; }

// Calls f on every expression of the program (sizes, strides, offsets, extents, indices, arguments).
void for_each_expr(const Program& program, const std::function<void(Expr)>& f);
void for_each_expr(const Item& item, const std::function<void(Expr)>& f);
void for_each_expr(const View& view, const std::function<void(Expr)>& f);
void for_each_expr(const Nest& nest, const std::function<void(Expr)>& f);

}  // namespace braze::loop
