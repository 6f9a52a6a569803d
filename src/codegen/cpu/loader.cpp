// Links the objects of the CPU generator into the process. A linker for what such an object holds and nothing
// else: constant sections, calls, and addresses relative to code. Code is never removed: a symbol is named by its
// content.
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "base/check.h"
#include "base/cpu.h"
#include "base/fork_mutex.h"
#include "codegen/codegen.h"
#include "codegen/cpu/architecture.h"
#include "codegen/cpu/runtime_symbols.h"

namespace braze::codegen {
namespace {

using cpu::Reach;
using cpu::Relocation;
using cpu::Relocations;

void require(bool holds, const char* why) {
  if (!holds) cpu::refuse_link(why);
}

size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

// An object file, every read of which is checked against its end.
class Object {
 public:
  Object(const std::string& bytes, const Relocations& machine) : machine(machine), bytes_(bytes) {
    auto header = read<Elf64_Ehdr>(0);
    if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
        header.e_type != ET_REL || header.e_machine != machine.machine || header.e_shentsize != sizeof(Elf64_Shdr))
      cpu::refuse_link(std::string("not a relocatable object for ") + machine.name);
    sections = read_all<Elf64_Shdr>(header.e_shoff, header.e_shnum);
    for (const Elf64_Shdr& s : sections) {
      if (s.sh_type != SHT_SYMTAB) continue;
      require(symbols.empty() && s.sh_link < sections.size() && s.sh_entsize == sizeof(Elf64_Sym),
              "an odd symbol table");
      symbols = read_all<Elf64_Sym>(s.sh_offset, s.sh_size / sizeof(Elf64_Sym));
      names_ = sections[s.sh_link];
    }
  }

  const char* data(const Elf64_Shdr& s) const {
    require(s.sh_offset <= bytes_.size() && s.sh_size <= bytes_.size() - s.sh_offset, "a section past the end");
    return bytes_.data() + s.sh_offset;
  }
  std::string name(const Elf64_Sym& symbol) const {
    const char* all = data(names_);
    require(symbol.st_name < names_.sh_size, "a name past the end");
    return {all + symbol.st_name, strnlen(all + symbol.st_name, names_.sh_size - symbol.st_name)};
  }
  std::vector<Elf64_Rela> relocations(const Elf64_Shdr& s) const {
    return read_all<Elf64_Rela>(s.sh_offset, s.sh_size / sizeof(Elf64_Rela));
  }

  const Relocations& machine;
  std::vector<Elf64_Shdr> sections;
  std::vector<Elf64_Sym> symbols;

 private:
  template <class T>
  T read(size_t at) const {
    return read_all<T>(at, 1)[0];
  }
  template <class T>
  std::vector<T> read_all(size_t at, size_t n) const {
    require(at <= bytes_.size() && n <= (bytes_.size() - at) / sizeof(T), "a table past the end");
    std::vector<T> out(n);
    if (n) std::memcpy(out.data(), bytes_.data() + at, n * sizeof(T));
    return out;
  }

  const std::string& bytes_;
  Elf64_Shdr names_{};
};

// Where the parts of an object come to lie: its sections, then one entry per symbol that is reached through memory,
// because it may be too far away for a relative address. An entry is the address, and code that jumps there.
class Image {
 public:
  explicit Image(const Object& object) : object_(object), place_(object.sections.size(), kNowhere) {
    for (size_t i = 0; i < object.sections.size(); ++i) {
      const Elf64_Shdr& s = object.sections[i];
      // Nothing is thrown through a kernel; assemblers make sections of data that stay empty, and notes.
      if (!(s.sh_flags & SHF_ALLOC) || s.sh_type == object.machine.unwind || s.sh_type == SHT_NOTE || !s.sh_size)
        continue;
      require(!(s.sh_flags & (SHF_WRITE | SHF_TLS)) && s.sh_type == SHT_PROGBITS && s.sh_addralign <= kMostAligned,
              "a section of another kind than code and constants");
      (void)object.data(s);
      bytes_ = round_up(bytes_, std::max<size_t>(s.sh_addralign, 1));
      place_[i] = bytes_;
      bytes_ += s.sh_size;
    }
    for_each_relocation([&](const Elf64_Shdr&, size_t, const Elf64_Rela& r) {
      if (kind_of(r).reach == Reach::Symbol) return;
      if (entries_.try_emplace(ELF64_R_SYM(r.r_info), entries_.size()).second) names_.push_back(ELF64_R_SYM(r.r_info));
    });
    first_entry_ = round_up(bytes_, kEntry);
    bytes_ = first_entry_ + entries_.size() * kEntry;
  }

  // The symbols' addresses, in the order asked for.
  std::vector<void*> link(const std::vector<std::string>& wanted) {
    size_t mapped = round_up(std::max<size_t>(bytes_, 1), static_cast<size_t>(sysconf(_SC_PAGESIZE)));
    void* memory = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) cpu::refuse_link(std::string("no memory: ") + std::strerror(errno));
    base_ = static_cast<char*>(memory);
    try {
      for (size_t i = 0; i < place_.size(); ++i)
        if (place_[i] != kNowhere)
          std::memcpy(base_ + place_[i], object_.data(object_.sections[i]), object_.sections[i].sh_size);
      for (size_t i = 0; i < names_.size(); ++i) write_entry(i, address_of(names_[i]));
      for_each_relocation(
          [&](const Elf64_Shdr& target, size_t place, const Elf64_Rela& r) { relocate(target, place, r); });
      std::vector<void*> out = find(wanted);
      __builtin___clear_cache(base_, base_ + mapped);  // of instructions, where it does not see what is stored
      if (mprotect(memory, mapped, PROT_READ | PROT_EXEC) != 0)
        cpu::refuse_link(std::string("the system does not let memory be executed: ") + std::strerror(errno));
      return out;
    } catch (...) {
      munmap(memory, mapped);
      throw;
    }
  }

