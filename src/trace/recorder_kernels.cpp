// How calls of PyTorch's operators come to a recorder: one kernel for all of them, on a dispatch key of our own.
#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/SavedTensorHooks.h>
#include <c10/core/AutogradState.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <algorithm>

#include "base/background.h"
#include "base/check.h"
#include "trace/graph_break.h"
#include "trace/pytorch/front_kernels.h"
#include "trace/recorder.h"
#include "trace/trial.h"

namespace braze::trace {

namespace {

thread_local Recorder* current_recorder = nullptr;

// The operands of a call: whose fakes they are, and whether plain meta tensors and numbers are among them.
struct Operands {
  Recorder* recorder = nullptr;
  bool meta = false, real = false, number = false;

  void see(const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    if (auto* fake = as_fake(tensor))
      recorder = fake->recorder().get();
    else if (tensor.is_meta())
      meta = true;
    else
      (tensor.unsafeGetTensorImpl()->is_wrapped_number() ? number : real) = true;
  }
};

Operands look_at(const OpInfo& info, const c10::IValue* args) {
  Operands operands;
  for (size_t i = 0; i < info.args.size(); ++i) {
    const c10::IValue& value = args[i];
    if (info.args[i] == ArgKind::Tensor && value.isTensor()) {
      operands.see(value.toTensor());
    } else if (info.args[i] == ArgKind::TensorList && value.isList()) {
      for (const c10::IValue& item : value.toListRef())
        if (item.isTensor()) operands.see(item.toTensor());
    }
  }
  return operands;
}

// The tangent that forward-mode differentiation takes for a number: zeros marked as a number, which functionalisation
// leaves wrapped.
void unwrap_zero_tangents(const OpInfo& info, torch::jit::Stack* stack) {
  for (size_t i = 0; i < info.args.size(); ++i) {
    c10::IValue& value = torch::jit::peek(*stack, i, info.args.size());
    if (!value.isTensor()) continue;
    const at::Tensor& t = value.toTensor();
    if (!at::functionalization::impl::isFunctionalTensor(t) || !t.unsafeGetTensorImpl()->is_wrapped_number()) continue;
    at::Tensor zero = at::functionalization::impl::unsafeGetFunctionalWrapper(t)->value();
    value = std::move(zero);
  }
}

// A product with a tangent of zeros is zeros, whatever the other factor is. False: the call is another.
bool zero_product(Recorder& recorder, const OpInfo& info, torch::jit::Stack* stack) {
  const bool product = info.op == graph::Op::mul_Tensor;
  if (!product && info.op != graph::Op::div_Tensor) return false;
  for (size_t i = 0; i < (product ? 2 : 1); ++i) {
    const at::Tensor& zero = torch::jit::peek(*stack, i, info.args.size()).toTensor();
    const at::Tensor& other = torch::jit::peek(*stack, 1 - i, info.args.size()).toTensor();
    if (!recorder.is_zero_tangent(zero) || !at::isFloatingType(other.scalar_type())) continue;
    if (zero.dim() != 0 && !zero.sym_sizes().equals(other.sym_sizes())) continue;
    at::Tensor zeros = at::zeros_like(other);
    recorder.note_zero_tangent(zeros);
    torch::jit::drop(*stack, info.args.size());
    stack->emplace_back(std::move(zeros));
    return true;
  }
  return false;
}

void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const OpInfo& info = op_info(op);
  const c10::IValue* args = stack->data() + (stack->size() - info.args.size());
  Operands operands = look_at(info, args);
  Recorder* recorder = operands.recorder;
  if (!recorder && operands.meta) {
    // Functionalisation tries in-place operators on meta tensors before it rewrites them; nothing of ours is computed.
    Trial trial = current_recorder ? try_in_place(*current_recorder, op, info, args) : Trial::Unknown;
    if (trial == Trial::Refused)
      throw_graph_break(Reason::UnsupportedMutation, info.name + ": elements that share their memory are written");
    if (trial == Trial::Succeeds) {
      c10::IValue self = args[0];
      torch::jit::drop(*stack, info.args.size());
      stack->push_back(std::move(self));
      return;
    }
    c10::impl::ExcludeDispatchKeyGuard guard(kFakeKey);
    c10::IValue self = info.args.empty() ? c10::IValue() : args[0];
    const bool shown =
        current_recorder && with_shown_sizes(op, info, stack->data() + (stack->size() - info.args.size()));
    try {
      op.callBoxed(stack);
      if (shown) stack->back() = std::move(self);
    } catch (const c10::Error&) {
      throw;
    } catch (...) {
      if (current_recorder) current_recorder->python_kernel_raised = true;
      throw;
    }
    return;
  }
  if (!recorder) recorder = current_recorder;
  if (!recorder) throw_graph_break(Reason::TraceFailed, info.name + ": the recorder was reached outside of tracing");
  if (info.name == "aten::_foreach_zero") {  // its kernel writes to copies
    std::vector<at::Tensor> zeros;
    for (const at::Tensor& t : args[0].toTensorVector()) zeros.push_back(at::zeros_like(t));
    torch::jit::drop(*stack, info.args.size());
    stack->emplace_back(std::move(zeros));
    return;
  }
  if (operands.number) unwrap_zero_tangents(info, stack);
  if (zero_product(*recorder, info, stack)) return;
  // Operators on lists of tensors are loops of the operators on tensors: those fuse.
  if (info.name.compare(0, 14, "aten::_foreach") == 0 &&
      op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd)) {
    op.callBoxedForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd, *stack);
    return;
  }
  recorder->guarded(info, [&] {
    if (info.name == "aten::_efficientzerotensor") {
      // What forward-mode differentiation takes for a tangent of zeros: it has no memory, which a kernel would read.
      static const c10::OperatorHandle zeros = c10::Dispatcher::singleton().findSchemaOrThrow("aten::zeros", "");
      recorder->call(zeros, op_info(zeros), stack);
      return recorder->note_zero_tangent(stack->back().toTensor());
    }
    recorder->call(op, info, stack);
  });
}

}  // namespace

