#include "driver/compile_nests.h"

#include <map>

#include "base/check.h"
#include "driver/driver.h"
#include "runtime/cuda/driver.h"

namespace braze::driver {
namespace {

codegen::Target& target_of(Device device) {
  if (device.type == DeviceType::CPU) return codegen::cpu_target();
  if (device.type == DeviceType::CUDA) return codegen::nvptx_target(runtime::cuda::compute_capability(std::max<int>(0, device.index)));
  throw Unsupported(Reason::UnsupportedTensor, "a loop on a device that is neither CPU nor an NVIDIA GPU");
}

}  // namespace

codegen::Target& target_for_text(Device device) {
  try {
    return target_of(device);
  } catch (const Unsupported&) {
    return codegen::nvptx_target(90);
  }
}

codegen::Compiled compile_nests(const loop::Program& program, const Options& options) {
  std::vector<const loop::Nest*> nests = nests_of(program);
  std::map<std::pair<int, int>, std::vector<size_t>> groups;  // by device
  std::vector<Device> devices;
  for (size_t i = 0; i < nests.size(); ++i) {
    devices.push_back(codegen::device_of(program, *nests[i]));
    groups[{static_cast<int>(devices[i].type), devices[i].index}].push_back(i);
  }
  codegen::Compiled out;
  out.kernel_of.resize(nests.size());
  out.buffers_of.resize(nests.size());
  out.sizes_of.resize(nests.size());
  out.blocks_of.resize(nests.size());
  for (auto& [key, which] : groups) {
    std::vector<const loop::Nest*> some;
    for (size_t i : which) some.push_back(nests[i]);
    codegen::Compiled part = target_of(devices[which[0]]).compile(program, some, options);
    auto kernels = static_cast<uint32_t>(out.kernels.size()), blobs = static_cast<uint32_t>(out.blobs.size());
    for (size_t k = 0; k < which.size(); ++k) {
      out.kernel_of[which[k]] = kernels + part.kernel_of[k];
      out.buffers_of[which[k]] = std::move(part.buffers_of[k]);
      out.sizes_of[which[k]] = std::move(part.sizes_of[k]);
      if (!part.blocks_of.empty()) out.blocks_of[which[k]] = part.blocks_of[k];
    }
    for (codegen::CompiledKernel& k : part.kernels) {
      k.blob += blobs;
      out.kernels.push_back(std::move(k));
    }
    for (std::string& b : part.blobs) out.blobs.push_back(std::move(b));
  }
  return out;
}

}  // namespace braze::driver
