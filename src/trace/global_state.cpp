// The state outside of arguments that decides which operators PyTorch's own code calls.
#include <ATen/Context.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/autocast_mode.h>
#include <c10/core/AutogradState.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/PyInterpreter.h>

#include <atomic>

#include "base/hash.h"
#include "trace/global_state.h"
#include "trace/pytorch/names.h"

namespace braze::trace {
namespace {

// Modes of torch.overrides on the stack, the default device among them: told apart by object and class, and by device.
void add_function_modes(Hasher& hash) {
  int64_t n = at::impl::PythonTorchFunctionTLS::stack_len();
  hash.add(n);
  if (n == 0) return;
  for (int64_t i = 0; i < n; ++i) {
    const auto& mode = at::impl::PythonTorchFunctionTLS::get_stack_at(i);
    PyObject* obj = mode->ptr(getPyInterpreter());
    // A context of a device is made anew for each `with`; all that it says is the device.
    if (Py_TYPE(obj) != pytorch::get_type(pytorch::Name::DeviceContext)) hash.add(reinterpret_cast<uint64_t>(obj));
    hash.add(reinterpret_cast<uint64_t>(Py_TYPE(obj)));
    PyObject* device = PyObject_GetAttrString(obj, "device");
    PyObject* text = device ? PyObject_Str(device) : nullptr;
    if (const char* s = text ? PyUnicode_AsUTF8(text) : nullptr) hash.add(std::string_view(s));
    PyErr_Clear();
    Py_XDECREF(text);
    Py_XDECREF(device);
  }
}

// Whether the process asked which GPU is the current one: before, asking it in each call could start CUDA.
std::atomic<bool> gpu_matters{false};

}  // namespace

bool dispatch_mode_active() { return c10::impl::TorchDispatchModeTLS::any_modes_set(); }

bool recorded_by_jit() { return c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::Tracer); }

bool below_autograd() {
  return c10::GradMode::is_enabled() && !c10::InferenceMode::is_enabled() &&
         c10::impl::tls_is_dispatch_keyset_excluded(c10::autograd_dispatch_keyset);
}

bool below_functionalisation() { return c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::Functionalize); }

WithoutTorchFunctions::WithoutTorchFunctions(int which) {
  using TLS = at::impl::PythonTorchFunctionTLS;
  auto now = TLS::get_disabled_state();
  auto wanted = which == 2 ? at::impl::TorchFunctionDisabledState::ALL_DISABLED
                           : at::impl::TorchFunctionDisabledState::SUBCLASSES_DISABLED;
  if (which == 0 || now == at::impl::TorchFunctionDisabledState::ALL_DISABLED) return;
  before_ = static_cast<int>(now);
  TLS::set_disabled_state(wanted);
}
WithoutTorchFunctions::~WithoutTorchFunctions() {
  if (before_ >= 0)
    at::impl::PythonTorchFunctionTLS::set_disabled_state(static_cast<at::impl::TorchFunctionDisabledState>(before_));
}

int current_gpu() {
  if (!c10::impl::hasDeviceGuardImpl(c10::kCUDA)) return -1;
  gpu_matters.store(true, std::memory_order_relaxed);
  return c10::impl::getDeviceGuardImpl(c10::kCUDA)->getDevice().index();
}

uint64_t global_state_key() {
  Hasher hash;
  // Included and excluded keys: inference mode, autocast on or off, functorch levels, dispatch modes.
  auto keys = c10::impl::tls_local_dispatch_key_set();
  hash.add(keys.included_.raw_repr());
  hash.add(keys.excluded_.raw_repr());

  const auto& autograd = c10::AutogradState::get_tls_state();
  const at::Context& context = at::globalContext();
  uint64_t bits = 0;
  auto add = [&](bool bit) { bits = bits << 1 | static_cast<uint64_t>(bit); };
  add(autograd.get_grad_mode());
  add(autograd.get_fw_grad_mode());
  add(autograd.get_inference_mode());
  add(at::autocast::is_autocast_enabled(at::kCPU));
  add(at::autocast::is_autocast_enabled(at::kCUDA));
  add(at::autocast::is_autocast_cache_enabled());
  add(context.deterministicAlgorithms());
  add(context.deterministicAlgorithmsWarnOnly());
  add(context.deterministicFillUninitializedMemory());
  add(context.deterministicCuDNN());
  add(context.benchmarkCuDNN());
  add(context.userEnabledCuDNN());
  add(context.userEnabledMkldnn());
  add(context.userEnabledFlashSDP());
  add(context.userEnabledMemEfficientSDP());
  add(context.userEnabledMathSDP());
  add(context.userEnabledCuDNNSDP());
  add(context.userEnabledOverrideableSDP());
  hash.add(bits);

  uint64_t dtypes = static_cast<uint64_t>(c10::get_default_dtype_as_scalartype());
  dtypes = dtypes << 8 | static_cast<uint64_t>(at::autocast::get_autocast_dtype(at::kCPU));
  dtypes = dtypes << 8 | static_cast<uint64_t>(at::autocast::get_autocast_dtype(at::kCUDA));
  dtypes = dtypes << 8 | static_cast<uint64_t>(at::impl::PythonTorchFunctionTLS::get_disabled_state());
  hash.add(dtypes);
  if (gpu_matters.load(std::memory_order_relaxed)) try {
      if (int gpu = current_gpu(); gpu > 0) hash.add(static_cast<uint64_t>(gpu));
    } catch (const c10::Error&) {  // a forked child has no CUDA
      gpu_matters.store(false, std::memory_order_relaxed);
    }
  add_function_modes(hash);
  return hash.value();
}

uint64_t global_state_of_capture() {
  if (c10::impl::hasDeviceGuardImpl(c10::kCUDA) && !gpu_matters.load(std::memory_order_relaxed)) {
    // Not asked where CUDA is yet to start: the current GPU is 0 then, and asking would start it.
    PyObject* answer = PyObject_CallNoArgs(pytorch::get(pytorch::Name::cuda_is_initialized));
    if (answer == Py_True) gpu_matters.store(true, std::memory_order_relaxed);
    if (!answer) PyErr_Clear();
    Py_XDECREF(answer);
  }
  return global_state_key();
}

}  // namespace braze::trace