void Recorder::note_zero_tangent(const at::Tensor& tensor) {
  if (auto* fake = unwrap_fake(tensor)) zero_tangents_.push_back(fake->value());
}
bool Recorder::is_zero_tangent(const at::Tensor& tensor) const {
  auto* fake = zero_tangents_.empty() ? nullptr : unwrap_fake(tensor);
  return fake && fake->value().valid() &&
         std::find(zero_tangents_.begin(), zero_tangents_.end(), fake->value()) != zero_tangents_.end();
}

Recorder* Recorder::current() { return current_recorder; }

namespace {
// Never undone: PyTorch would go through all operators again while the process ends.
void register_kernels() {
  auto* library = new torch::Library(torch::Library::IMPL, "_", kFakeKey, __FILE__, __LINE__);
  library->fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
  watch_operators();
  pytorch::install_front_kernels();
}

Background* g_registration = nullptr;

}  // namespace

void install_recorder() {
  if (g_registration) return;
  if (c10::Dispatcher::singleton().hasBackendFallbackForDispatchKey(kFakeKey))
    throw std::runtime_error(std::string("braze: this version of PyTorch has taken the dispatch key ") +
                             c10::toString(kFakeKey) + ", which braze traces with");
  pytorch::check_front_key();
  // PyTorch enters a kernel for a key into the table of each of its operators, one by one, which takes milliseconds.
  // Calls that are made meanwhile see a table that differs at this key alone, which no tensor of theirs has.
  g_registration = new Background(register_kernels, true);
}

void require_recorder() {
  BRAZE_CHECK(g_registration, "tracing before the extension is initialised");
  g_registration->wait();
}

namespace {

// The program's hooks on saved tensors are for real ones: what fakes save does not go through them.
thread_local int scopes = 0;
thread_local bool hooks_were_off = false;
// Backwards run on this thread, which has the recorder: those of a GPU's tensors would run on the engine's own.
thread_local bool threads_were_on = false;

}  // namespace

RecordingScope::RecordingScope(Recorder* recorder)
    : recorder_(current_recorder),
      fake_(c10::impl::tls_is_dispatch_key_included(kFakeKey)),
      front_(c10::impl::tls_is_dispatch_key_included(pytorch::kFrontKey)),
      functionalize_(c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::Functionalize)),
      reapply_views_(at::functionalization::impl::getFunctionalizationReapplyViewsTLS()) {
  if (c10::InferenceMode::is_enabled()) pytorch::take_composites_apart();
  current_recorder = recorder;
  c10::impl::tls_set_dispatch_key_included(kFakeKey, true);
  c10::impl::tls_set_dispatch_key_included(pytorch::kFrontKey, true);
  c10::impl::tls_set_dispatch_key_included(c10::DispatchKey::Functionalize, true);
  at::functionalization::impl::setFunctionalizationReapplyViewsTLS(true);
  if (scopes++ != 0) return;
  hooks_were_off = at::SavedTensorDefaultHooks::set_tracing(true);
  auto& autograd = c10::AutogradState::get_tls_state();
  threads_were_on = autograd.get_multithreading_enabled();
  autograd.set_multithreading_enabled(false);
}

RecordingScope::~RecordingScope() {
  current_recorder = recorder_;
  c10::impl::tls_set_dispatch_key_included(kFakeKey, fake_);
  c10::impl::tls_set_dispatch_key_included(pytorch::kFrontKey, front_);
  c10::impl::tls_set_dispatch_key_included(c10::DispatchKey::Functionalize, functionalize_);
  at::functionalization::impl::setFunctionalizationReapplyViewsTLS(reapply_views_);
  if (--scopes != 0) return;
  at::SavedTensorDefaultHooks::set_tracing(hooks_were_off);
  c10::AutogradState::get_tls_state().set_multithreading_enabled(threads_were_on);
}

}  // namespace braze::trace
