#include <ATen/Context.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/check.h"
#include "trace/c_function.h"
#include "trace/convert.h"
#include "trace/fake_tensor.h"
#include "trace/fixed_sizes.h"
#include "trace/graph_break.h"
#include "trace/pytorch/memory_access.h"
#include "trace/pytorch/overloads.h"
#include "trace/tracer_impl.h"
#include "trace/written_arguments.h"

namespace braze::trace {

namespace {

// Methods whose answers depend on memory, which a fake does not have, or on where in its storage a tensor lies, which
// it does not know.
bool asks_for_memory(PyObject* fn) {
  static const std::unordered_set<std::string_view> asked = {
      "__array__",      "__deepcopy__",
      "__dlpack__",     "__dlpack_device__",
      "__reduce_ex__",  "data_ptr",
      "is_pinned",      "is_shared",
      "is_set_to",      "numpy",
      "pin_memory",     "share_memory_",
      "storage",        "storage_offset",
      "tolist",         "untyped_storage",
      "_typed_storage", "_reduce_ex_internal",
  };
  if (PyObject_TypeCheck(fn, &PyMethodDescr_Type)) return asked.contains(c_function_name(fn));
  if (!PyFunction_Check(fn)) return false;
  Py_ssize_t size = 0;
  const char* name = PyUnicode_AsUTF8AndSize(reinterpret_cast<PyFunctionObject*>(fn)->func_name, &size);
  return name && asked.count(std::string_view(name, static_cast<size_t>(size))) != 0;
}

// torch._foreach_add_ and the like, of which eager's kernels count the writes, and tracing sees no kernel.
bool writes_lists(PyObject* fn) {
  if (!PyCFunction_Check(fn)) return false;
  std::string_view name = c_function_name(fn);
  return name.starts_with("_foreach_") && name.ends_with('_');
}

bool is_list(PyObject* o) { return PyList_Check(o) || PyTuple_Check(o); }

// The memory of a tensor in a list; nullptr: it is none.
const void* memory_of(PyObject* list, Py_ssize_t i) {
  PyObject* t = PySequence_Fast_GET_ITEM(list, i);
  return THPVariable_Check(t) ? THPVariable_Unpack(t).storage().unsafeGetStorageImpl() : nullptr;
}

// Whether what is written for one element of the first list is read or written for another: eager goes through them
// one after the other.
bool meet_again(PyObject* const* args, size_t nargs) {
  std::unordered_map<const void*, Py_ssize_t> written;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(args[0]); ++i)
    if (const void* m = memory_of(args[0], i); m && !written.emplace(m, i).second) return true;
  for (size_t n = 1; n < nargs; ++n)
    for (Py_ssize_t i = 0; is_list(args[n]) && i < PySequence_Fast_GET_SIZE(args[n]); ++i)
      if (auto at = written.find(memory_of(args[n], i)); at != written.end() && at->second != i) return true;
  return false;
}

void count_writes(PyObject* tensors) {
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(tensors); ++i) {
    PyObject* t = PySequence_Fast_GET_ITEM(tensors, i);
    if (THPVariable_Check(t) && !THPVariable_Unpack(t).is_inference())
      THPVariable_Unpack(t).unsafeGetTensorImpl()->bump_version();
  }
}

// PyTorch's code that reads a tensor's memory finds none in a fake and says so in an error: not the user's, but a
// break.
void break_on_memory_access() {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  PyObject* text = value && PyErr_GivenExceptionMatches(value, PyExc_RuntimeError) ? PyObject_Str(value) : nullptr;
  const char* chars = text ? PyUnicode_AsUTF8(text) : nullptr;
  if (chars && pytorch::is_memory_access(chars)) {
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    Py_XDECREF(text);
    return set_graph_break(Reason::UnsupportedOp, "its kernel reads the memory of a tensor");
  }
  Py_XDECREF(text);
  PyErr_Restore(type, value, traceback);
}

// oneDNN's recurrent layer keeps a workspace for its backward whose size only it knows; without it PyTorch runs its own
// steps.
struct WithoutOneDnn {
  explicit WithoutOneDnn(bool wanted) : before(at::globalContext().userEnabledMkldnn()), set(wanted && before) {
    if (set) at::globalContext().setUserEnabledMkldnn(false);
  }
  ~WithoutOneDnn() {
    if (set) at::globalContext().setUserEnabledMkldnn(true);
  }
  bool before, set;
};

bool is_lstm(PyObject* fn) { return PyCFunction_Check(fn) && c_function_name(fn) == "lstm"; }

// What a call of `fn` calls: of a packet of overloads, the one that is meant. New reference; nullptr: a break is set.
PyObject* called(PyObject* fn, PyObject* const* args, size_t nargs, PyObject* kwargs) {
  if (!pytorch::is_overload_packet(fn)) {
    Py_INCREF(fn);
    return fn;
  }
  try {
    if (PyObject* overload = pytorch::overload_of(fn, args, nargs, kwargs)) return overload;
    PyErr_Clear();
    set_graph_break(Reason::UnsupportedOp, "no overload of an operator fits its arguments");
  } catch (const Unsupported& e) {
    set_graph_break(e.reason(), e.detail());
  }
  return nullptr;
}

}  // namespace

