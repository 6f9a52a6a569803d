#include "trace/literal.h"

#include <ATen/ops/empty.h>
#include <c10/core/Allocator.h>
#include <torch/csrc/autograd/python_variable.h>

#include <cstring>

#include "trace/below_tracing.h"

namespace braze::trace {

namespace {
constexpr int64_t kMost = int64_t{1} << 16;  // bytes
constexpr uint64_t kMostGpus = 64;
}  // namespace

bool pack_literal(ByteWriter& out, PyObject* tensor) {
  at::Tensor t = THPVariable_Unpack(tensor);
  const c10::Device device = t.device();
  if (!(device.is_cpu() || device.is_cuda()) || t.layout() != c10::kStrided || !t.is_contiguous() ||
      t.requires_grad() || t.is_conj() || t.is_neg() || t.is_quantized() || static_cast<int64_t>(t.nbytes()) > kMost)
    return false;
  // Memory of an array of the program's has another deleter.
  if (t.numel() && t.storage().data_ptr().get_deleter() != c10::GetAllocator(device.type())->raw_deleter())
    return false;
  BelowTracing below;
  if (device.is_cuda()) t = t.cpu();
  out.number(device.is_cuda() ? 1 + static_cast<uint64_t>(device.index()) : 0);
  out.number(static_cast<uint64_t>(t.scalar_type()));
  out.number(static_cast<uint64_t>(t.dim()));
  for (int64_t n : t.sizes()) out.number(static_cast<uint64_t>(n));
  out.text({static_cast<const char*>(t.const_data_ptr()), t.nbytes()});
  return true;
}

PyObject* unpack_literal(ByteReader& in) {
  const uint64_t gpu = in.number(kMostGpus);  // counted from one; zero: the CPU
  const auto dtype = static_cast<c10::ScalarType>(in.number(static_cast<uint64_t>(c10::ScalarType::NumOptions) - 1));
  std::vector<int64_t> sizes(in.count());
  int64_t bytes = static_cast<int64_t>(c10::elementSize(dtype));
  for (int64_t& n : sizes) {
    n = static_cast<int64_t>(in.number(static_cast<uint64_t>(kMost)));
    bytes *= n;
    if (bytes > kMost) damaged("a tensor's sizes");
  }
  const std::string data = in.text();
  if (static_cast<int64_t>(data.size()) != bytes) damaged("a tensor's values");
  BelowTracing below;
  at::Tensor t = at::empty(sizes, at::TensorOptions(dtype));
  if (bytes) std::memcpy(t.mutable_data_ptr(), data.data(), data.size());
  if (gpu) t = t.to(c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(gpu - 1)));
  return THPVariable_Wrap(std::move(t));
}

}  // namespace braze::trace
