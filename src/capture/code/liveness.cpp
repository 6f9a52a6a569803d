#include "capture/code/liveness.h"

namespace braze::capture {

bool looks_at_frames(PyCodeObject* code) {
  static const char* names[] = {"locals", "vars", "eval", "exec", "dir", "_getframe", "currentframe"};
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(code->co_names); ++i)
    for (const char* n : names)
      if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(code->co_names, i), n) == 0) return true;
  return false;
}

namespace {

bool falls_through(Opcode op) {
  return op != Opcode::Jump && op != Opcode::JumpBackward && op != Opcode::ReturnValue && op != Opcode::ReturnConst &&
         op != Opcode::RaiseVarargs && op != Opcode::Reraise;
}

}  // namespace

std::vector<bool> live_locals(const Bytecode& code, int instruction) {
  auto slots = static_cast<size_t>(code.num_locals_plus);
  auto count = code.instructions.size();
  if (looks_at_frames(code.code)) return std::vector<bool>(slots, true);
  std::vector<std::vector<bool>> in(count + 1, std::vector<bool>(slots));
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = count; i-- > 0;) {
      const Instruction& ins = code.instructions[i];
      std::vector<bool> live(slots);
      auto merge = [&](const std::vector<bool>& other) {
        for (size_t s = 0; s < slots; ++s)
          if (other[s]) live[s] = true;
      };
      if (falls_through(ins.op)) merge(in[i + 1]);
      if (ins.target >= 0) merge(in[static_cast<size_t>(ins.target)]);
      auto slot = static_cast<size_t>(ins.arg);
      switch (ins.op) {
        case Opcode::StoreFast: live[slot] = false; break;
        case Opcode::LoadFast:
        case Opcode::LoadFastCheck:
        case Opcode::LoadFastAndClear:
        case Opcode::DeleteFast:
        case Opcode::MakeCell: live[slot] = true; break;
        default: break;
      }
      // An exception may leave before the store.
      if (ins.handler >= 0) merge(in[static_cast<size_t>(code.handlers[static_cast<size_t>(ins.handler)].target)]);
      if (live != in[i]) {
        in[i] = std::move(live);
        changed = true;
      }
    }
  }
  std::vector<bool> out = in[static_cast<size_t>(instruction)];
  // super() without arguments looks for the first one in the frame.
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(code.code->co_names) && slots; ++i)
    if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(code.code->co_names, i), "super") == 0) out[0] = true;
  for (size_t s = 0; s < slots; ++s)
    if (code.is_free(static_cast<int>(s)) || code.is_cell(static_cast<int>(s))) out[s] = true;
  return out;
}

}  // namespace braze::capture
