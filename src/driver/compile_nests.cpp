#include "driver/compile_nests.h"

#include <map>
#include <tuple>

#include "base/check.h"
#include "driver/driver.h"

namespace braze::driver {

codegen::CodeGenerator& Generators::of(const loop::Program& program, const loop::Nest& nest) {
  Device device = codegen::device_of(program, nest);
  if (device.type != DeviceType::CPU && device.type != DeviceType::CUDA)
    throw Unsupported(Reason::UnsupportedTensor, "a loop on a device that is neither CPU nor an NVIDIA GPU");
  const Target& target = targets_.of(device);
  if (target.is_gpu() && options_.codegen == Codegen::Triton) {
    codegen::CodeGenerator*& triton = triton_[&target];
    if (!triton) triton = &codegen::triton_generator(target);
    if (triton->takes(program, nest)) return *triton;
  }
  if (!target.is_gpu() && options_.codegen == Codegen::Cpp) {
    codegen::CodeGenerator*& cpp = cpp_[&target];
    if (!cpp) cpp = &codegen::cpp_generator(target);
    if (cpp->takes(program, nest)) return *cpp;
  }
  codegen::CodeGenerator*& llvm = llvm_[&target];
  if (!llvm) llvm = target.is_gpu() ? &codegen::nvptx_generator(target) : &codegen::cpu_generator(target);
  return *llvm;
}

schedule::Takes taken(const Options& options, const Targets& targets) {
  return [generators = Generators(options, targets)](const loop::Program& program, const loop::Nest& nest) mutable {
    return generators.of(program, nest).takes(program, nest);
  };
}

namespace {

// Runs cut where another generator takes over, with the number of the first nest of each.
struct Piece {
  codegen::CodeGenerator* generator = nullptr;
  Device device;
  uint32_t first = 0;
  codegen::Run nests;
};
std::vector<Piece> pieces_of(const loop::Program& program, const std::vector<std::vector<uint32_t>>& runs,
                             const Options& options, const Targets& targets) {
  std::vector<const loop::Nest*> nests = nests_of(program);
  Generators generators(options, targets);
  std::vector<Piece> pieces;
  for (const std::vector<uint32_t>& run : runs)
    for (uint32_t i : run) {
      codegen::CodeGenerator& generator = generators.of(program, *nests[i]);
      if (i == run.front() || &generator != pieces.back().generator)
        pieces.push_back({&generator, codegen::device_of(program, *nests[i]), i, {}});
      pieces.back().nests.push_back(nests[i]);
    }
  return pieces;
}

}  // namespace

codegen::Compiled compile_nests(const loop::Program& program, const std::vector<std::vector<uint32_t>>& runs,
                                const Options& options, const Targets& targets) {
  // By generator, and by device: of two equal GPUs each has kernels of its own.
  struct Group {
    codegen::CodeGenerator* generator = nullptr;
    std::vector<codegen::Run> runs;
    std::vector<uint32_t> nests;
  };
  std::map<std::tuple<int, int, std::string_view>, Group> groups;
  for (Piece& piece : pieces_of(program, runs, options, targets)) {
    const Target& target = targets.of(piece.device);
    if (target.is_gpu() && !target.unavailable.empty())
      throw Unsupported(Reason::UnsupportedTensor, target.unavailable);
    Group& g = groups[{static_cast<int>(piece.device.type), piece.device.index, piece.generator->name()}];
    g.generator = piece.generator;
    for (uint32_t i = 0; i < piece.nests.size(); ++i) g.nests.push_back(piece.first + i);
    g.runs.push_back(std::move(piece.nests));
  }
  codegen::Compiled out;
  std::map<uint32_t, codegen::Launch> launches;  // by their first nest
  for (auto& [key, group] : groups) {
    codegen::Compiled part = group.generator->compile(program, group.runs, options);
    auto kernels = static_cast<uint32_t>(out.kernels.size()), blobs = static_cast<uint32_t>(out.blobs.size());
    size_t next = 0;
    for (codegen::Launch& l : part.launches) {
      l.kernel += kernels;
      const uint32_t first = group.nests[next];
      next += l.nests;
      launches.emplace(first, std::move(l));
    }
    for (codegen::CompiledKernel& k : part.kernels) {
      k.blob += blobs;
      out.kernels.push_back(std::move(k));
    }
    for (std::string& b : part.blobs) out.blobs.push_back(std::move(b));
  }
  for (auto& [first, launch] : launches) out.launches.push_back(std::move(launch));
  return out;
}

std::string sources_of(const loop::Program& program, const std::vector<std::vector<uint32_t>>& runs,
                       const Options& options, const Targets& targets) {
  std::string text;
  for (const Piece& piece : pieces_of(program, runs, options, targets))
    text += piece.generator->source(program, piece.nests, options) + "\n";
  return text;
}

}  // namespace braze::driver
