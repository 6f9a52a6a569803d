// The machines that a program runs on, by the devices of its tensors.
#pragma once
#include <map>

#include "base/target.h"
#include "graph/types.h"

namespace braze {

struct Targets {
  Target cpu;
  std::map<int, Target> gpus;  // by the device's number

  // Of a device that no kernel is made for, the CPU. Throws InternalError for a GPU that is not among them.
  const Target& of(Device device) const;
  // "cuda" without a number is the first.
  static int number_of(Device gpu) { return gpu.index < 0 ? 0 : gpu.index; }
};

}  // namespace braze
