#include <elf.h>

#include <cstring>

#include "codegen/cpu/relocations.h"

namespace braze::codegen::cpu {
namespace {

Relocation aarch64_kind(uint32_t type, bool is_defined) {
  switch (type) {
    case R_AARCH64_ABS64: return {Reach::Symbol, 8, false};
    case R_AARCH64_PREL32:
    case R_AARCH64_ADR_PREL_PG_HI21:
    case R_AARCH64_ADD_ABS_LO12_NC:
    case R_AARCH64_LDST8_ABS_LO12_NC:
    case R_AARCH64_LDST16_ABS_LO12_NC:
    case R_AARCH64_LDST32_ABS_LO12_NC:
    case R_AARCH64_LDST64_ABS_LO12_NC:
    case R_AARCH64_LDST128_ABS_LO12_NC: return {Reach::Symbol, 4, true};
    case R_AARCH64_CALL26:
    case R_AARCH64_JUMP26: return {is_defined ? Reach::Symbol : Reach::EntryCode, 4, false};
    case R_AARCH64_ADR_GOT_PAGE:
    case R_AARCH64_LD64_GOT_LO12_NC: return {Reach::EntryAddress, 4, false};
    default: refuse_link("a relocation of type " + std::to_string(type));
  }
}

int64_t fit(int64_t distance, int bits) {
  if (distance < -(int64_t{1} << (bits - 1)) || distance >= int64_t{1} << (bits - 1))
    refuse_link("an address too far away");
  return distance;
}

// Sets the bits of an instruction from `first` on; they are 0 in an object.
void set_bits(char* at, uint64_t bits, int count, int first) {
  uint32_t word;
  std::memcpy(&word, at, sizeof word);
  auto mask = static_cast<uint32_t>((uint64_t{1} << count) - 1);
  word = (word & ~(mask << first)) | (static_cast<uint32_t>(bits) & mask) << first;
  std::memcpy(at, &word, sizeof word);
}

// The low 12 bits of an address, counted in elements of 2^scale bytes.
void set_low_bits(char* at, uint64_t value, int scale) {
  uint64_t low = value & 0xfff;
  if (low & ((uint64_t{1} << scale) - 1)) refuse_link("an address that is not aligned as its access says");
  set_bits(at, low >> scale, 12, 10);
}

void write_aarch64(char* at, uint64_t place, uint32_t type, uint64_t value) {
  auto distance = static_cast<int64_t>(value - place);
  switch (type) {
    case R_AARCH64_ABS64: std::memcpy(at, &value, 8); return;
    case R_AARCH64_PREL32: {
      auto narrow = static_cast<int32_t>(fit(distance, 32));
      std::memcpy(at, &narrow, sizeof narrow);
      return;
    }
    case R_AARCH64_CALL26:
    case R_AARCH64_JUMP26:
      if (distance & 3) refuse_link("a jump into an instruction");
      set_bits(at, static_cast<uint64_t>(fit(distance, 28) >> 2), 26, 0);
      return;
    case R_AARCH64_ADR_PREL_PG_HI21:
    case R_AARCH64_ADR_GOT_PAGE: {  // pages of 4 KiB between the two
      auto pages = static_cast<uint64_t>(fit(static_cast<int64_t>((value >> 12) - (place >> 12)), 21));
      set_bits(at, pages, 2, 29);
      set_bits(at, pages >> 2, 19, 5);
      return;
    }
    case R_AARCH64_LDST16_ABS_LO12_NC: set_low_bits(at, value, 1); return;
    case R_AARCH64_LDST32_ABS_LO12_NC: set_low_bits(at, value, 2); return;
    case R_AARCH64_LDST64_ABS_LO12_NC:
    case R_AARCH64_LD64_GOT_LO12_NC: set_low_bits(at, value, 3); return;
    case R_AARCH64_LDST128_ABS_LO12_NC: set_low_bits(at, value, 4); return;
    default: set_low_bits(at, value, 0); return;  // ADD, and accesses of bytes
  }
}

void write_aarch64_jump(char* at) {
  static constexpr uint32_t kJump[] = {0x58ffffd0, 0xd61f0200};  // ldr x16, .-8; br x16
  std::memcpy(at, kJump, sizeof kJump);
}

}  // namespace

const Relocations& aarch64_relocations() {
  static constexpr Relocations row{EM_AARCH64, "AArch64", 0, aarch64_kind, write_aarch64, write_aarch64_jump};
  return row;
}

}  // namespace braze::codegen::cpu
