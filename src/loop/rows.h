// Operations and reductions of loop programs, and what their rows (loop/opcodes.def, loop/reduce_kinds.def) say of
// each.
#pragma once
#include <cstddef>
#include <cstdint>

namespace braze::loop {

enum class OpCode : uint8_t {
#define BRAZE_LOOP_OP(name, arity, cost, instructions) name,
#include "loop/opcodes.def"
#undef BRAZE_LOOP_OP
};
struct OpRow {
  const char* name;
  uint8_t arity, cost, instructions;
};
inline constexpr OpRow kOpRows[] = {
#define BRAZE_LOOP_OP(name, arity, cost, instructions) {#name, arity, cost, instructions},
#include "loop/opcodes.def"
#undef BRAZE_LOOP_OP
};
constexpr const OpRow& op_row(OpCode code) { return kOpRows[static_cast<size_t>(code)]; }

enum class ReduceKind : uint8_t {
#define BRAZE_REDUCE(name, text, family, start, alone) name,
#include "loop/reduce_kinds.def"
#undef BRAZE_REDUCE
};
enum class ReduceFamily : uint8_t { Fold, Choice, Index, Moment, Exponent };
enum class ReduceStart : uint8_t { Zero, One, Lowest, Highest };  // of its operand's dtype: -inf, inf for floats
// Of one element: it, 0, or 0 or 1 that is NaN where the element is not finite, as eager has it.
enum class ReduceAlone : uint8_t { Itself, Zero, Deviation, Unit };
struct ReduceRow {
  const char* name;
  ReduceFamily family;
  ReduceStart start;
  ReduceAlone alone;
};
inline constexpr ReduceRow kReduceRows[] = {
#define BRAZE_REDUCE(name, text, family, start, alone) \
  {text, ReduceFamily::family, ReduceStart::start, ReduceAlone::alone},
#include "loop/reduce_kinds.def"
#undef BRAZE_REDUCE
};
constexpr const ReduceRow& reduce_row(ReduceKind kind) { return kReduceRows[static_cast<size_t>(kind)]; }
constexpr bool is_choice(ReduceKind kind) { return reduce_row(kind).family == ReduceFamily::Choice; }
constexpr bool is_index(ReduceKind kind) { return reduce_row(kind).family == ReduceFamily::Index; }
constexpr bool is_moment(ReduceKind kind) { return reduce_row(kind).family == ReduceFamily::Moment; }
constexpr bool is_exponent(ReduceKind kind) { return reduce_row(kind).family == ReduceFamily::Exponent; }

}  // namespace braze::loop
