#include "base/check.h"
#include "codegen/codegen.h"
#include "loop/analysis.h"

namespace braze::codegen {

Device device_of(const loop::Program& program, const loop::Nest& nest) {
  if (auto device = loop::device_of(program, nest)) return *device;
  throw InternalError("nest " + nest.name + " stores nothing");
}

}  // namespace braze::codegen
