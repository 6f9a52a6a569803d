#include "launch/user_kernels.h"

#include <c10/core/DeviceGuard.h>
#include <pybind11/pybind11.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/library.h>

#include "launch/runnable.h"
#include "launch/written_inputs.h"
#include "trace/kernel_launches.h"

namespace braze::launch {
namespace {

namespace py = pybind11;

py::object wrapped_tensor(const at::Tensor& t) { return py::reinterpret_steal<py::object>(THPVariable_Wrap(t)); }

// On PyTorch's current stream, by the program's kernel object.
void launch_kernel(at::TensorList written, at::TensorList read, c10::SymIntArrayRef integers, at::IntArrayRef same,
                   int64_t launch) {
  py::gil_scoped_acquire gil;
  py::object owned = py::reinterpret_steal<py::object>(trace::find_launch(launch));
  TORCH_CHECK(owned, "the launch of a kernel outlived the code that was captured with it");
  py::list tensors[2], numbers(integers.size());
  for (size_t i = 0; i < written.size() + read.size(); ++i) {
    auto at = same.empty() ? i : static_cast<size_t>(same[i]);
    tensors[i < written.size() ? 0 : 1].append(
        wrapped_tensor(at < written.size() ? written[at] : read[at - written.size()]));
  }
  for (size_t i = 0; i < integers.size(); ++i) numbers[i] = py::int_(integers[i].expect_int());
  static PyObject* run = PyUnicode_InternFromString("run");
  PyObject* done =
      PyObject_CallMethodObjArgs(owned.ptr(), run, tensors[0].ptr(), tensors[1].ptr(), numbers.ptr(), nullptr);
  if (!done) throw_python_error();
  Py_DECREF(done);
}

void launch_nothing(at::TensorList, at::TensorList, c10::SymIntArrayRef, at::IntArrayRef, int64_t) {}

void define_launch_kernel() {
  using torch::Library;
  static Library definitions(Library::FRAGMENT, "braze", std::nullopt, __FILE__, __LINE__);
  definitions.def(
      "launch_kernel(Tensor(a!)[] written, Tensor[] read, SymInt[] integers, int[] same, int launch) -> ()");
  auto under = [](c10::DispatchKey key) { return Library(Library::IMPL, "braze", key, __FILE__, __LINE__); };
  static Library kernels[] = {under(c10::DispatchKey::CPU), under(c10::DispatchKey::CUDA),
                              under(c10::DispatchKey::Meta)};
  kernels[0].impl("launch_kernel", launch_kernel);
  kernels[1].impl("launch_kernel", launch_kernel);
  kernels[2].impl("launch_kernel", launch_nothing);
  // As a launch in eager mode: it is not differentiated, and no version counter sees what it writes.
  static Library through[] = {under(c10::DispatchKey::Autograd), under(c10::DispatchKey::ADInplaceOrView)};
  for (Library& l : through) l.impl("launch_kernel", torch::CppFunction::makeFallthrough());
}

}  // namespace

bool note_not_again(bool yes) {
  thread_local bool written = false;
  return std::exchange(written, yes);
}

PyObject* alias(PyObject* tensor) {
  HANDLE_TH_ERRORS
  return THPVariable_Wrap(THPVariable_Unpack(tensor).detach());
  END_HANDLE_TH_ERRORS
}

void count_writes(PyObject* tensor, int n) {
  const at::Tensor& t = THPVariable_Unpack(tensor);
  if (t.is_inference()) return;
  c10::VariableVersion version = t.unsafeGetTensorImpl()->version_counter();
  version.set_version(static_cast<int64_t>(version.current_version()) + n);
}

void register_launch_kernel() { [[maybe_unused]] static const bool once = (define_launch_kernel(), true); }

}  // namespace braze::launch
