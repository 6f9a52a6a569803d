#include "trace/trial.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "base/check.h"
#include "base/fork_mutex.h"
#include "graph/shape.h"
#include "trace/convert.h"
#include "trace/schema.h"
#include "trace/symnode.h"

namespace braze::trace {
namespace {

using graph::Arg;
using graph::Op;
using graph::ValueId;

// The operator without its effect, where it is pointwise and takes the same arguments: aten::add.Tensor of
// aten::add_.Tensor. Op::Extern: there is none.
Op functional_form(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  const std::string& name = schema.name();
  if (name.size() < 2 || name.back() != '_' || name[name.size() - 2] == '_' || schema.returns().size() != 1)
    return Op::Extern;
  auto functional = c10::Dispatcher::singleton().findSchema({name.substr(0, name.size() - 1), schema.overload_name()});
  if (!functional) return Op::Extern;
  const auto& ours = schema.arguments();
  const auto& theirs = functional->schema().arguments();
  if (ours.size() != theirs.size()) return Op::Extern;
  for (size_t i = 0; i < ours.size(); ++i) {
    bool written = is_written(ours[i]);
    if (written != (i == 0) || ours[i].name() != theirs[i].name() || *ours[i].real_type() != *theirs[i].real_type())
      return Op::Extern;
  }
  Op form = op_info(*functional).op;
  return form != Op::Extern && graph::op_class(form) == graph::OpClass::Pointwise ? form : Op::Extern;
}

Op functional_form(const c10::OperatorHandle& op, const OpInfo& info) {
  static auto& mutex = *new ForkMutex;
  static auto* known = new std::unordered_map<std::string, Op>;
  {
    std::lock_guard lock(mutex);
    if (auto it = known->find(info.name); it != known->end()) return it->second;
  }
  Op form = functional_form(op);  // takes op_info()'s mutex: one of them at a time, as a fork takes both
  std::lock_guard lock(mutex);
  known->emplace(info.name, form);
  return form;
}

// Every element has an address of its own, as eager demands of what is written: sizes and strides that could have been
// made by permuting and stepping through dense memory.
bool elements_are_apart(sym::ExprArena& arena, const TensorType& type) {
  if (graph::is_non_overlapping_and_dense(arena, type)) return true;
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride, size
  for (size_t d = 0; d < type.dim(); ++d) {
    auto size = arena.as_const(type.sizes[d]), stride = arena.as_const(type.strides[d]);
    if (!size || !stride) return false;
    if (*size > 1) dims.emplace_back(*stride, *size);
  }
  std::sort(dims.begin(), dims.end());
  int64_t reached = 0;  // the farthest element of the dimensions so far
  for (auto [stride, size] : dims) {
    if (stride <= reached) return false;
    reached += stride * (size - 1);
  }
  return true;
}

// An expanded dimension: what eager is certain to find. A size that is no constant may be more than one.
bool has_repeated_elements(sym::ExprArena& arena, const TensorType& type) {
  for (size_t d = 0; d < type.dim(); ++d)
    if (auto size = arena.as_const(type.sizes[d]); (!size || *size > 1) && arena.is_const(type.strides[d], 0))
      return true;
  return false;
}

}  // namespace

Trial try_in_place(Recorder& recorder, const c10::OperatorHandle& op, const OpInfo& info, const c10::IValue* args) {
  Op form = functional_form(op, info);
  if (form == Op::Extern) return Trial::Unknown;
  sym::ExprArena& arena = recorder.arena();
  std::vector<TensorType> types;
  std::vector<bool> wrapped;
  std::vector<Arg> converted;
  for (size_t i = 0; i < info.args.size(); ++i) {
    const c10::IValue& value = args[i];
    switch (info.args[i]) {
      case ArgKind::Tensor: {
        if (value.isNone() || !value.toTensor().defined()) {
          converted.emplace_back(graph::NoneArg{});
          break;
        }
        const at::Tensor& t = value.toTensor();
        if (!t.is_meta() || t.layout() != c10::kStrided || !dtype_of(t.scalar_type())) return Trial::Unknown;
        types.push_back(type_of(arena, t));
        wrapped.push_back(t.unsafeGetTensorImpl()->is_wrapped_number());
        converted.emplace_back(ValueId(types.size() - 1));
        break;
      }
      case ArgKind::Scalar:
      case ArgKind::Int:
      case ArgKind::Float:
      case ArgKind::Bool:
        if (value.isNone())
          converted.emplace_back(graph::NoneArg{});
        else if (value.isBool())
          converted.emplace_back(value.toBool());
        else if (value.isDouble())
          converted.emplace_back(value.toDouble());
        else if (value.isInt())
          converted.emplace_back(arena.constant(value.toInt()));
        else
          return Trial::Unknown;
        break;
      default:
        if (!value.isNone()) return Trial::Unknown;
        converted.emplace_back(graph::NoneArg{});
    }
  }
  auto* self = converted.empty() ? nullptr : std::get_if<ValueId>(&converted[0]);
  if (!self) return Trial::Unknown;
  const TensorType& into = types[self->index];
  if (has_repeated_elements(arena, into)) return Trial::Refused;
  // Eager's error: not all of PyTorch's versions look at this in their Meta kernels.
  auto check_cast = [&](DType of) {
    const at::ScalarType from = scalar_type(of), to = scalar_type(into.dtype);
    TORCH_CHECK(c10::canCast(from, to), "result type ", from, " can't be cast to the desired output type ", to);
  };
  const bool arithmetic =
      form == Op::add_Tensor || form == Op::sub_Tensor || form == Op::mul_Tensor || form == Op::div_Tensor;
  for (const TensorType& t : types)
    if (arithmetic && is_complex(t.dtype)) check_cast(t.dtype);
  auto lookup = [&](ValueId v) { return graph::Operand{&types[v.index], wrapped[v.index]}; };
  graph::ShapeContext context{graph::OperandLookup(lookup), arena, *dtype_of(c10::get_default_dtype_as_scalartype())};
  auto result = graph::infer(form, converted, context);
  if (result && result->size() == 1) check_cast((*result)[0].dtype);
  if (!result || result->size() != 1 || !elements_are_apart(arena, into)) return Trial::Unknown;
  return (*result)[0].sizes == into.sizes ? Trial::Succeeds : Trial::Unknown;
}

bool with_shown_sizes(const c10::OperatorHandle& op, const OpInfo& info, c10::IValue* args) {
  const auto& formals = op.schema().arguments();
  if (formals.empty() || !is_written(formals[0]) || !args[0].isTensor() || op.hasTag(at::Tag::inplace_view))
    return false;
  const at::Tensor& self = args[0].toTensor();
  if (!self.is_meta() || self.layout() != c10::kStrided || !self.unsafeGetTensorImpl()->has_symbolic_sizes_strides() ||
      op.schema().returns().size() != 1)
    return false;
  for (size_t i = 1; i < info.args.size(); ++i)
    if (args[i].isTensor() || args[i].isList() || args[i].isSymInt() || is_written(formals[i])) return false;
  std::vector<int64_t> sizes, strides;
  for (int64_t d = 0; d < self.dim(); ++d) {
    auto size = hint_of(self.sym_size(d)), stride = hint_of(self.sym_stride(d));
    if (!size || !stride) return false;
    sizes.push_back(*size);
    strides.push_back(*stride);
  }
  args[0] = at::detail::empty_strided_meta(sizes, strides, self.scalar_type());
  return true;
}

}  // namespace braze::trace
