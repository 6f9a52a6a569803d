#include "driver/compile_nests.h"

#include <map>
#include <tuple>

#include "base/check.h"
#include "driver/driver.h"

namespace braze::driver {

codegen::CodeGenerator& Generators::of(const loop::Nest& nest) {
  Device device = codegen::device_of(program_, nest);
  if (device.type != DeviceType::CPU && device.type != DeviceType::CUDA)
    throw Unsupported(Reason::UnsupportedTensor, "a loop on a device that is neither CPU nor an NVIDIA GPU");
  const Target& target = targets_.of(device);
  if (target.is_gpu() && options_.codegen == Codegen::Triton) {
    codegen::CodeGenerator*& triton = triton_[&target];
    if (!triton) triton = &codegen::triton_generator(target);
    if (triton->takes(program_, nest)) return *triton;
  }
  codegen::CodeGenerator*& llvm = llvm_[&target];
  if (!llvm) llvm = target.is_gpu() ? &codegen::nvptx_generator(target) : &codegen::cpu_generator(target);
  return *llvm;
}

codegen::Compiled compile_nests(const loop::Program& program, const Options& options, const Targets& targets) {
  std::vector<const loop::Nest*> nests = nests_of(program);
  Generators generators(program, options, targets);
  // By generator, and by device: of two equal GPUs each has kernels of its own.
  struct Group {
    codegen::CodeGenerator* generator = nullptr;
    std::vector<size_t> nests;
  };
  std::map<std::tuple<int, int, std::string_view>, Group> groups;
  for (size_t i = 0; i < nests.size(); ++i) {
    Device device = codegen::device_of(program, *nests[i]);
    codegen::CodeGenerator& generator = generators.of(*nests[i]);
    const Target& target = targets.of(device);
    if (target.is_gpu() && !target.unavailable.empty())
      throw Unsupported(Reason::UnsupportedTensor, target.unavailable);
    Group& g = groups[{static_cast<int>(device.type), device.index, generator.name()}];
    g.generator = &generator;
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
    codegen::Compiled part = group.generator->compile(program, some, options);
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
