#include "codegen/llvm/interleave.h"

#include <llvm/ADT/SmallPtrSet.h>

namespace braze::codegen::ir {
namespace {

using llvm::Instruction;

// Nothing but arithmetic, which any place suits.
bool is_movable(const Instruction& i) {
  return !i.mayReadOrWriteMemory() && !i.isTerminator() && !llvm::isa<llvm::PHINode>(i);
}

}  // namespace

void take_turns(Instruction* before, Instruction* middle, Instruction* last) {
  if (!middle || !last || middle == before || last == middle) return;
  llvm::BasicBlock& block = *middle->getParent();
  const auto begin = before ? std::next(before->getIterator()) : block.begin();
  const auto half = std::next(middle->getIterator()), end = std::next(last->getIterator());
  llvm::SmallPtrSet<const llvm::Value*, 32> earlier;
  for (auto i = begin; i != half; ++i) {
    if (!is_movable(*i)) return;
    earlier.insert(&*i);
  }
  llvm::SmallVector<Instruction*, 64> later;
  for (auto i = half; i != end; ++i) {
    if (!is_movable(*i)) return;
    for (const llvm::Value* operand : i->operands())
      if (earlier.contains(operand)) return;
    later.push_back(&*i);
  }
  auto place = begin;
  for (Instruction* i : later) {
    if (++place == i->getIterator()) return;  // the earlier one is over, the rest follows
    i->moveBefore(block, place);
  }
}

}  // namespace braze::codegen::ir
