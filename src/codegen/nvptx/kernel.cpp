// The kernel around the nests that it computes.
#include "codegen/nvptx/emitter.h"

namespace braze::codegen::nvptx {
namespace {

llvm::Function* declare_kernel(const std::vector<Part>& parts, const std::string& symbol, llvm::Module& module) {
  llvm::LLVMContext& context = module.getContext();
  Type *pointer = llvm::PointerType::get(context, 1), *size = Type::getInt64Ty(context);
  llvm::SmallVector<Type*, 8> types;
  for (const Part& p : parts) {
    types.append(p.signature.buffers.size(), pointer);
    types.append(p.signature.sizes.size(), size);
  }
  types.push_back(pointer);
  auto* function = llvm::Function::Create(llvm::FunctionType::get(Type::getVoidTy(context), types, false),
                                          llvm::Function::ExternalLinkage, symbol, module);
  function->setDoesNotThrow();
  function->addFnAttr("denormal-fp-math", "ieee,ieee");
  auto* notes = module.getOrInsertNamedMetadata("nvvm.annotations");
  auto note = [&](const char* what, int n) {
    auto* number = llvm::ConstantInt::get(Type::getInt32Ty(context), static_cast<uint64_t>(n));
    llvm::Metadata* facts[] = {llvm::ValueAsMetadata::get(function), llvm::MDString::get(context, what),
                               llvm::ConstantAsMetadata::get(number)};
    notes->addOperand(llvm::MDNode::get(context, facts));
  };
  note("kernel", 1);
  note("maxntidx", parts.front().shape.threads);
  return function;
}

}  // namespace

void emit_kernel(const Program& program, const std::vector<Part>& parts, const Target& target, bool early,
                 const std::string& symbol, llvm::Module& module) {
  llvm::Function* function = declare_kernel(parts, symbol, module);
  llvm::LLVMContext& context = module.getContext();
  Place place{function, llvm::BasicBlock::Create(context, "entry", function)};
  llvm::BasicBlock* from = place.begin;  // where the nests that are left are told apart
  for (size_t i = 0; i < parts.size(); ++i) {
    const Part& part = parts[i];
    if (parts.size() > 1) {
      const int64_t end = place.first_block + *program.arena->as_const(part.shape.blocks);
      place.begin = from;
      if (i + 1 < parts.size()) {
        llvm::IRBuilder<> b(from);
        place.begin = llvm::BasicBlock::Create(context, "", function);
        from = llvm::BasicBlock::Create(context, "", function);
        Value* block = b.CreateIntrinsic(llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_x, {}, {});
        b.CreateCondBr(b.CreateICmpULT(block, b.getInt32(static_cast<uint32_t>(end))), place.begin, from);
      }
      Emitter(program, part, target, early, module).run(place);
      place.first_block = end;
    } else {
      Emitter(program, part, target, early, module).run(place);
    }
    place.argument += static_cast<unsigned>(part.signature.buffers.size() + part.signature.sizes.size());
  }
}

}  // namespace braze::codegen::nvptx
