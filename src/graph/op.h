// Operators, and what the rows of graph/ops.def say about each.
#pragma once
#include <cstdint>
#include <string_view>

#include "graph/types.h"

namespace braze::graph {

enum class Op : uint16_t {
#define BRAZE_OP(name, aten, cls, result, accepts, cost, raises, traits) name,
#include "graph/ops.def"
#undef BRAZE_OP
  Extern,  // any operator without a row: runs through PyTorch's dispatcher
};

// What lowering does with it.
enum class OpClass : uint8_t {
  Pointwise,
  Reduction,
  View,
  Index,
  Factory,
  Random,
  Matmul,
  Conv,
  Attention,
  Decompose,
  Extern
};

// How the types of its results follow from its arguments: by which function of graph/shape_rules.h.
enum class TypeFamily : uint8_t {
  None,
  Pointwise,
  Reduction,
  Scan,
  View,
  Index,
  Factory,
  Matmul,
  Conv,
  Attention,
  Norm
};
// The dtype of a pointwise result or of a reduction.
enum class ResultDType : uint8_t {
  Own,      // the operator has a rule of its own
  Promote,  // of the operands
  Float,    // of the operands, or the default dtype where that is no float
  Bool,
  First,  // the first operand's, which all others share
  Total,  // a dtype argument, else the operand's, I64 for integers
  Truth,  // Bool, U8 for U8
  Index   // I64
};
struct ResultRule {
  TypeFamily family = TypeFamily::None;
  ResultDType dtype = ResultDType::Own;
  uint8_t operands = 0;           // pointwise: tensors and numbers, from the first argument on
  bool reversed = false;          // pointwise: TensorIterator sees the last operand first
  uint8_t dims = 0, keepdim = 0;  // reductions: positions of arguments; 0: none
  constexpr ResultRule swapped() const { return {family, dtype, operands, true}; }
};

enum class Accepts : uint8_t { AnyDType, NoBool, NoBoolOperand, Floats, Integers, IntegersOrBool };

// Of computing it again in each reader: nothing; no more than a load; more than a load; a pass over memory or a call.
enum class Cost : uint8_t { Free, Cheap, Expensive, Dear };

// On a CPU, for some values of its operands.
enum class Raises : uint8_t { Never, ZeroDivisor /* of integers */, Values };

enum OpTrait : uint8_t {
  kNoTrait = 0,
  kCommutative = 1,
  kEffect = 2,  // neither moved nor dropped
  kNondeterministic = 4,
  kMultiOutput = 8,
  kComparison = 16,  // of two tensors
  kTypesAlone = 32,  // its tensor operands lend it their types, not their elements
  kOutVariant = 64,  // PyTorch has an out-variant that takes operands of any strides
  kNotEmpty = 128,   // eager raises where there is no element to choose from
};

struct OpRow {
  std::string_view name;  // the ATen name with overload, e.g. "aten::add.Tensor"; "extern"
  OpClass cls;
  ResultRule result;
  Accepts accepts;
  Cost cost;
  Raises raises;
  uint8_t traits;
};

// Op::Extern, too, has a row: a call of which nothing is known.
const OpRow& op_row(Op);
inline OpClass op_class(Op op) { return op_row(op).cls; }
inline uint8_t op_traits(Op op) { return op_row(op).traits; }
inline std::string_view op_name(Op op) { return op_row(op).name; }
Op op_from_name(std::string_view aten_name);  // Op::Extern when there is no row

// Whether the operator moves elements without arithmetic on them, or is one of the few which eager computes of floats
// of a byte on every device: then it is computed here on these, too; else it stays a call, which computes or raises as
// eager does.
bool takes_float8(Op op);
// Whether a result of that dtype is computed here; of NoBoolOperand, the operands' dtypes are asked one by one, too.
bool accepts(Op op, DType dtype);

}  // namespace braze::graph
