#include "launch/timed_convolution.h"

#include <ATen/CPUFunctions.h>
#include <ATen/Context.h>

#include <algorithm>

#include "codegen/codegen.h"

namespace braze::launch {
namespace {

enum Way : size_t { kLibrary, kProduct, kWays };

// The operands of aten::convolution.
struct Operands {
  const at::Tensor &x, &weight;
  std::optional<at::Tensor> bias;
  std::vector<int64_t> stride, padding, dilation;
  bool transposed;
  int64_t groups;

  explicit Operands(const torch::jit::Stack& stack)
      : x(stack[0].toTensor()),
        weight(stack[1].toTensor()),
        bias(stack[2].toOptional<at::Tensor>()),
        stride(stack[3].toIntVector()),
        padding(stack[4].toIntVector()),
        dilation(stack[5].toIntVector()),
        transposed(stack[6].toBool()),
        groups(stack[8].toInt()) {}

  bool is_plane() const { return x.is_contiguous() && weight.is_contiguous(); }
  // Of a window of one element: each pixel's channels are a row.
  bool is_rows() const {
    auto all = [](const std::vector<int64_t>& list, int64_t n) {
      return std::all_of(list.begin(), list.end(), [&](int64_t v) { return v == n; });
    };
    return x.is_contiguous(at::MemoryFormat::ChannelsLast) && weight.size(2) == 1 && weight.size(3) == 1 &&
           weight.is_non_overlapping_and_dense() && all(stride, 1) && all(padding, 0);
  }

  // As products of matrices.
  bool fits() const {
    return x.dim() == 4 && weight.dim() == 4 && stride.size() == 2 && padding.size() == 2 && !transposed &&
           groups == 1 && x.scalar_type() == at::kFloat && weight.scalar_type() == at::kFloat && x.numel() > 0 &&
           weight.numel() > 0 && std::all_of(dilation.begin(), dilation.end(), [](int64_t d) { return d == 1; }) &&
           (is_plane() || is_rows());
  }

  at::Tensor multiply() const {
    if (is_plane())  // a column for each pixel of the result, with what its window sees
      return at::cpu::_slow_conv2d_forward(x, weight, {weight.size(2), weight.size(3)}, bias, stride, padding);
    const int64_t n = x.size(0), h = x.size(2), w = x.size(3), from = x.size(1), to = weight.size(0);
    const at::Tensor rows = x.permute({0, 2, 3, 1}).view({n * h * w, from});
    const at::Tensor columns = weight.view({to, from}).t();
    const at::Tensor made = bias && bias->defined() ? at::cpu::addmm(*bias, rows, columns) : at::cpu::mm(rows, columns);
    return made.view({n, h, w, to}).permute({0, 3, 1, 2});
  }

  std::vector<int64_t> shape() const {
    std::vector<int64_t> out;
    for (const at::Tensor* t : {&x, &weight}) {
      out.insert(out.end(), t->sizes().begin(), t->sizes().end());
      out.insert(out.end(), t->strides().begin(), t->strides().end());
    }
    for (const auto* list : {&stride, &padding}) out.insert(out.end(), list->begin(), list->end());
    out.push_back(bias && bias->defined());
    out.push_back(at::globalContext().userEnabledMkldnn());
    return out;
  }

  std::string text() const {
    auto sizes = [](const at::Tensor& t) {
      std::string all;
      for (int64_t n : t.sizes()) all += (all.empty() ? "" : "x") + std::to_string(n);
      return all;
    };
    return "aten::convolution " + sizes(x) + " by " + sizes(weight) + (is_plane() ? "" : " channels-last");
  }
};

}  // namespace

std::unique_ptr<TimedConvolution> TimedConvolution::make(const plan::Plan& plan, const plan::Extern& step,
                                                         const std::shared_ptr<TuningTime>& time) {
  if (!time || step.call.name != "aten::convolution" || step.call.args.empty()) return nullptr;
  auto* x = std::get_if<loop::ViewRef>(&step.call.args[0]);
  if (!x || !x->valid() || plan.buffers[step.call.views[x->index].buffer.index].device.type != DeviceType::CPU)
    return nullptr;
  return std::unique_ptr<TimedConvolution>(new TimedConvolution(time, plan.keeps_choices));
}

void TimedConvolution::run(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const Operands operands(stack);
  if (!operands.fits()) return op.callBoxed(stack);
  const std::vector<int64_t> shape = operands.shape();
  int way = ways_.known(shape);
  if (way < 0) {
    const CallWay ways[kWays] = {
        {"library",
         [&] {
           torch::jit::Stack copy = stack;
           op.callBoxed(copy);
           return true;
         }},
        {"matrix product", [&] { return operands.multiply().defined(); }},
    };
    TimedCall call;
    call.kind = codegen::Report::Kind::Convolution;
    call.what = operands.text();
    way = static_cast<int>(ways_.choose(shape, call, ways));
  }
  if (way != kProduct) return op.callBoxed(stack);
  at::Tensor made = operands.multiply();
  stack.assign(1, c10::IValue(std::move(made)));
}

}  // namespace braze::launch
