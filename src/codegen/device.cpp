#include "base/check.h"
#include "codegen/codegen.h"

namespace braze::codegen {

Device device_of(const loop::Program& program, const loop::Nest& nest) {
  for (const loop::Stage& s : nest.stages)
    for (const loop::LoopOp& op : s.ops)
      if (op.code == loop::OpCode::Store && program.buffers[op.buffer].kind != loop::BufferKind::Local)
        return program.buffers[op.buffer].device;
  throw InternalError("nest " + nest.name + " stores nothing");
}

}  // namespace braze::codegen
