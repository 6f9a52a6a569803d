#include "base/build_id.h"

#include <elf.h>
#include <link.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace braze {
namespace {

struct Search {
  uintptr_t inside;  // an address in the binary that is looked for
  std::string id;
};

std::string hex(const uint8_t* bytes, size_t n) {
  static const char digits[] = "0123456789abcdef";
  std::string text;
  for (size_t i = 0; i < n; ++i) text += {digits[bytes[i] >> 4], digits[bytes[i] & 15]};
  return text;
}

// The build-id among the notes in [at, end). A name and a description are padded to 4 bytes each.
std::string find_note(const uint8_t* at, const uint8_t* end) {
  auto padded = [](size_t n) { return (n + 3) / 4 * 4; };
  while (end - at >= static_cast<ptrdiff_t>(sizeof(ElfW(Nhdr)))) {
    ElfW(Nhdr) note;
    std::memcpy(&note, at, sizeof note);
    const uint8_t* name = at + sizeof note;
    size_t rest = static_cast<size_t>(end - name);
    if (padded(note.n_namesz) > rest || padded(note.n_descsz) > rest - padded(note.n_namesz)) return {};
    const uint8_t* description = name + padded(note.n_namesz);
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0)
      return hex(description, note.n_descsz);
    at = description + padded(note.n_descsz);
  }
  return {};
}

int visit(dl_phdr_info* info, size_t, void* data) {
  auto& search = *static_cast<Search*>(data);
  bool holds = false;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& p = info->dlpi_phdr[i];
    uintptr_t begin = info->dlpi_addr + p.p_vaddr;
    holds |= p.p_type == PT_LOAD && search.inside >= begin && search.inside - begin < p.p_memsz;
  }
  if (!holds) return 0;
  for (int i = 0; i < info->dlpi_phnum && search.id.empty(); ++i) {
    const auto& p = info->dlpi_phdr[i];
    if (p.p_type != PT_NOTE) continue;
    auto* begin = reinterpret_cast<const uint8_t*>(info->dlpi_addr + p.p_vaddr);
    search.id = find_note(begin, begin + p.p_memsz);
  }
  return 1;
}

const void* user = nullptr;

std::string id_of(const void* inside) {
  Search search{reinterpret_cast<uintptr_t>(inside), {}};
  dl_iterate_phdr(visit, &search);
  return search.id;
}

}  // namespace

void add_to_build_id(const void* inside) { user = inside; }

const std::string& build_id() {
  static const std::string id = [] {
    std::string own = id_of(reinterpret_cast<const void*>(&build_id));
    if (!user) return own;
    std::string other = id_of(user);
    if (own.empty() || other.empty()) return std::string();
    return other == own ? own : own + other;
  }();
  return id;
}

}  // namespace braze
