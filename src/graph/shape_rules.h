// What the shape functions of the op families share. Internal to graph/.
#pragma once
#include <optional>
#include <vector>

#include "graph/shape.h"

namespace braze::graph {

using Sizes = std::vector<Expr>;
using Types = std::optional<std::vector<TensorType>>;

// One call: its arguments by position, read with the kind that the schema says. Every reader answers "absent" (nullopt,
// nullptr) rather than throwing, and the family then answers nullopt.
struct Call {
  Op op;
  const std::vector<Arg>& args;
  const ShapeContext& context;

  sym::ExprArena& arena() const { return context.arena; }
  size_t size() const { return args.size(); }
  const TensorType* tensor(size_t i) const {
    if (i >= args.size()) return nullptr;
    auto* v = std::get_if<ValueId>(&args[i]);
    return v && v->valid() ? context.operand(*v).type : nullptr;
  }
  bool wrapped(size_t i) const {
    auto* v = i < args.size() ? std::get_if<ValueId>(&args[i]) : nullptr;
    return v && v->valid() && context.operand(*v).wrapped_number;
  }
  bool none(size_t i) const { return i >= args.size() || std::holds_alternative<NoneArg>(args[i]); }
  bool is_scalar(size_t i) const {
    return i < args.size() && (std::holds_alternative<bool>(args[i]) || std::holds_alternative<Expr>(args[i]) ||
                               std::holds_alternative<double>(args[i]));
  }
  template <class T>
  const T* get(size_t i) const {
    return i < args.size() ? std::get_if<T>(&args[i]) : nullptr;
  }
  std::optional<int64_t> integer(size_t i) const {
    auto* e = get<Expr>(i);
    return e ? arena().as_const(*e) : std::nullopt;
  }
  bool flag(size_t i) const {
    auto* b = get<bool>(i);
    return b && *b;
  }
  DType dtype(size_t i, DType otherwise) const {
    auto* d = get<DType>(i);
    return d ? *d : otherwise;
  }
  // The constant dims of an int list, wrapped into [0, rank); nullopt for one out of range or twice.
  std::optional<std::vector<size_t>> dims(size_t i, size_t rank) const;
  std::optional<size_t> dim(size_t i, size_t rank) const;
  std::optional<std::vector<int64_t>> integers(size_t i) const;  // all constant
  // The integer or integers of an argument; open ones are constants from then on.
  std::optional<std::vector<int64_t>> specialised(size_t i) const;
  std::optional<int64_t> specialised(Expr integer) const;

  TensorType fresh(const TensorType& like, DType dtype, Sizes sizes) const {  // contiguous
    TensorType t{dtype, like.device, std::move(sizes), {}, arena().constant(0)};
    t.strides = contiguous_strides(arena(), t.sizes);
    return t;
  }
  // Decided comparisons; nullopt when not provable and not to be decided by a guard.
  std::optional<bool> known(Expr condition) const;
  std::optional<bool> less(Expr a, Expr b) const;
  std::optional<bool> equal(Expr a, Expr b) const;
  // The size, the constant 1 where it is decided to be that; nullopt where it can't be. A size that only the run knows
  // is not taken for 1.
  std::optional<Expr> one_or_more(Expr size) const;
  // Where only the run knows it checks; but a size that is not known is not taken for 0 or 1.
  bool surely_equal(Expr a, Expr b) const;
  // lo <= e; checked by the run where only it knows, with an error like that of a negative size.
  bool at_least(Expr e, int64_t lo) const;
  // Of a condition that eager raises this message for where it does not hold.
  bool require(Expr condition, const sym::Failure& failure) const;
  bool same_sizes(const Sizes& a, const Sizes& b) const;
  // Whether a tensor of the sizes `part` can be expanded to `whole`.
  bool expands(const Sizes& part, const Sizes& whole) const;
  // Channels-last memory is of four dimensions, or of five: eager refuses other ranks.
  bool has_rank_of(MemoryFormatArg format, size_t rank) const {
    return (format.value != 2 || rank == 4) && (format.value != 3 || rank == 5);
  }
  // Of fresh memory; a size of data is checked where it is used.
  bool none_negative(const Sizes& sizes) const;
  // Whether a program's call is noted, which eager may refuse: what passes make is taken.
  bool recording() const { return context.refused != nullptr; }
  std::nullopt_t refuse() const {
    if (context.refused) *context.refused = true;
    return std::nullopt;
  }
};

// A result with these strides; no rule where they are not known.
inline Types with_strides(TensorType t, std::optional<Sizes> strides) {
  if (!strides) return std::nullopt;
  t.strides = std::move(*strides);
  return std::vector<TensorType>{std::move(t)};
}
inline Types one(TensorType t) {
  std::vector<TensorType> v;
  v.push_back(std::move(t));
  return v;
}

// [N, C, height, width] in another height and width (argument 1), of the memory format that the operand suggests.
Types resized_planes(const Call& call, const TensorType& t);

// Resampled planes, lines and volumes: (x, sizes of the result...), and backward (gradient, sizes of the result, sizes
// of x...). Kernels for float tensors of which no resampled size is 0.
Types resampled(const Call& call, const TensorType& t, bool backward);

std::optional<size_t> wrap_dim(int64_t dim, size_t rank);
Expr numel(sym::ExprArena& arena, const Sizes& sizes);
// c10::MemoryFormat that Tensor::suggest_memory_format answers; nullopt when not provable.
std::optional<int8_t> suggested_format(const Call& call, const TensorType& t);
// Tensor::is_contiguous(ChannelsLast), or of three dimensions, and not contiguous; nullopt when not provable.
std::optional<bool> lies_channels_last(const Call& call, TensorType t);
// Dimensions from the fastest to the slowest, as TensorIterator sorts them; nullopt when not provable.
std::optional<std::vector<size_t>> sorted_dims(sym::ExprArena& arena, const Sizes& sizes,
                                               const std::vector<const Sizes*>& strides, Decide decide = nullptr);

Types pointwise_types(const Call& call);
Types reduce_types(const Call& call);
Types scan_types(const Call& call);
Types view_types(const Call& call);
Types index_types(const Call& call);
Types matmul_types(const Call& call);
Types conv_types(const Call& call);     // and pooling
Types factory_types(const Call& call);  // and random
Types norm_types(const Call& call);     // the Decompose class
Types attention_types(const Call& call);

}  // namespace braze::graph
