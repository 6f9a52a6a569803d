#include "graph/targets.h"

#include "base/check.h"

namespace braze {

const Target& Targets::of(Device device) const {
  if (device.type != DeviceType::CUDA) return cpu;
  auto it = gpus.find(number_of(device));
  BRAZE_CHECK(it != gpus.end(), "GPU " + std::to_string(number_of(device)) + " is no target of this program");
  return it->second;
}

}  // namespace braze
