// Jumps, iteration, and branches on what only the run knows.
#include "capture/eval/checks.h"
#include "capture/eval/instructions/instructions.h"
#include "capture/eval/size_floats.h"
#include "capture/vars/all.h"
#include "capture/vars/tensor_number.h"

namespace braze::capture {

void Instructions::Jump(Execution& x) { x.next = x.ins.target; }
void Instructions::JumpBackward(Execution& x) { Jump(x); }

// A branch whose other side only raises, on what only the run knows: the run checks it.
static bool checked_in_run(Execution& x) {
  // A float of the program's that nobody looked at is compared by a guard.
  const bool may = x.tr.view().checks && !x.tr.view().fixed_sizes && !open_float(x.f.top());
  if (!may && !x.tr.may_be_unbacked()) return false;
  OpenNumbers open(x.tr);
  const auto& all = x.f.code->instructions;
  auto raises = static_cast<size_t>(x.next);
  while (raises < all.size() && all[raises].op == Opcode::Nop) ++raises;
  if (x.ins.op == Opcode::PopJumpIfTrue && raises < all.size() && all[raises].op == Opcode::LoadAssertionError) {
    const Instruction& after = all[raises + 1];
    Variable* message = after.op == Opcode::LoadConst ? x.tr.load_const(x.f.code->constant(after.arg)) : nullptr;
    if (assume(x.tr, x.f.top(), "AssertionError", message)) {
      x.next = x.ins.target;
      return true;
    }
  }
  return check_in_run(x.tr, x.f, x.ins, x.next);
}

void Instructions::PopJumpIfTrue(Execution& x) {
  if (checked_in_run(x)) {
    x.f.pop();
    return;
  }
  bool t = x.tr.truth(x.f.pop());
  if (t == (x.ins.op == Opcode::PopJumpIfTrue)) x.next = x.ins.target;
}
void Instructions::PopJumpIfFalse(Execution& x) { PopJumpIfTrue(x); }

void Instructions::PopJumpIfNone(Execution& x) {
  bool n = is_none(x.tr.force(x.f.pop()));
  if (n == (x.ins.op == Opcode::PopJumpIfNone)) x.next = x.ins.target;
}
void Instructions::PopJumpIfNotNone(Execution& x) { PopJumpIfNone(x); }

void Instructions::JumpIfTrueOrPop(Execution& x) {
  bool t = x.tr.truth(x.f.top());
  if (t == (x.ins.op == Opcode::JumpIfTrueOrPop))
    x.next = x.ins.target;
  else
    x.f.pop();
}
void Instructions::JumpIfFalseOrPop(Execution& x) { JumpIfTrueOrPop(x); }

void Instructions::GetIter(Execution& x) {
  Variable* it = x.tr.iter(x.f.pop());
  x.f.push(it);
}

void Instructions::ForIter(Execution& x) {
  Variable* v = x.tr.next(x.f.top());
  if (v) {
    x.f.push(v);
  } else {
    x.f.pop();
    x.next = x.ins.target;
  }
}

}  // namespace braze::capture
