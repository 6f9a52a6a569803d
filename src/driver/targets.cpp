#include "driver/targets.h"

#include "base/check.h"
#include "codegen/codegen.h"
#include "runtime/cuda/driver.h"

namespace braze::driver {
namespace {

void add(Targets& targets, Device device) {
  if (device.type != DeviceType::CUDA || targets.gpus.contains(Targets::number_of(device))) return;
  Target& t = targets.gpus[Targets::number_of(device)];
  try {
    t = runtime::cuda::target(Targets::number_of(device));
  } catch (const Unsupported& e) {
    t = h200();
    t.unavailable = e.detail();
  }
}

}  // namespace

Targets targets_of(const graph::Graph& graph, const Options& options) {
  Targets targets{codegen::cpu_target(), {}};
  if (options.codegen == Codegen::Cpp) targets.cpu.strips = false;
  targets.cpu.prefers_channels_last = options.convolution_layout == ConvolutionLayout::ChannelsLast;
  for (const graph::Value& v : graph.values()) add(targets, v.type.device);
  return targets;
}

Targets targets_of(const loop::Program& program) {
  Targets targets{codegen::cpu_target(), {}};
  for (size_t i = 0; i < program.buffers.size(); ++i) add(targets, program.buffers[loop::BufferId(i)].device);
  return targets;
}

}  // namespace braze::driver
