// One instruction set for all CPython versions. A decoder per version (decode_*.cpp) maps to it; nothing else knows
// version-specific numbers. The rows and their stack effects are in opcodes.def.
#pragma once
#include <cstdint>
#include <string_view>

namespace braze::capture {

enum class Opcode : uint8_t {
#define BRAZE_OPCODE(name) name,
#include "capture/cpython/opcodes.def"
#undef BRAZE_OPCODE
};
std::string_view opcode_name(Opcode);

}  // namespace braze::capture
