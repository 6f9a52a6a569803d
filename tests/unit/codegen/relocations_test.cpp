// Addresses in AArch64 code: instructions without them, as LLVM's assembler leaves them, become those that LLVM's
// linker (ld.lld --no-relax) makes of them for the same addresses.
#include <elf.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/check.h"
#include "codegen/cpu/relocations.h"

namespace braze::codegen::cpu {
namespace {

constexpr uint64_t kCode = 0x10000000, kInside = kCode + 0x2c, kData = 0x1234a670, kEntry = 0x20003000;

template <class T>
T written(uint32_t type, T field, uint64_t place, uint64_t value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &field, sizeof field);
  EXPECT_EQ(aarch64_relocations().of(type, true).bytes, sizeof field);
  aarch64_relocations().write(bytes, place, type, value);
  std::memcpy(&field, bytes, sizeof field);
  return field;
}

TEST(AArch64Relocations, AsTheLinkerWritesThem) {
  EXPECT_EQ(written(R_AARCH64_CALL26, 0x94000000u, kCode, kInside), 0x9400000bu);                       // bl
  EXPECT_EQ(written(R_AARCH64_JUMP26, 0x14000000u, kCode + 4, kInside), 0x1400000au);                   // b
  EXPECT_EQ(written(R_AARCH64_ADR_PREL_PG_HI21, 0x90000000u, kCode + 8, kData), 0xd0011a40u);           // adrp
  EXPECT_EQ(written(R_AARCH64_ADD_ABS_LO12_NC, 0x91000000u, kCode + 0xc, kData), 0x9119c000u);          // add
  EXPECT_EQ(written(R_AARCH64_LDST128_ABS_LO12_NC, 0x3dc00000u, kCode + 0x10, kData), 0x3dc19c00u);     // ldr q0
  EXPECT_EQ(written(R_AARCH64_LDST64_ABS_LO12_NC, 0xf9400001u, kCode + 0x14, kData), 0xf9433801u);      // ldr x1
  EXPECT_EQ(written(R_AARCH64_LDST32_ABS_LO12_NC, 0xb9400001u, kCode + 0x18, kData), 0xb9467001u);      // ldr w1
  EXPECT_EQ(written(R_AARCH64_LDST16_ABS_LO12_NC, 0x79400001u, kCode + 0x1c, kData + 2), 0x794ce401u);  // ldrh
  EXPECT_EQ(written(R_AARCH64_LDST8_ABS_LO12_NC, 0x39400001u, kCode + 0x20, kData + 3), 0x3959cc01u);   // ldrb
  EXPECT_EQ(written(R_AARCH64_ADR_GOT_PAGE, 0x90000002u, kCode + 0x24, kEntry), 0xf0080002u);           // adrp
  EXPECT_EQ(written(R_AARCH64_LD64_GOT_LO12_NC, 0xf9400042u, kCode + 0x28, kEntry), 0xf9400042u);       // ldr x2
  EXPECT_EQ(written(R_AARCH64_PREL32, 0u, kData + 0x10, kData), 0xfffffff0u);
  EXPECT_EQ(written(R_AARCH64_ABS64, uint64_t{0}, kData + 0x18, kData), kData);
}

TEST(AArch64Relocations, RefusesWhatDoesNotFit) {
  EXPECT_EQ(written(R_AARCH64_CALL26, 0x94000000u, kCode, kCode - 4), 0x97ffffffu);
  EXPECT_THROW(written(R_AARCH64_CALL26, 0x94000000u, kCode, kCode + (1 << 27)), InternalError);
  EXPECT_THROW(written(R_AARCH64_CALL26, 0x94000000u, kCode, kCode + 2), InternalError);
  EXPECT_THROW(written(R_AARCH64_ADR_PREL_PG_HI21, 0x90000000u, kCode, kCode + (uint64_t{1} << 32)), InternalError);
  EXPECT_THROW(written(R_AARCH64_LDST64_ABS_LO12_NC, 0xf9400001u, kCode, kData + 4), InternalError);
  EXPECT_THROW(written(R_AARCH64_PREL32, 0u, kCode, kCode + (uint64_t{1} << 31)), InternalError);
  EXPECT_THROW(aarch64_relocations().of(R_AARCH64_TLSDESC_CALL, true), InternalError);
}

TEST(AArch64Relocations, ReachesWhatIsOutsideThroughAnEntry) {
  const Relocations& r = aarch64_relocations();
  EXPECT_EQ(r.of(R_AARCH64_CALL26, true).reach, Reach::Symbol);
  EXPECT_EQ(r.of(R_AARCH64_CALL26, false).reach, Reach::EntryCode);
  EXPECT_EQ(r.of(R_AARCH64_LD64_GOT_LO12_NC, false).reach, Reach::EntryAddress);
  EXPECT_TRUE(r.of(R_AARCH64_ADR_PREL_PG_HI21, false).inside_only);
  // ldr x16, .-8; br x16, as llvm-mc writes them.
  uint32_t jump[2];
  static_assert(sizeof jump == kEntryCode);
  r.write_jump(reinterpret_cast<char*>(jump));
  EXPECT_EQ(jump[0], 0x58ffffd0u);
  EXPECT_EQ(jump[1], 0xd61f0200u);
}

}  // namespace
}  // namespace braze::codegen::cpu
