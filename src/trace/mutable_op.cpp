#include "trace/mutable_op.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <mutex>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "trace/graph_break.h"
#include "trace/kernel_launches.h"
#include "trace/recorder.h"
#include "trace/schema.h"

namespace braze::trace {
namespace {

namespace functional = at::functionalization::impl;

// PyTorch's own: what of them is written to has functional forms, or is not met by fakes.
bool is_of_pytorch(std::string_view name) {
  static constexpr std::string_view kNamespaces[] = {"aten",
                                                     "prim",
                                                     "prims",
                                                     "quantized",
                                                     "_quantized",
                                                     "mkldnn",
                                                     "onednn",
                                                     "mkldnn_prepacked",
                                                     "xnnpack",
                                                     "inductor",
                                                     "c10d",
                                                     "_c10d_functional",
                                                     "_c10d_functional_autograd",
                                                     "_dtensor",
                                                     "rngprims",
                                                     "debugprims",
                                                     "profiler",
                                                     "streams",
                                                     "fsdp",
                                                     "symm_mem",
                                                     "sparse",
                                                     "cuda",
                                                     "static_runtime",
                                                     "tensorexpr",
                                                     "__backends__"};
  std::string_view space = name.substr(0, name.find("::"));
  return std::find(std::begin(kNamespaces), std::end(kNamespaces), space) != std::end(kNamespaces);
}

struct Operand {
  at::Tensor tensor;  // as the program has it
  bool written;
  size_t place;     // among all tensors
  size_t standing;  // of the first operand that is on the same memory, if the operator is told of that
};

// A view's elements as a box of steps, the largest first.
struct Box {
  explicit Box(const at::Tensor& t) : start(t.sym_storage_offset()) {
    for (int64_t d = 0; d < t.dim(); ++d)
      if (t.sym_size(d) != 1) steps.emplace_back(t.sym_stride(d), t.sym_size(d));
    std::stable_sort(steps.begin(), steps.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  }
  // Up to the end of the elements, without the steps before `from`.
  c10::SymInt span(size_t from) const {
    c10::SymInt n = 1;
    for (size_t i = from; i < steps.size(); ++i) n += (steps[i].second - 1) * steps[i].first;
    return n;
  }
  c10::SymInt start;
  std::vector<std::pair<c10::SymInt, c10::SymInt>> steps;  // and how many
};

// Of two views on one memory: whether no element is in both. Decided, with a guard, where sizes are open. False where
// it is not seen: they lie one after the other, or side by side in rows of the same length.
bool are_apart(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type()) return false;
  if (a.sym_numel() == 0 || b.sym_numel() == 0) return true;
  Box first(a), second(b);
  if (second.start < first.start) std::swap(first, second);
  c10::SymInt between = second.start - first.start;
  for (size_t i = 0;; ++i) {
    if (first.span(i) <= between) {
      if (i == 0) return true;
      if (between + second.span(i) <= first.steps[i - 1].first) return true;
    }
    // The steps that both make in the same way are left out, where what they repeat fits into one.
    if (i >= first.steps.size() || i >= second.steps.size() || first.steps[i].first != second.steps[i].first)
      return false;
    const c10::SymInt& step = first.steps[i].first;
    between = between % step;
    if (first.span(i + 1) > step || between + second.span(i + 1) > step) return false;
  }
}

bool are_same(const at::Tensor& a, const at::Tensor& b) {
  return a.storage().unsafeGetStorageImpl() == b.storage().unsafeGetStorageImpl() &&
         a.scalar_type() == b.scalar_type() && a.sym_storage_offset() == b.sym_storage_offset() &&
         a.sym_sizes() == b.sym_sizes() && a.sym_strides() == b.sym_strides();
}

// What is written must not be seen through another argument: the node's copies are apart.
void check_apart(const std::vector<Operand>& operands, const std::string& name) {
  for (size_t i = 0; i < operands.size(); ++i)
    for (size_t k = 0; k < operands.size(); ++k) {
      const at::Tensor &a = operands[i].tensor, &b = operands[k].tensor;
      if (operands[i].standing == operands[k].standing || !operands[i].written ||
          a.storage().unsafeGetStorageImpl() != b.storage().unsafeGetStorageImpl())
        continue;
      if (!are_apart(a, b))
        throw_graph_break(Reason::UnsupportedMutation, name + " writes to an argument that shares memory with another");
    }
}

// The same memory handed in twice is no obstacle to a launch, which says so to whoever runs it.
void find_same(std::vector<Operand>& operands, size_t tensors, c10::IValue& same) {
  std::vector<int64_t> places(tensors);
  for (size_t i = 0; i < tensors; ++i) places[i] = static_cast<int64_t>(i);
  bool any = false;
  for (Operand& o : operands)
    for (const Operand& first : operands) {
      if (first.place >= o.place || !first.written || !are_same(first.tensor, o.tensor)) continue;
      places[o.place] = static_cast<int64_t>(o.standing = first.standing);
      any = true;
      break;
    }
  if (any) same = places;
}

void functionalize(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const OpInfo& info = op_info(op);
  const c10::FunctionSchema& schema = op.schema();
  size_t count = schema.arguments().size(), start = stack->size() - count;
  Recorder* recorder = Recorder::current();
  std::vector<Operand> operands;
  bool written = false;
  size_t place = 0;
  auto inner = [&](const at::Tensor& t) {
    size_t at = place++;
    if (!t.defined() || !functional::isFunctionalTensor(t)) {
      if (written && t.defined())
        throw_graph_break(Reason::UnsupportedMutation,
                          info.name + " writes to a tensor that is met in the middle of a call");
      return t;
    }
    operands.push_back({t, written, at, at});
    functional::sync(t);
    return functional::from_functional_tensor(t);
  };
  for (size_t i = 0; i < count; ++i) {
    c10::IValue& v = (*stack)[start + i];
    written = is_written(schema.arguments()[i]);
    if (v.isTensor()) {
      v = inner(v.toTensor());
    } else if (v.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& t : v.toTensorVector()) list.push_back(inner(t));
      v = std::move(list);
    } else if (v.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const auto& t : v.toOptionalTensorVector())
        list.push_back(t ? std::optional<at::Tensor>(inner(*t)) : std::nullopt);
      v = std::move(list);
    }
  }
  TORCH_CHECK(recorder, "braze: ", info.name, " has no form without writes outside of a capture");
  if (info.name == kLaunchKernel) find_same(operands, place, (*stack)[start + 3]);
  check_apart(operands, info.name);
  std::vector<at::Tensor> copies;
  {
    at::AutoDispatchSkipFunctionalize below;
    recorder->guarded(info, [&] { copies = recorder->call_writing(op, info, stack); });
  }
  auto copy = copies.begin();
  // What PyTorch's own kernel for writes does not count, the operator's does in eager mode, by what it calls.
  bool counted = op.hasKernelForDispatchKey(c10::DispatchKey::ADInplaceOrView);
  for (const Operand& o : operands) {
    if (!o.written) continue;
    if (!counted && !o.tensor.is_inference()) o.tensor.unsafeGetTensorImpl()->bump_version();
    BRAZE_CHECK(copy != copies.end(), "a written argument without a result");
    const at::Tensor& made = *copy++;
    if (o.standing != o.place) continue;
    functional::replace_(o.tensor, made);
    functional::commit_update(o.tensor);
    functional::sync(o.tensor);
  }
  for (size_t i = stack->size() - schema.returns().size(); i < stack->size(); ++i) {
    c10::IValue& v = (*stack)[i];
    if (v.isTensor())
      v = functional::to_functional_tensor(v.toTensor());
    else if (v.isTensorList())
      v = functional::to_functional_tensor(v.toTensorList());
  }
}

