#include "capture/cpython/opcodes.h"

namespace braze::capture {

std::string_view opcode_name(Opcode op) {
  static constexpr std::string_view names[] = {
#define BRAZE_OPCODE(name) #name,
#include "capture/cpython/opcodes.def"
#undef BRAZE_OPCODE
  };
  return names[static_cast<size_t>(op)];
}

}  // namespace braze::capture
