#include "codegen/cpu/library.h"

#include <dlfcn.h>

#include <unordered_set>

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

// Both element types in the vectors of AVX2 and AVX-512.
constexpr std::string_view kShapes[] = {"f8", "f16", "d4", "d8"};

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

Value* call_library(VectorBuilder& b, std::string_view name, llvm::ArrayRef<Value*> operands) {
  Type* element = operands[0]->getType()->getScalarType();
  bool wide = element->isDoubleTy();
  unsigned n = VectorBuilder::lanes(operands[0]);
  unsigned most = b.isa.avx512 ? (wide ? 8 : 16) : b.isa.avx2 ? (wide ? 4 : 8) : 0, least = wide ? 4 : 8;
  unsigned piece = most;
  while (piece > least && n <= piece / 2) piece /= 2;
  std::string symbol;
  for (const Row& row : kRows)
    if (row.name == name) symbol = symbol_of(row, (wide ? "d" : "f") + std::to_string(piece));
  if (n == 1 || !most || symbol.empty() || !available(symbol))
    return b.call_per_lane(std::string(name) + (wide ? "" : "f"), element, operands);

  auto* type = llvm::FixedVectorType::get(element, piece);
  auto callee = b.declare(symbol, type, llvm::SmallVector<Type*, 2>(operands.size(), type));
  auto* f = llvm::cast<llvm::Function>(callee.getCallee());
  f->setMemoryEffects(llvm::MemoryEffects::none());
  f->setWillReturn();
  f->addFnAttr("min-legal-vector-width", std::to_string(b.isa.bits));
  // Vectors of other lengths in pieces; lanes that a piece has too many repeat the first.
  llvm::SmallVector<Value*, 4> results;
  for (unsigned start = 0; start < n; start += piece) {
    llvm::SmallVector<Value*, 2> args;
    for (Value* v : operands) {
      llvm::SmallVector<int, 16> from;
      for (unsigned l = 0; l < piece; ++l) from.push_back(static_cast<int>(start + l < n ? start + l : start));
      args.push_back(n == piece ? v : b.B.CreateShuffleVector(v, from));
    }
    results.push_back(b.B.CreateCall(callee, args));
  }
  while (results.size() > 1) {
    llvm::SmallVector<int, 64> all;
    for (unsigned l = 0; l < 2 * VectorBuilder::lanes(results[0]); ++l) all.push_back(static_cast<int>(l));
    llvm::SmallVector<Value*, 4> joined;
    for (size_t i = 0; i + 1 < results.size(); i += 2)
      joined.push_back(b.B.CreateShuffleVector(results[i], results[i + 1], all));
    results = std::move(joined);
  }
  if (n >= piece) return results[0];
  llvm::SmallVector<int, 16> first;
  for (unsigned l = 0; l < n; ++l) first.push_back(static_cast<int>(l));
  return b.B.CreateShuffleVector(results[0], first);
}

}  // namespace braze::codegen::cpu
