// Matrix products into planned memory, past the dispatcher.
#include <ATen/CPUFunctions.h>

#include "trace/extern.h"

namespace braze::trace {
namespace {

class MatmulCall : public ExternCall {
 public:
  enum class Kind : uint8_t { Mm, Bmm, Addmm, Baddbmm };

  MatmulCall(const runtime::Program& program, const loop::ExternCall& call, Kind kind, at::Scalar beta, at::Scalar alpha,
             std::vector<uint32_t> operands)
      : kind_(kind), beta_(beta), alpha_(alpha), out_(program, call.outputs[0]) {
    for (uint32_t v : operands) views_.emplace_back(program, call.views[v]);
  }

  void run(runtime::Frame& frame, TorchFrame& call, CallFrame& state) const override {
    state.views.resize(views_.size());
    state.outputs.resize(1);
    auto in = [&](size_t i) -> const at::Tensor& { return state.views[i].get(views_[i], frame, call); };
    at::Tensor out = state.outputs[0].get(out_, frame, call);
    switch (kind_) {
      case Kind::Mm: at::cpu::mm_out(out, in(0), in(1)); break;
      case Kind::Bmm: at::cpu::bmm_out(out, in(0), in(1)); break;
      case Kind::Addmm: at::cpu::addmm_out(out, in(0), in(1), in(2), beta_, alpha_); break;
      case Kind::Baddbmm: at::cpu::baddbmm_out(out, in(0), in(1), in(2), beta_, alpha_); break;
    }
  }

 private:
  Kind kind_;
  at::Scalar beta_, alpha_;
  std::vector<ViewSpec> views_;
  ViewSpec out_;
};

std::optional<at::Scalar> scalar(const runtime::Program& program, const loop::ExternArg& a) {
  if (auto* d = std::get_if<double>(&a)) return at::Scalar(*d);
  if (auto* b = std::get_if<bool>(&a)) return at::Scalar(*b);
  if (auto* e = std::get_if<sym::Expr>(&a))
    if (auto value = program.plan().arena->as_const(*e)) return at::Scalar(*value);
  return std::nullopt;
}

}  // namespace

std::unique_ptr<ExternCall> make_matmul_call(const runtime::Program& program, const plan::Extern& step) {
  const loop::ExternCall& call = step.call;
  if (!call.preallocated || call.outputs.size() != 1 || !call.outputs[0].buffer.valid()) return nullptr;
  MatmulCall::Kind kind;
  size_t tensors;
  if (call.name == "aten::mm") kind = MatmulCall::Kind::Mm, tensors = 2;
  else if (call.name == "aten::bmm") kind = MatmulCall::Kind::Bmm, tensors = 2;
  else if (call.name == "aten::addmm") kind = MatmulCall::Kind::Addmm, tensors = 3;
  else if (call.name == "aten::baddbmm") kind = MatmulCall::Kind::Baddbmm, tensors = 3;
  else return nullptr;
  if (call.args.size() < tensors) return nullptr;
  std::vector<uint32_t> operands;
  for (size_t i = 0; i < tensors; ++i) {
    auto* v = std::get_if<loop::ViewRef>(&call.args[i]);
    if (!v || !v->valid() || program.plan().buffers[call.views[v->index].buffer.index].device.type != DeviceType::CPU) return nullptr;
    operands.push_back(v->index);
  }
  at::Scalar beta = 1, alpha = 1;
  for (size_t i = tensors; i < call.args.size(); ++i) {
    auto value = scalar(program, call.args[i]);
    if (!value || i >= tensors + 2) return nullptr;
    (i == tensors ? beta : alpha) = *value;
  }
  return std::make_unique<MatmulCall>(program, call, kind, beta, alpha, std::move(operands));
}

}  // namespace braze::trace
