// The kernel around the nests that it computes.
#include <algorithm>

#include "codegen/nvptx/emitter.h"

namespace braze::codegen::nvptx {
namespace {

llvm::Function* declare_kernel(const std::vector<Part>& parts, const std::string& symbol, llvm::Module& module) {
  llvm::LLVMContext& context = module.getContext();
  Type *pointer = llvm::PointerType::get(context, 1), *size = Type::getInt64Ty(context);
  llvm::SmallVector<Type*, 8> types;
  for (const Part& p : parts) types.append(p.signature.buffers.size(), pointer);
  for (const Part& p : parts) types.append(p.signature.sizes.size(), size);
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

// Arrays of a block's memory. A block runs one part: those of different parts lie in the same place.
class SharedMemory {
 public:
  void add(const Emitter& part) {
    uint64_t at = 0;
    for (auto [array, bytes] : part.shared()) {
      arrays_.emplace_back(array, at);
      at += bytes;
    }
    size_ = std::max(size_, at);
  }

  void place(llvm::Module& module) {
    if (arrays_.empty()) return;
    Type* byte = Type::getInt8Ty(module.getContext());
    auto* type = llvm::ArrayType::get(byte, size_);
    auto* all =
        new llvm::GlobalVariable(module, type, false, llvm::GlobalValue::InternalLinkage, llvm::UndefValue::get(type),
                                 "shared", nullptr, llvm::GlobalValue::NotThreadLocal, 3);
    all->setAlignment(llvm::Align(16));
    for (auto [array, at] : arrays_) {
      auto* offset = llvm::ConstantInt::get(Type::getInt64Ty(module.getContext()), at);
      array->replaceAllUsesWith(llvm::ConstantExpr::getInBoundsGetElementPtr(byte, all, offset));
      array->eraseFromParent();
    }
  }

 private:
  std::vector<std::pair<llvm::GlobalVariable*, uint64_t>> arrays_;
  uint64_t size_ = 0;
};

}  // namespace

void emit_kernel(const Program& program, const std::vector<Part>& parts, const Target& target, bool early,
                 const std::string& symbol, llvm::Module& module) {
  llvm::Function* function = declare_kernel(parts, symbol, module);
  llvm::LLVMContext& context = module.getContext();
  Place place{function, llvm::BasicBlock::Create(context, "entry", function)};
  llvm::BasicBlock* from = place.begin;  // where the nests that are left are told apart
  for (const Part& part : parts) place.first_size += static_cast<unsigned>(part.signature.buffers.size());
  if (parts.size() == 1) {
    Emitter(program, parts.front(), target, early, module).run(place);
    return;
  }
  SharedMemory shared;
  for (const Part& part : parts) {
    place.begin = from;
    const int64_t end = place.first_block + *program.arena->as_const(part.shape.blocks);
    if (&part != &parts.back()) {
      llvm::IRBuilder<> b(from);
      place.begin = llvm::BasicBlock::Create(context, "", function);
      from = llvm::BasicBlock::Create(context, "", function);
      Value* block = b.CreateIntrinsic(llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_x, {}, {});
      b.CreateCondBr(b.CreateICmpULT(block, b.getInt32(static_cast<uint32_t>(end))), place.begin, from);
    }
    Emitter emitter(program, part, target, early, module);
    emitter.run(place);
    shared.add(emitter);
    place.first_buffer += static_cast<unsigned>(part.signature.buffers.size());
    place.first_size += static_cast<unsigned>(part.signature.sizes.size());
    place.first_block = end;
  }
  shared.place(module);
}

}  // namespace braze::codegen::nvptx
