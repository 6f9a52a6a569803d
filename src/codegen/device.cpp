#include "codegen/codegen.h"
#include "loop/analysis.h"

namespace braze::codegen {

Device device_of(const loop::Program& program, const loop::Nest& nest) {
  return loop::device_of(program, nest).value_or(Device{});
}

}  // namespace braze::codegen
