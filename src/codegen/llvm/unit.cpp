#include "codegen/llvm/unit.h"

#include "base/check.h"
#include "base/strict.h"
#include "codegen/llvm/headers.h"

namespace braze::codegen::ir {

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

}  // namespace braze::codegen::ir
