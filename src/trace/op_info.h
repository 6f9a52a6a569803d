// What the recorder needs to know about one operator, worked out once from its schema.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>

#include <string>
#include <vector>

#include "graph/graph.h"

namespace braze::trace {

enum class ArgKind : uint8_t {
  Tensor,
  TensorList,
  Int,
  IntList,
  Float,
  FloatList,
  Bool,
  BoolList,
  String,
  ScalarType,
  Layout,
  MemoryFormat,
  Device,
  Scalar,
  Generator,
  Other,
};

// What the recorder does with a call besides noting it.
enum class Treatment : uint8_t {
  Record,
  Same,            // the result is the operand's value: detach, alias, lift
  Conjugates,      // the operand's memory, seen as its conjugate
  Negates,         // the operand's memory, seen as its negative
  Literal,         // a tensor written in the program: fresh memory at every call
  ReadsValue,      // a Python number would be needed
  DynamicOutput,   // the result's size depends on data
  MaskedIndex,     // DynamicOutput when indexed by a mask
  NormInTraining,  // writes running statistics without saying so in its schema
  AsStrided,       // addresses its operand's storage
  Ignore,          // a check without results
  Writes,          // in-place and out= forms, which functionalisation should have removed
};

struct OpInfo {
  graph::Op op = graph::Op::Extern;
  std::string name;  // with overload
  std::vector<ArgKind> args;
  std::vector<bool> tensor_results;  // per return: a tensor or list of tensors
  std::vector<bool> list_results;
  Treatment treatment = Treatment::Record;
  size_t tensor_lists = 0;   // how many returns are lists of tensors
  bool only_tensors = true;  // no other results
};

// Cached by operator. Thread-safe.
const OpInfo& op_info(const c10::OperatorHandle& op);
// The library that defined it is gone: another may define the name anew.
void forget_op_info(const c10::OperatorHandle& op);

}  // namespace braze::trace