PyObject* TracerImpl::perform(PyObject* fn, PyObject* const* args, size_t nargs, PyObject* kwargs,
                              const graph::Location& loc, PyObject* noted) {
  RecordingScope scope(recorder_.get());
  const graph::Location* around = std::exchange(location_, &loc);
  recorder_->set_location(&loc);
  Ambient ambient = current_ambient();
  size_t before = recorder_->graph().nodes().size();
  const OutArgument out(*recorder_, fn, args, nargs, kwargs);
  const WrittenOperand in_place(*recorder_, fn, args, nargs, kwargs);
  if (out.is_shared() || in_place.is_read() || in_place.is_spread()) {
    location_ = around;
    recorder_->set_location(around);
    set_graph_break(Reason::UnsupportedMutation,
                    out.is_shared()      ? "out= shares memory with an operand, or its elements with each other"
                    : in_place.is_read() ? "an operand shares some of the memory that is written"
                                         : "elements that share their memory, or windows, are written");
    return nullptr;
  }
  recorder_->python_kernel_raised = false;
  WithoutOneDnn steps(c10::GradMode::is_enabled() && is_lstm(fn));
  PyObject* function = called(fn, args, nargs, kwargs);
  PyObject* result = function ? PyObject_VectorcallDict(function, args, nargs, kwargs) : nullptr;
  if (!result && function && !host_depth_ && recorder_->failure.empty() && may_be_of_symbols())
    result = call_with_fixed_sizes(
        *recorder_, [this](PyObject* o) { return size_node(o) != nullptr; }, function, args, nargs, kwargs);
  Py_XDECREF(function);
  if (result && recorder_->failure.empty()) in_place.keep_strides();
  location_ = around;
  recorder_->set_location(around);
  if (!recorder_->failure.empty()) {
    Py_XDECREF(result);
    PyErr_Clear();
    throw InternalError(std::exchange(recorder_->failure, {}));
  }
  if (!result) {
    break_on_memory_access();
    return nullptr;
  }
  if (out.was_resized(recorder_->graph(), before)) {
    Py_DECREF(result);
    throw Unsupported(Reason::UnsupportedMutation, "out= is of another size than the result");
  }
  out.keep_strides();
  if (out.may_be_refused(recorder_->graph(), before) || in_place.is_refused(recorder_->graph(), before)) {
    Py_DECREF(result);
    set_graph_break(Reason::UnsupportedMutation, "what is written is of another dtype than the result");
    return nullptr;
  }
  recorder_->python_kernel_raised = false;
  bool recorded = recorder_->graph().nodes().size() != before;
  if (noted && (recorded || holds_fake(result)) && !calls_.add(noted, args, nargs, kwargs, result, ambient)) {
    Py_DECREF(result);
    return nullptr;
  }
  return result;
}

PyObject* TracerImpl::call(PyObject* fn, PyObject* const* args, size_t nargs, PyObject* kwargs,
                           const graph::Location& loc) {
  if (asks_for_memory(fn)) {
    set_graph_break(Reason::UnsupportedOp, "a question about the memory of a tensor");
    return nullptr;
  }
  const bool writes = nargs && writes_lists(fn) && is_list(args[0]);
  if (writes && meet_again(args, nargs)) {
    set_graph_break(Reason::UnsupportedMutation, "a list of tensors is written of which some share memory");
    return nullptr;
  }
  PyObject* result = perform(fn, args, nargs, kwargs, loc, host_depth_ ? nullptr : fn);
  if (result && writes) count_writes(args[0]);
  return result;
}

PyObject* TracerImpl::call_host(PyObject* fn, PyObject* const* args, size_t nargs, PyObject* kwargs,
                                const graph::Location& loc, PyObject* noted) {
  if (!noted && !host_depth_) torch_level_ = false;
  struct Depth {
    int& depth;
    explicit Depth(int& d) : depth(d) { ++depth; }
    ~Depth() { --depth; }
  } inside(host_depth_);
  return perform(fn, args, nargs, kwargs, loc, host_depth_ > 1 ? nullptr : noted);
}

PyObject* TracerImpl::call_overridden(PyObject* fn, PyObject* const* args, size_t nargs, PyObject* kwargs,
                                      const graph::Location& loc) {
  return perform(fn, args, nargs, kwargs, loc, nullptr);
}

bool TracerImpl::holds_fake(PyObject* obj) const {
  if (PyTuple_Check(obj)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(obj); ++i)
      if (holds_fake(PyTuple_GET_ITEM(obj, i))) return true;
    return false;
  }
  if (PyList_Check(obj)) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(obj); ++i)
      if (holds_fake(PyList_GET_ITEM(obj, i))) return true;
    return false;
  }
  return is_fake(obj);
}

}  // namespace braze::trace
