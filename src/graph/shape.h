// Shape functions: the types of an operator's results, exactly as eager PyTorch gives them (dtype, device, sizes,
// strides, offset of views), without running a kernel. One file per op family: shape_pointwise.cpp, shape_reduce.cpp,
// ...
//
// infer() answers nullopt where no rule exists, where the rule would have to guess (a symbolic size of which a needed
// fact is not provable), and where eager would raise: the caller then runs PyTorch's own Meta kernel, which guards or
// raises.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "symbolic/shape_env.h"

namespace braze::graph {

// What a shape function sees of an argument tensor.
struct Operand {
  const TensorType* type = nullptr;
  bool wrapped_number =
      false;  // a Python number that PyTorch wrapped into a 0-dim tensor: it does not promote like a tensor
};

// A non-owning reference to the function from an argument's ValueId to its Operand.
class OperandLookup {
 public:
  template <class F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, OperandLookup>)
  OperandLookup(const F& f)  // NOLINT: implicit on purpose
      : object_(&f), call_([](const void* o, ValueId v) { return (*static_cast<const F*>(o))(v); }) {}
  Operand operator()(ValueId v) const { return call_(object_, v); }

 private:
  const void* object_;
  Operand (*call_)(const void*, ValueId);
};

// Answers what is not provable of sizes.
class Decider {
 public:
  virtual ~Decider() = default;
  // nullopt: only the run knows. Otherwise the graph is good for sizes alone of which this is true.
  virtual std::optional<bool> decide(sym::Expr condition) = 0;
  // Whether a size is 1; one that is decided to be that is a constant from then on.
  virtual std::optional<bool> is_one(sym::Expr size) = 0;
  // The value of an integer, which is that constant from then on.
  virtual std::optional<int64_t> specialise(sym::Expr integer) = 0;
  // As decide(), for questions that make no difference for sizes of 0 and 1 (the order of strides).
  virtual std::optional<bool> usually(sym::Expr condition) = 0;
  // What the run is to check.
  virtual void assume(sym::Expr condition, const sym::Failure& failure) = 0;
};
using Decide = Decider*;  // nullptr: only what is provable

struct ShapeContext {
  OperandLookup operand;
  sym::ExprArena& arena;
  DType default_dtype = DType::F32;  // torch.get_default_dtype()
  Decide decide = nullptr;
  bool* refused = nullptr;  // set with an answer of nullopt where eager raises, and PyTorch's Meta kernel would not
};

// One type per tensor result, lists flattened (as Node::outputs); a result that eager leaves undefined (masked-out
// gradients) has DType::Opaque. `args`: schema order, defaults filled in. Where the schema says Tensor, an operand may
// also be a bare scalar (bool, Expr, double): it stands for a wrapped number.
std::optional<std::vector<TensorType>> infer(Op op, const std::vector<Arg>& args, const ShapeContext& context);

// PyTorch's rule for the dtype of mixed operands (tensors with dimensions, 0-dim tensors, wrapped numbers).
class Promotion {
 public:
  explicit Promotion(DType default_dtype) : default_dtype_(default_dtype) {}
  void tensor(const TensorType& type, bool wrapped_number = false);
  void scalar(const Arg& number);  // bool, Expr or double
  DType result() const;

 private:
  DType default_dtype_;
  std::optional<DType> dim_, zero_, wrapped_;
};

// Sizes of the broadcast; nullopt: they do not broadcast, or it can't be proved.
std::optional<std::vector<sym::Expr>> broadcast_sizes(sym::ExprArena& arena, const std::vector<sym::Expr>& a,
                                                      const std::vector<sym::Expr>& b, Decide decide = nullptr);
// Strides that PyTorch's TensorIterator gives a fresh result of these sizes computed from these operands;
// `with_scalar`: a wrapped number takes part, which turns off the iterator's short cut for operands of equal layout.
std::optional<std::vector<sym::Expr>> iterator_strides(sym::ExprArena& arena, const std::vector<sym::Expr>& sizes,
                                                       const std::vector<const TensorType*>& operands,
                                                       bool with_scalar = false, Decide decide = nullptr);
// Strides of empty_like / clone with torch.preserve_format.
std::optional<std::vector<sym::Expr>> preserved_strides(sym::ExprArena& arena, const TensorType& type,
                                                        Decide decide = nullptr);
// Strides under a c10::MemoryFormat number (0 contiguous, 2 channels last, 3 channels last 3d).
std::vector<sym::Expr> format_strides(sym::ExprArena& arena, const std::vector<sym::Expr>& sizes, int8_t memory_format);
bool is_non_overlapping_and_dense(sym::ExprArena& arena, const TensorType& type);  // provably

}  // namespace braze::graph
