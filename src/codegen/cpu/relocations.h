// How addresses are written into the machine code of one architecture, for the loader.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace braze::codegen::cpu {

// What a relocation's value is the address of. What may be too far away for its field has an entry beside the code: its
// address, and code that jumps there.
enum class Reach : uint8_t { Symbol, EntryAddress, EntryCode };

struct Relocation {
  Reach reach;
  size_t bytes;      // that are written
  bool inside_only;  // a distance that has no entry: the symbol is to be defined in the object
};

struct Relocations {
  uint16_t machine;  // e_machine of an object's ELF header
  const char* name;  // of the architecture
  uint32_t unwind;   // section type of tables for exceptions, which are left out; 0: it has no type for them
  // Throws InternalError for a type that kernels do not have.
  Relocation (*of)(uint32_t type, bool is_defined);
  // Writes at `at` what makes the field there mean `value`; `place` is the address that `at` will have. Throws
  // InternalError where the field cannot hold it.
  void (*write)(char* at, uint64_t place, uint32_t type, uint64_t value);
  // The code of an entry, kEntryCode bytes, which jumps to the address in the 8 bytes before it.
  void (*write_jump)(char* at);
};
inline constexpr size_t kEntryCode = 8;

const Relocations& x86_relocations();
const Relocations& aarch64_relocations();

[[noreturn]] void refuse_link(const std::string& why);

}  // namespace braze::codegen::cpu
