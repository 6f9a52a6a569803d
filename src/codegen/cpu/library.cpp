#include "codegen/cpu/library.h"

#include <dlfcn.h>

#include <array>
#include <unordered_set>

#include "base/cpu.h"

namespace braze::codegen::cpu {
namespace {

struct Row {
  std::string_view name;
  std::string_view suffix;  // SLEEF's bound on the error, in tenths of a unit in the last place
};
constexpr Row kRows[] = {
    {"exp", "_u10"},   {"exp2", "_u10"}, {"expm1", "_u10"}, {"log", "_u10"},  {"log2", "_u10"},  {"log10", "_u10"},
    {"log1p", "_u10"}, {"sin", "_u10"},  {"cos", "_u10"},   {"tan", "_u10"},  {"asin", "_u10"},  {"acos", "_u10"},
    {"atan", "_u10"},  {"sinh", "_u10"}, {"cosh", "_u10"},  {"tanh", "_u10"}, {"asinh", "_u10"}, {"acosh", "_u10"},
    {"atanh", "_u10"}, {"erf", "_u10"},  {"erfc", "_u15"},  {"pow", "_u10"},  {"atan2", "_u10"},
};

// Both element types in the vectors of NEON, or of AVX2 and AVX-512.
constexpr auto kShapes = kHostArchitecture == Target::Architecture::AArch64
                             ? std::array<std::string_view, 4>{"f4", "d2"}
                             : std::array<std::string_view, 4>{"f8", "f16", "d4", "d8"};

std::string symbol_of(const Row& row, std::string_view shape) {
  return "Sleef_" + std::string(row.name) + std::string(shape) + std::string(row.suffix);
}

std::vector<std::pair<std::string, void*>> find_symbols() {
  std::vector<std::pair<std::string, void*>> found;
  // Only if it is loaded already: Python loads it so that a plain dlsym does not see it.
  void* library = dlopen("libtorch_cpu.so", RTLD_NOLOAD | RTLD_LAZY);
  if (!library) return found;
  for (const Row& row : kRows)
    for (std::string_view shape : kShapes) {
      if (shape.empty()) continue;
      std::string symbol = symbol_of(row, shape);
      if (void* address = dlsym(library, symbol.c_str())) found.emplace_back(std::move(symbol), address);
    }
  return found;
}

bool available(const std::string& symbol) {
  static const auto* names = [] {
    auto* set = new std::unordered_set<std::string>;
    for (auto& s : library_symbols()) set->insert(s.first);
    return set;
  }();
  return names->contains(symbol);
}

}  // namespace

const std::vector<std::pair<std::string, void*>>& library_symbols() {
  static const auto* symbols = new std::vector<std::pair<std::string, void*>>(find_symbols());
  return *symbols;
}

std::string library_symbol(std::string_view name, bool wide, unsigned lanes) {
  for (const Row& row : kRows)
    if (row.name == name) {
      std::string symbol = symbol_of(row, (wide ? "d" : "f") + std::to_string(lanes));
      return available(symbol) ? symbol : "";
    }
  return "";
}

}  // namespace braze::codegen::cpu