class Watched {
 public:
  static Watched& instance() {
    static auto* watched = new Watched();
    return *watched;
  }

  void add(const c10::OperatorHandle& op) {
    if (is_of_pytorch(op.operator_name().name) || !op.schema().is_mutable()) return;
    for (const c10::Argument& result : op.schema().returns())
      if (result.alias_info()) return;
    std::lock_guard<std::mutex> lock(mutex_);
    names_.push_back(op.operator_name());
  }
  void remove(const c10::OperatorHandle& op) {
    std::lock_guard<std::mutex> lock(mutex_);
    std::erase(names_, op.operator_name());
  }

  // The dispatcher's lock is taken without ours: it holds its own while it tells of operators.
  void enter() {
    std::lock_guard<std::mutex> turn(turn_);
    if (depth_++) return;
    std::vector<c10::OperatorName> names;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      names = names_;
    }
    c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
    for (const c10::OperatorName& name : names) {
      auto op = dispatcher.findSchema(name);
      bool has = !op || op->hasKernelForDispatchKey(c10::DispatchKey::Functionalize) ||
                 op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
      if (!has)
        forms_.push_back(dispatcher.registerImpl(name, c10::DispatchKey::Functionalize,
                                                 c10::KernelFunction::makeFromBoxedFunction<&functionalize>(),
                                                 std::nullopt, nullptr, "braze"));
    }
  }
  void leave() {
    std::lock_guard<std::mutex> turn(turn_);
    if (--depth_ == 0) forms_.clear();
  }

 private:
  std::mutex mutex_, turn_;
  std::vector<c10::OperatorName> names_;
  std::vector<c10::RegistrationHandleRAII> forms_;
  size_t depth_ = 0;
};

struct Forward : c10::OpRegistrationListener {
  void onOperatorRegistered(const c10::OperatorHandle& op) override { Watched::instance().add(op); }
  void onOperatorDeregistered(const c10::OperatorHandle& op) override {
    Watched::instance().remove(op);
    forget_op_info(op);
  }
};

}  // namespace

void watch_operators() {
  // Never undone, as the recorder's own kernels.
  static auto* handle = new c10::RegistrationHandleRAII(
      c10::Dispatcher::singleton().addRegistrationListener(std::make_unique<Forward>()));
  (void)handle;
}

FunctionalForms::FunctionalForms() { Watched::instance().enter(); }
FunctionalForms::~FunctionalForms() { Watched::instance().leave(); }

}  // namespace braze::trace
