#include "codegen/unit.h"

#include <cstdio>

#include "base/check.h"
#include "base/hash.h"
#include "base/strict.h"
#include "codegen/llvm_headers.h"

namespace braze::codegen {

Unit::Unit() = default;
Unit::Unit(Unit&&) noexcept = default;
Unit& Unit::operator=(Unit&& o) noexcept {
  module = std::move(o.module);  // before the context that it lives in
  context = std::move(o.context);
  return *this;
}
Unit::~Unit() = default;

Unit make_unit(const std::string& name, llvm::TargetMachine& machine) {
  Unit u;
  u.context = std::make_unique<llvm::LLVMContext>();
  u.context->setDiscardValueNames(true);
  u.module = std::make_unique<llvm::Module>(name, *u.context);
  u.module->setDataLayout(machine.createDataLayout());
  u.module->setTargetTriple(machine.getTargetTriple().str());
  return u;
}

void verify(const llvm::Module& module, const std::string& nest) {
  if (!strict() && !verifying()) return;
  std::string text;
  llvm::raw_string_ostream stream(text);
  if (!llvm::verifyModule(module, &stream)) return;
  module.print(stream, nullptr);
  throw InternalError("invalid LLVM IR for nest " + nest + ": " + text);
}

void optimise(llvm::Module& module, llvm::TargetMachine& machine) {
  llvm::FunctionAnalysisManager analyses;
  analyses.registerPass([] { return llvm::PassInstrumentationAnalysis(); });
  analyses.registerPass([] { return llvm::DominatorTreeAnalysis(); });
  analyses.registerPass([] { return llvm::AssumptionAnalysis(); });
  analyses.registerPass(
      [&] { return llvm::TargetLibraryAnalysis(llvm::TargetLibraryInfoImpl(machine.getTargetTriple())); });
  analyses.registerPass([&] { return machine.getTargetIRAnalysis(); });
  llvm::FunctionPassManager passes;
  passes.addPass(llvm::EarlyCSEPass());
  for (llvm::Function& f : module)
    if (!f.isDeclaration()) passes.run(f, analyses);
}

std::string symbol_of(const std::string& fingerprint, const std::string& key) {
  Hasher low, high;
  low.add(fingerprint), low.add(key);
  high.add(1), high.add(fingerprint), high.add(key);
  char text[2 * 16 + 1];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(low.value()),
                static_cast<unsigned long long>(high.value()));
  return std::string("braze_") + text;
}

CompiledKernel* DistinctKernels::add(const Signature& signature, const std::string& key) {
  auto [it, fresh] = by_key_.try_emplace(key, static_cast<uint32_t>(out_.kernels.size()));
  out_.kernel_of.push_back(it->second);
  out_.buffers_of.push_back(signature.buffers);
  out_.sizes_of.push_back(signature.sizes);
  if (!fresh) return nullptr;
  CompiledKernel& k = out_.kernels.emplace_back();
  k.symbol = symbol_of(fingerprint_, key);
  k.buffers = signature.buffers;
  k.sizes = signature.sizes;
  k.blob = it->second;
  return &k;
}

}  // namespace braze::codegen