 private:
  static constexpr size_t kNowhere = SIZE_MAX, kEntry = sizeof(char*) + cpu::kEntryCode, kMostAligned = 4096;

  // f(section that is changed, its place, relocation) for what changes sections of the image.
  template <class F>
  void for_each_relocation(F&& f) const {
    for (const Elf64_Shdr& s : object_.sections) {
      require(s.sh_type != SHT_REL, "relocations without addends");
      if (s.sh_type != SHT_RELA) continue;
      require(s.sh_info < place_.size(), "relocations of no section");
      if (place_[s.sh_info] == kNowhere) continue;
      for (const Elf64_Rela& r : object_.relocations(s)) {
        require(ELF64_R_SYM(r.r_info) < object_.symbols.size(), "a relocation to no symbol");
        f(object_.sections[s.sh_info], place_[s.sh_info], r);
      }
    }
  }
  bool is_defined(size_t symbol) const { return object_.symbols[symbol].st_shndx != SHN_UNDEF; }
  Relocation kind_of(const Elf64_Rela& r) const {
    return object_.machine.of(ELF64_R_TYPE(r.r_info), is_defined(ELF64_R_SYM(r.r_info)));
  }
  char* address_of(size_t symbol) const {
    const Elf64_Sym& s = object_.symbols[symbol];
    if (!is_defined(symbol)) return static_cast<char*>(runtime_symbol(object_.name(s)));
    require(s.st_shndx < place_.size() && place_[s.st_shndx] != kNowhere &&
                s.st_value <= object_.sections[s.st_shndx].sh_size,
            "a symbol in no section");
    return base_ + place_[s.st_shndx] + s.st_value;
  }
  static void* runtime_symbol(const std::string& name) {
    static const auto* table = [] {
      auto* t = new std::unordered_map<std::string, void*>;
      for (const auto& [symbol, address] : cpu::runtime_symbols()) t->emplace(symbol, address);
      return t;
    }();
    auto it = table->find(name);
    if (it == table->end()) cpu::refuse_link("no symbol " + name);
    return it->second;
  }

  char* entry(size_t i) const { return base_ + first_entry_ + i * kEntry; }
  void write_entry(size_t i, char* address) const {
    std::memcpy(entry(i), &address, sizeof address);
    object_.machine.write_jump(entry(i) + sizeof address);
  }

  void relocate(const Elf64_Shdr& target, size_t place, const Elf64_Rela& r) const {
    size_t symbol = ELF64_R_SYM(r.r_info);
    Relocation kind = kind_of(r);
    require(r.r_offset <= target.sh_size && target.sh_size - r.r_offset >= kind.bytes,
            "a relocation past its section's end");
    require(is_defined(symbol) || !kind.inside_only, "a relative address of something outside");
    const char* to = kind.reach == Reach::Symbol ? address_of(symbol) : entry(entries_.at(symbol));
    if (kind.reach == Reach::EntryCode) to += sizeof(char*);
    char* at = base_ + place + r.r_offset;
    auto number = [](const char* p) { return static_cast<uint64_t>(reinterpret_cast<uintptr_t>(p)); };
    object_.machine.write(at, number(at), ELF64_R_TYPE(r.r_info), number(to) + static_cast<uint64_t>(r.r_addend));
  }

  std::vector<void*> find(const std::vector<std::string>& wanted) const {
    std::vector<void*> out;
    for (const std::string& name : wanted) {
      void* found = nullptr;
      for (size_t i = 0; i < object_.symbols.size() && !found; ++i)
        if (is_defined(i) && ELF64_ST_BIND(object_.symbols[i].st_info) == STB_GLOBAL &&
            object_.name(object_.symbols[i]) == name)
          found = address_of(i);
      if (!found) cpu::refuse_link("no kernel " + name);
      out.push_back(found);
    }
    return out;
  }

  const Object& object_;
  std::vector<size_t> place_;                   // per section: offset in the image
  std::unordered_map<size_t, size_t> entries_;  // by symbol
  std::vector<size_t> names_;                   // the entries' symbols
  size_t bytes_ = 0, first_entry_ = 0;
  char* base_ = nullptr;
};

class CpuLoader final : public Loader {
 public:
  std::vector<void*> load(const std::string& bytes, const std::vector<std::string>& symbols) override {
    std::lock_guard lock(mutex_);
    std::vector<void*> out;
    for (const std::string& s : symbols)
      if (auto it = known_.find(s); it != known_.end()) out.push_back(it->second);
    if (out.size() == symbols.size()) return out;
    BRAZE_CHECK(out.empty(), "an object that repeats a kernel of another one");
    Object object(bytes, cpu::architecture(kHostArchitecture).relocations);
    out = Image(object).link(symbols);
    for (size_t i = 0; i < symbols.size(); ++i) known_[symbols[i]] = out[i];
    return out;
  }

 private:
  ForkMutex mutex_;
  std::unordered_map<std::string, void*> known_;
};

}  // namespace

namespace cpu {
void refuse_link(const std::string& why) { throw InternalError("linking generated code: " + why); }
}  // namespace cpu

Loader& cpu_loader() {
  static auto* loader = new CpuLoader;  // never destroyed: code may run until the process ends
  return *loader;
}

}  // namespace braze::codegen
