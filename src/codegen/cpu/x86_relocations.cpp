#include <elf.h>

#include <cstring>

#include "codegen/cpu/relocations.h"

namespace braze::codegen::cpu {
namespace {

Relocation x86_kind(uint32_t type, bool is_defined) {
  switch (type) {
    case R_X86_64_64: return {Reach::Symbol, 8, false};
    case R_X86_64_PC32: return {Reach::Symbol, 4, true};
    case R_X86_64_PLT32: return {is_defined ? Reach::Symbol : Reach::EntryCode, 4, false};
    case R_X86_64_GOTPCREL:
    case R_X86_64_GOTPCRELX:
    case R_X86_64_REX_GOTPCRELX: return {Reach::EntryAddress, 4, false};
    default: refuse_link("a relocation of type " + std::to_string(type));
  }
}

void write_x86(char* at, uint64_t place, uint32_t type, uint64_t value) {
  if (type != R_X86_64_64) {
    value -= place;
    auto distance = static_cast<int64_t>(value);
    if (distance != static_cast<int32_t>(distance)) refuse_link("an address too far away");
  }
  std::memcpy(at, &value, type == R_X86_64_64 ? 8 : 4);  // little-endian
}

void write_x86_jump(char* at) {
  static constexpr unsigned char kJump[] = {0xff, 0x25, 0xf2, 0xff, 0xff, 0xff};  // jmp *-14(%rip)
  std::memcpy(at, kJump, sizeof kJump);
}

}  // namespace

const Relocations& x86_relocations() {
  static constexpr Relocations row{EM_X86_64, "x86-64", SHT_X86_64_UNWIND, x86_kind, write_x86, write_x86_jump};
  return row;
}

}  // namespace braze::codegen::cpu
