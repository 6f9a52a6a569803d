#include "capture/cpython/decode.h"

#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030C0000
#include <opcode.h>

namespace braze::capture::cpython {

bool is_cache(int raw) { return raw == CACHE; }
bool is_extended_arg(int raw) { return raw == EXTENDED_ARG; }

Mapped map_instruction(int raw, int arg, int next) {
  auto plain = [&](Opcode op) { return Mapped{op, arg}; };
  auto ahead = [&](Opcode op) { return Mapped{op, arg, false, next + arg}; };
  auto back = [&](Opcode op) { return Mapped{op, arg, false, next - arg}; };
  switch (raw) {
#define BRAZE_SAME(raw, op) \
  case raw: return plain(Opcode::op);
#include "capture/cpython/decode_before_314.def"
#include "capture/cpython/decode_same.def"
#undef BRAZE_SAME
    case NOP:
    case PRECALL: return plain(Opcode::Nop);
    case LOAD_CLASSDEREF: return plain(Opcode::LoadClassDeref);
    case LOAD_CLOSURE: return plain(Opcode::LoadClosure);
    case LOAD_GLOBAL: return {Opcode::LoadGlobal, arg >> 1, (arg & 1) != 0};
    case LOAD_ATTR: return plain(Opcode::LoadAttr);
    case LOAD_METHOD: return {Opcode::LoadMethod, arg, true};
    case COMPARE_OP: return plain(Opcode::CompareOp);
    case UNARY_POSITIVE: return plain(Opcode::UnaryPositive);
    case LIST_TO_TUPLE: return plain(Opcode::ListToTuple);
    case FORMAT_VALUE: return plain(Opcode::FormatValue);
    case KW_NAMES: return plain(Opcode::KwNames);
    case FOR_ITER: return ahead(Opcode::ForIter);
    case JUMP_FORWARD: return ahead(Opcode::Jump);
    case JUMP_BACKWARD:
    case JUMP_BACKWARD_NO_INTERRUPT: return back(Opcode::JumpBackward);
    case POP_JUMP_FORWARD_IF_TRUE: return ahead(Opcode::PopJumpIfTrue);
    case POP_JUMP_FORWARD_IF_FALSE: return ahead(Opcode::PopJumpIfFalse);
    case POP_JUMP_FORWARD_IF_NONE: return ahead(Opcode::PopJumpIfNone);
    case POP_JUMP_FORWARD_IF_NOT_NONE: return ahead(Opcode::PopJumpIfNotNone);
    case POP_JUMP_BACKWARD_IF_TRUE: return back(Opcode::PopJumpIfTrue);
    case POP_JUMP_BACKWARD_IF_FALSE: return back(Opcode::PopJumpIfFalse);
    case POP_JUMP_BACKWARD_IF_NONE: return back(Opcode::PopJumpIfNone);
    case POP_JUMP_BACKWARD_IF_NOT_NONE: return back(Opcode::PopJumpIfNotNone);
    case JUMP_IF_TRUE_OR_POP: return ahead(Opcode::JumpIfTrueOrPop);
    case JUMP_IF_FALSE_OR_POP: return ahead(Opcode::JumpIfFalseOrPop);
    case IMPORT_STAR: return plain(Opcode::ImportStar);
    case PREP_RERAISE_STAR: return plain(Opcode::PrepReraiseStar);
    case PRINT_EXPR: return plain(Opcode::PrintExpr);
    case SEND: return ahead(Opcode::Send);
    case ASYNC_GEN_WRAP: return plain(Opcode::AsyncGenWrap);
    default: return {Opcode::Unknown, raw};
  }
}

std::optional<Mapped> second_instruction(int, int) { return {}; }

}  // namespace braze::capture::cpython
#endif
