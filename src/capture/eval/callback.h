// Functions of PyTorch that call functions of the user (transforms, autograd.Function, hooks) run for real while
// capturing, on fake tensors; what they call back is evaluated symbolically.
#pragma once
#include <exception>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>

#include "capture/eval/capture.h"
#include "capture/eval/variable.h"

namespace braze::capture {

// Whether a function of PyTorch's keeps one of the user's in its closure, as the results of torch.func.grad(f) and
// torch.vmap(f) do: what that reads is to be guarded, so that it may not run on fakes unseen.
bool wraps_user_code(PyObject* function);

class HostCalls {
 public:
  explicit HostCalls(Translator& tr);
  ~HostCalls();

  // Calls a real function of PyTorch that may call functions of the user. `noted`: the function that the torch-level
  // graph shows in its place; none: that graph cannot show it.
  Variable* call(PyObject* fn, const Args& args, PyObject* noted = nullptr);
  // Calls a function of torch that a __torch_function__ of the user's takes over.
  Variable* call_overridden(PyObject* fn, const Args& args);
  // What such a function gave or hands to a callback.
  Variable* from_host(Ref object);
  Variable* host_object(Ref o);    // one that only the capture knows
  uint64_t hook = 0;               // the ordinal of the first hook on a result
  uint64_t called_back = 0;        // how often PyTorch has called a function of the user's
  uint64_t not_shown = 0;          // the ordinal of the first such call that a graph of torch's functions cannot show
  size_t undefined_gradients = 0;  // how often a context of autograd.Function was asked for them
  Ref callback(Variable* callee);  // a real callable that evaluates callee in this capture
  // A function of PyTorch's with callbacks in place of those of the user's that are in its closure (wraps_user_code).
  Ref with_callbacks(PyObject* function, SourceId source);
  // A call of such a callable, by PyTorch. A new reference; null, with an exception set, when the user's code raised or
  // cannot be captured.
  PyObject* run_callback(Variable* callee, PyObject* args, PyObject* kwargs);

  bool in_callback() const { return depth_ > 0; }
  // Why a callback could not be captured that ended PyTorch's last call of one.
  std::optional<Stop> why_stopped() const;
  // Values go to or come from a function of PyTorch. Said by Hosting, for as long as that lives; code that is evaluated
  // meanwhile, an iterator's that is unpacked for the call, say, is none of PyTorch's.
  bool hosting() const { return hosting_; }
  class Hosting {
   public:
    Hosting(HostCalls& host, bool on) : flag_(host.hosting_), before_(std::exchange(host.hosting_, on)) {}
    ~Hosting() { flag_ = before_; }
    Hosting(const Hosting&) = delete;
    Hosting& operator=(const Hosting&) = delete;

   private:
    bool &flag_, before_;
  };

 private:
  class HookNumbers;
  Ref run_host(PyObject* fn, const Args& args, PyObject* noted, bool overridden);

  Translator& tr_;
  std::shared_ptr<HostCalls*> alive_;  // held by the callables, which may outlive the capture
  bool hosting_ = false;
  bool numbers_of_host_ = false;  // see HookNumbers
  std::exception_ptr pending_;    // what ended a callback
  std::unordered_map<PyObject*, Variable*> hosts_;
  int depth_ = 0;  // of callbacks
};

}  // namespace braze::capture
