#include "driver/compile_nests.h"

#include <map>
#include <tuple>

#include "base/check.h"
#include "driver/driver.h"
#include "runtime/cuda/driver.h"

namespace braze::driver {
namespace {

codegen::Target& target_on_gpu(int sm, const loop::Program& program, const loop::Nest& nest, const Options& options) {
  if (options.codegen == Codegen::Triton && codegen::triton_target(sm).takes(program, nest))
    return codegen::triton_target(sm);
  return codegen::nvptx_target(sm);
}

codegen::Target& target_of(const loop::Program& program, const loop::Nest& nest, const Options& options) {
  Device device = codegen::device_of(program, nest);
  if (device.type == DeviceType::CPU) return codegen::cpu_target();
  if (device.type == DeviceType::CUDA)
    return target_on_gpu(runtime::cuda::compute_capability(std::max<int>(0, device.index)), program, nest, options);
  throw Unsupported(Reason::UnsupportedTensor, "a loop on a device that is neither CPU nor an NVIDIA GPU");
}

}  // namespace

codegen::Target& target_for_text(const loop::Program& program, const loop::Nest& nest, const Options& options) {
  try {
    return target_of(program, nest, options);
  } catch (const Unsupported&) {
    return target_on_gpu(90, program, nest, options);
  }
}

codegen::Compiled compile_nests(const loop::Program& program, const Options& options) {
  std::vector<const loop::Nest*> nests = nests_of(program);
  // By target, and by device: of two equal GPUs each has kernels of its own.
  struct Group {
    codegen::Target* target = nullptr;
    std::vector<size_t> nests;
  };
  std::map<std::tuple<int, int, std::string_view>, Group> groups;
  for (size_t i = 0; i < nests.size(); ++i) {
    Device device = codegen::device_of(program, *nests[i]);
    codegen::Target& target = target_of(program, *nests[i], options);
    Group& g = groups[{static_cast<int>(device.type), device.index, target.name()}];
    g.target = &target;
    g.nests.push_back(i);
  }
  codegen::Compiled out;
  out.kernel_of.resize(nests.size());
  out.buffers_of.resize(nests.size());
  out.sizes_of.resize(nests.size());
  out.blocks_of.resize(nests.size());
  for (auto& [key, group] : groups) {
    const std::vector<size_t>& which = group.nests;
    std::vector<const loop::Nest*> some;
    for (size_t i : which) some.push_back(nests[i]);
    codegen::Compiled part = group.target->compile(program, some, options);
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
