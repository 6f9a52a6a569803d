#include "trace/pytorch/memory_access.h"

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "base/check.h"

namespace braze::pytorch {
namespace {

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

std::vector<std::string> read_one() {
  const at::Tensor t = at::detail::make_tensor<c10::TensorImpl>(
      c10::DispatchKeySet(c10::DispatchKey::CPU), caffe2::TypeMeta::Make<float>(), c10::Device(c10::kCPU));
  t.unsafeGetTensorImpl()->set_sizes_contiguous({1});
  const std::function<void()> ways[] = {
      [&] { t.const_data_ptr(); },
      [&] { t.mutable_data_ptr(); },
      [&] { t.data_ptr(); },
      [&] { t.const_data_ptr<float>(); },
      [&] { t.mutable_data_ptr<float>(); },
      [&] { t.unsafeGetTensorImpl()->data_dtype_initialized<float>(); },
  };
  std::vector<std::string> said;
  for (const auto& way : ways) {
    try {
      way();
    } catch (const c10::Error& e) {
      std::string line = first_line(e.what_without_backtrace());
      if (std::find(said.begin(), said.end(), line) == said.end()) said.push_back(std::move(line));
    }
  }
  BRAZE_CHECK(!said.empty(), "reading a tensor without memory is no error");
  return said;
}

}  // namespace

bool is_memory_access(std::string_view message) {
  static const std::vector<std::string> said = read_one();
  return std::any_of(said.begin(), said.end(),
                     [&](const std::string& line) { return message.find(line) != std::string_view::npos; });
}

}  // namespace braze::pytorch
