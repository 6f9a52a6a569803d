#include "codegen/cpu/builder.h"

#include "codegen/cpu/library.h"

namespace braze::codegen::cpu {

void CpuBuilder::set_attributes(llvm::Function& f) {
  f.setDoesNotThrow();
  f.addFnAttr("target-cpu", machine_.getTargetCPU());
  f.addFnAttr("target-features", machine_.getTargetFeatureString());
  f.addFnAttr("no-trapping-math", "true");
  f.addFnAttr("denormal-fp-math", "ieee,ieee");
}

Value* CpuBuilder::call_library(std::string_view name, llvm::ArrayRef<Value*> operands) {
  Type* element = operands[0]->getType()->getScalarType();
  bool wide = element->isDoubleTy();
  unsigned n = lanes(operands[0]);
  // The shortest vectors of the library that hold all lanes, or its longest ones.
  unsigned bits = wide ? 64 : 32, most = static_cast<unsigned>(target.vector_bits) / bits,
           least = static_cast<unsigned>(target.library_bits) / bits;
  unsigned piece = most;
  while (piece > least && n <= piece / 2) piece /= 2;
  std::string symbol = least ? library_symbol(name, wide, piece) : "";
  if (n == 1 || symbol.empty()) return VectorBuilder::call_library(name, operands);

  auto* type = llvm::FixedVectorType::get(element, piece);
  auto callee = declare(symbol, type, llvm::SmallVector<Type*, 2>(operands.size(), type));
  auto* f = llvm::cast<llvm::Function>(callee.getCallee());
  f->setMemoryEffects(llvm::MemoryEffects::none());
  f->setWillReturn();
  f->addFnAttr("min-legal-vector-width", std::to_string(target.vector_bits));
  // Vectors of other lengths in pieces; lanes that a piece has too many repeat the first.
  llvm::SmallVector<Value*, 4> results;
  for (unsigned start = 0; start < n; start += piece) {
    llvm::SmallVector<Value*, 2> args;
    for (Value* v : operands) {
      llvm::SmallVector<int, 16> from;
      for (unsigned l = 0; l < piece; ++l) from.push_back(static_cast<int>(start + l < n ? start + l : start));
      args.push_back(n == piece ? v : B.CreateShuffleVector(v, from));
    }
    results.push_back(B.CreateCall(callee, args));
  }
  while (results.size() > 1) {
    llvm::SmallVector<int, 64> all;
    for (unsigned l = 0; l < 2 * lanes(results[0]); ++l) all.push_back(static_cast<int>(l));
    llvm::SmallVector<Value*, 4> joined;
    for (size_t i = 0; i + 1 < results.size(); i += 2)
      joined.push_back(B.CreateShuffleVector(results[i], results[i + 1], all));
    results = std::move(joined);
  }
  if (n >= piece) return results[0];
  llvm::SmallVector<int, 16> first;
  for (unsigned l = 0; l < n; ++l) first.push_back(static_cast<int>(l));
  return B.CreateShuffleVector(results[0], first);
}

}  // namespace braze::codegen::cpu
