// Values that the program's own constants decide: computed beside the graph, so that code which asks for them gets
// numbers.
#include <ATen/core/enum_tag.h>

#include "base/check.h"
#include "trace/below_tracing.h"
#include "trace/convert.h"
#include "trace/recorder.h"

namespace braze::trace {
namespace {

bool is_factory_of_constants(const std::string& name) {
  for (const char* factory : {"aten::full", "aten::scalar_tensor", "aten::ones", "aten::zeros", "aten::arange",
                              "aten::arange.start", "aten::arange.start_step"})
    if (name == factory) return true;
  return false;
}

}  // namespace

// The arguments of a call with what is known in place of fakes; nullopt where one is not.
std::optional<torch::jit::Stack> Recorder::known_operands(const c10::OperatorHandle& op, const OpInfo& info,
                                                          const torch::jit::Stack& stack) const {
  if (known_.empty() && info.op == graph::Op::Extern) return std::nullopt;
  auto args = torch::jit::last(stack, info.args.size());
  bool any = false;
  auto value_of = [&](const at::Tensor& t) -> const at::Tensor* {
    if (!t.defined()) return &t;
    any = true;
    if (auto* fake = as_fake(t))
      return fake->value().valid() && fake->recorder().get() == this && !lazy_bits(t).any() ? known(fake->value())
                                                                                            : nullptr;
    return t.unsafeGetTensorImpl()->is_wrapped_number() && !wrapped_symbol(t) ? &t : nullptr;
  };
  for (size_t i = 0; i < args.size(); ++i) {  // most calls end here
    if (info.args[i] == ArgKind::Tensor && args[i].isTensor() && !value_of(args[i].toTensor())) return std::nullopt;
    if (args[i].isSymInt() || args[i].isSymIntList() || info.args[i] == ArgKind::TensorList ||
        info.args[i] == ArgKind::Generator) {
      bool list = info.args[i] == ArgKind::TensorList && args[i].isTensorList();
      if (!args[i].isNone() && !list) return std::nullopt;
    }
    if (args[i].isDevice() && !args[i].toDevice().is_cpu()) return std::nullopt;
  }
  if (!any && !is_factory_of_constants(info.name)) return std::nullopt;
  if (op.hasTag(at::Tag::nondeterministic_seeded) || info.treatment == Treatment::Writes || op.schema().is_mutable())
    return std::nullopt;
  torch::jit::Stack out;
  for (size_t i = 0; i < args.size(); ++i) {
    if (info.args[i] == ArgKind::Tensor && args[i].isTensor()) {
      out.emplace_back(*value_of(args[i].toTensor()));
    } else if (info.args[i] == ArgKind::TensorList && args[i].isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& t : args[i].toTensorVector()) {
        const at::Tensor* v = value_of(t);
        if (!v) return std::nullopt;
        list.push_back(*v);
      }
      out.emplace_back(std::move(list));
    } else {
      out.push_back(args[i]);
    }
  }
  return out;
}

// Keeps the result of a call, a fake by now, if it is one small tensor.
void Recorder::compute_known(const c10::OperatorHandle& op, torch::jit::Stack operands,
                             const torch::jit::Stack& results) {
  if (op.schema().returns().size() != 1 || !results.back().isTensor()) return;
  const at::Tensor& result = results.back().toTensor();
  auto* fake = result.defined() ? as_fake(result) : nullptr;
  if (!fake || lazy_bits(result).any() || !fake->value().valid() || fake->has_symbolic_sizes_strides() ||
      !is_small(result))
    return;
  BelowTracing below;
  op.callBoxed(operands);
  known_.emplace(fake->value().index, operands.back().toTensor());
}

}  // namespace braze::trace
