#include "trace/pytorch/memory_access.h"

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>
#include <pybind11/pybind11.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "base/check.h"
#include "trace/below_tracing.h"

namespace braze::pytorch {
namespace {

// One float of which there is no memory: no storage as of a fake, or one that holds nothing as of a functional wrapper.
at::Tensor without_memory(bool storage) {
  const c10::DispatchKeySet keys(c10::DispatchKey::CPU);
  const auto dtype = caffe2::TypeMeta::Make<float>();
  at::Tensor t = storage ? at::detail::make_tensor<c10::TensorImpl>(
                               c10::Storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(),
                                                                                  4, c10::DataPtr(), nullptr, false)),
                               keys, dtype)
                         : at::detail::make_tensor<c10::TensorImpl>(keys, dtype, c10::Device(c10::kCPU));
  t.unsafeGetTensorImpl()->set_sizes_contiguous({1});
  return t;
}

std::vector<std::string> read_one(const at::Tensor& t) {
  const std::function<void()> ways[] = {
      [&] { t.const_data_ptr(); },
      [&] { t.mutable_data_ptr(); },
      [&] { t.const_data_ptr<float>(); },
      [&] { t.mutable_data_ptr<float>(); },
      [&] { pybind11::reinterpret_steal<pybind11::object>(THPVariable_Wrap(t)).attr("tolist")(); },
  };
  std::vector<std::string> said;
  auto add = [&](std::string text) { said.push_back(text.substr(0, text.find('\n'))); };
  trace::BelowTracing plain;
  for (const auto& way : ways) {
    try {
      way();
    } catch (const c10::Error& e) {
      add(e.what_without_backtrace());
    } catch (const pybind11::error_already_set& e) {
      add(pybind11::str(e.value()));
    }
  }
  BRAZE_CHECK(!said.empty(), "reading a tensor without memory is no error");
  return said;
}

// Of both kinds.
std::vector<std::string> read_both() {
  std::vector<std::string> said = read_one(without_memory(false)), more = read_one(without_memory(true));
  said.insert(said.end(), more.begin(), more.end());
  return said;
}

}  // namespace

bool is_memory_access(std::string_view message) {
  static const std::vector<std::string> said = read_both();
  return std::any_of(said.begin(), said.end(),
                     [&](const std::string& line) { return message.find(line) != std::string_view::npos; });
}

}  // namespace braze::pytorch
