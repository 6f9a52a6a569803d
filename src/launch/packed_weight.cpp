#include "launch/packed_weight.h"

#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include "base/check.h"
#include "graph/packed_weight.h"
#include "launch/launch.h"

namespace braze::launch {
namespace {

constexpr size_t kInput = 0, kWeight = graph::kPackedWeight;
constexpr size_t kGeometry = 3, kGeometryArguments = 4;  // padding, stride, dilation, groups
constexpr const char* kReorderConvolution = "mkldnn::_reorder_convolution_weight";
constexpr const char* kReorderLinear = "mkldnn::_reorder_linear_weight";

std::optional<c10::OperatorHandle> find(std::string_view name) {
  return c10::Dispatcher::singleton().findSchema({std::string(name), ""});
}

}  // namespace

bool packs_weights() {
  static const bool all = at::globalContext().hasMKLDNN() && find(graph::packed_convolution()) &&
                          find(graph::packed_linear()) && find(kReorderConvolution) && find(kReorderLinear);
  return all && at::globalContext().userEnabledMkldnn();
}

std::unique_ptr<PackedWeight> PackedWeight::make(const runtime::Program& program, const plan::Extern& step,
                                                 const std::vector<bool>& frozen) {
  const bool convolution = step.call.name == graph::packed_convolution();
  if ((!convolution && step.call.name != graph::packed_linear()) || step.call.args.size() <= kWeight) return nullptr;
  auto* view = std::get_if<loop::ViewRef>(&step.call.args[kWeight]);
  if (!view || !view->valid()) return nullptr;
  const plan::Buffer& buffer = program.plan().buffers[step.call.views[view->index].buffer.index];
  if (buffer.where != plan::Where::Input || buffer.index >= frozen.size() || !frozen[buffer.index]) return nullptr;
  return std::unique_ptr<PackedWeight>(new PackedWeight(convolution));
}

void PackedWeight::replace(std::vector<c10::IValue>& arguments) {
  std::lock_guard lock(mutex_);
  if (!kept_) {
    const void* from = arguments[kWeight].toTensor().const_data_ptr();
    if (!packed_.defined() || from_ != from) packed_ = pack(arguments);
    from_ = from;
  }
  arguments[kWeight] = packed_;
}

void PackedWeight::forget() {
  std::lock_guard lock(mutex_);
  packed_ = at::Tensor();
  kept_ = false;
}

void PackedWeight::keep() {
  std::lock_guard lock(mutex_);
  kept_ = packed_.defined();
}

at::Tensor PackedWeight::pack(const std::vector<c10::IValue>& arguments) const {
  const at::Tensor& x = arguments[kInput].toTensor();
  const at::Tensor weight = arguments[kWeight].toTensor().contiguous();
  torch::jit::Stack stack{weight};
  if (convolution_) {
    stack.insert(stack.end(), arguments.begin() + kGeometry, arguments.begin() + kGeometry + kGeometryArguments);
    stack.emplace_back(x.sizes());
  } else {
    stack.emplace_back(x.size(0));
  }
  find(convolution_ ? kReorderConvolution : kReorderLinear)->callBoxed(stack);
  BRAZE_CHECK(stack.size() == 1 && stack[0].isTensor(), "a packed weight is a tensor");
  return stack[0].toTensor();
}

}  // namespace braze::launch
