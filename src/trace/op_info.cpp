#include "trace/op_info.h"

#include <ATen/core/enum_tag.h>
#include <ATen/core/jit_type.h>

#include <memory>
#include <mutex>
#include <unordered_map>

#include "base/fork_mutex.h"

namespace braze::trace {
namespace {

using c10::TypeKind;

ArgKind kind_of(const c10::Type& type) {
  switch (type.kind()) {
    case TypeKind::OptionalType: return kind_of(*type.expectRef<c10::OptionalType>().getElementType());
    case TypeKind::TensorType: return ArgKind::Tensor;
    case TypeKind::IntType:
    case TypeKind::SymIntType: return ArgKind::Int;
    case TypeKind::FloatType: return ArgKind::Float;
    case TypeKind::BoolType: return ArgKind::Bool;
    case TypeKind::StringType: return ArgKind::String;
    case TypeKind::NumberType: return ArgKind::Scalar;
    case TypeKind::ScalarTypeType: return ArgKind::ScalarType;
    case TypeKind::LayoutType: return ArgKind::Layout;
    case TypeKind::MemoryFormatType: return ArgKind::MemoryFormat;
    case TypeKind::DeviceObjType: return ArgKind::Device;
    case TypeKind::GeneratorType: return ArgKind::Generator;
    case TypeKind::ListType:
      switch (kind_of(*type.expectRef<c10::ListType>().getElementType())) {
        case ArgKind::Tensor: return ArgKind::TensorList;
        case ArgKind::Int: return ArgKind::IntList;
        case ArgKind::Float: return ArgKind::FloatList;
        case ArgKind::Bool: return ArgKind::BoolList;
        default: return ArgKind::Other;
      }
    default: return ArgKind::Other;
  }
}

Treatment treatment_of(const c10::OperatorHandle& op, const std::string& name) {
  // The normalisations that update running statistics although their schemas do not say that they write.
  static const char* const norms[] = {"aten::native_batch_norm", "aten::cudnn_batch_norm", "aten::miopen_batch_norm"};
  for (const char* norm : norms)
    if (name == norm) return Treatment::NormInTraining;
  if (name == "aten::detach" || name == "aten::alias" || name == "aten::lift") return Treatment::Same;
  if (name == "aten::_conj") return Treatment::Conjugates;
  if (name == "aten::_neg_view") return Treatment::Negates;
  if (name == "aten::lift_fresh") return Treatment::Literal;
  if (name == "aten::as_strided") return Treatment::AsStrided;
  if (name == "aten::index.Tensor") return Treatment::MaskedIndex;
  if (name == "aten::mkldnn_rnn_layer")
    return Treatment::DynamicOutput;  // its Meta kernel does not know the workspace's size
  if (name == "aten::_assert_tensor_metadata") return Treatment::Ignore;
  if (op.hasTag(at::Tag::data_dependent_output)) return Treatment::ReadsValue;
  if (op.hasTag(at::Tag::dynamic_output_shape)) return Treatment::DynamicOutput;
  if (op.schema().is_mutable()) return Treatment::Writes;
  return Treatment::Record;
}

std::unique_ptr<OpInfo> describe(const c10::OperatorHandle& op) {
  auto info = std::make_unique<OpInfo>();
  const auto& schema = op.schema();
  info->name = schema.name();
  if (!schema.overload_name().empty()) info->name += "." + schema.overload_name();
  info->op = graph::op_from_name(info->name);
  for (const auto& arg : schema.arguments()) info->args.push_back(kind_of(*arg.real_type()));
  for (const auto& result : schema.returns()) {
    ArgKind kind = kind_of(*result.real_type());
    info->tensor_results.push_back(kind == ArgKind::Tensor || kind == ArgKind::TensorList);
    info->list_results.push_back(kind == ArgKind::TensorList);
    info->tensor_lists += kind == ArgKind::TensorList;
    info->only_tensors &= info->tensor_results.back();
  }
  info->treatment = treatment_of(op, info->name);
  return info;
}

}  // namespace

static ForkMutex& cache_mutex() {
  static auto& mutex = *new ForkMutex;
  return mutex;
}

static auto& cache() {
  static auto* all = new std::unordered_map<const c10::FunctionSchema*, std::unique_ptr<OpInfo>>();
  return *all;
}

const OpInfo& op_info(const c10::OperatorHandle& op) {
  std::lock_guard lock(cache_mutex());
  auto& entry = cache()[&op.schema()];
  if (!entry) entry = describe(op);
  return *entry;
}

void forget_op_info(const c10::OperatorHandle& op) {
  static auto* gone = new std::vector<std::unique_ptr<OpInfo>>();  // a capture under way may still use them
  std::lock_guard lock(cache_mutex());
  auto it = cache().find(&op.schema());
  if (it == cache().end()) return;
  gone->push_back(std::move(it->second));
  cache().erase(it);
}

}  // namespace braze::trace
