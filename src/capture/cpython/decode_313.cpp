#include "capture/cpython/decode.h"

#if PY_VERSION_HEX >= 0x030D0000 && PY_VERSION_HEX < 0x030E0000
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
    // Branches and `not` ask for the truth themselves, here as in earlier versions.
    case TO_BOOL: return plain(Opcode::Nop);
    case LOAD_FAST_CHECK: return plain(Opcode::LoadFastCheck);
    case LOAD_FAST_AND_CLEAR: return plain(Opcode::LoadFastAndClear);
    case LOAD_FAST_LOAD_FAST: return {Opcode::LoadFast, arg >> 4};
    case STORE_FAST_LOAD_FAST:
    case STORE_FAST_STORE_FAST: return {Opcode::StoreFast, arg >> 4};
    case LOAD_GLOBAL: return {Opcode::LoadGlobal, arg >> 1, (arg & 1) != 0};
    case LOAD_LOCALS: return plain(Opcode::LoadLocals);
    case LOAD_FROM_DICT_OR_DEREF: return plain(Opcode::LoadClassDeref);  // in class bodies
    case LOAD_ATTR: return {(arg & 1) ? Opcode::LoadMethod : Opcode::LoadAttr, arg >> 1, (arg & 1) != 0};
    case LOAD_SUPER_ATTR:
      return {(arg & 1) ? Opcode::LoadSuperMethod : Opcode::LoadSuperAttr, arg >> 2, (arg & 2) != 0};
    case BINARY_SLICE: return plain(Opcode::BinarySlice);
    case STORE_SLICE: return plain(Opcode::StoreSlice);
    case COMPARE_OP: return {Opcode::CompareOp, arg >> 5, (arg & 16) != 0};
    case CONVERT_VALUE: return plain(Opcode::ConvertValue);
    case FORMAT_SIMPLE: return {Opcode::FormatValue, 0};
    case FORMAT_WITH_SPEC: return {Opcode::FormatValue, 4};
    case CALL_KW: return plain(Opcode::CallKw);
    case SET_FUNCTION_ATTRIBUTE: return plain(Opcode::SetFunctionAttribute);
    case FOR_ITER: return {Opcode::ForIter, arg, false, next + arg + 2};  // past END_FOR and POP_TOP
    case JUMP_FORWARD: return ahead(Opcode::Jump);
    case JUMP_BACKWARD:
    case JUMP_BACKWARD_NO_INTERRUPT: return back(Opcode::JumpBackward);
    case POP_JUMP_IF_TRUE: return ahead(Opcode::PopJumpIfTrue);
    case POP_JUMP_IF_FALSE: return ahead(Opcode::PopJumpIfFalse);
    case POP_JUMP_IF_NONE: return ahead(Opcode::PopJumpIfNone);
    case POP_JUMP_IF_NOT_NONE: return ahead(Opcode::PopJumpIfNotNone);
    case RETURN_CONST: return plain(Opcode::ReturnConst);
    case SEND: return {Opcode::Send, arg, true, next + arg};
    case END_SEND: return plain(Opcode::EndSend);
    case CLEANUP_THROW: return plain(Opcode::CleanupThrow);
    case CALL_INTRINSIC_1:
      switch (arg) {
        case 1: return plain(Opcode::PrintExpr);
        case 2: return plain(Opcode::ImportStar);
        case 3: return plain(Opcode::StopIterationError);
        case 4: return plain(Opcode::AsyncGenWrap);
        case 5: return plain(Opcode::UnaryPositive);
        case 6: return plain(Opcode::ListToTuple);
        default: return {Opcode::Unknown, raw};
      }
    case CALL_INTRINSIC_2: return arg == 1 ? plain(Opcode::PrepReraiseStar) : Mapped{Opcode::Unknown, raw};
    // END_FOR is reached only from specialised forms of FOR_ITER.
    default: return {Opcode::Unknown, raw};
  }
}

std::optional<Mapped> second_instruction(int raw, int arg) {
  switch (raw) {
    case LOAD_FAST_LOAD_FAST:
    case STORE_FAST_LOAD_FAST: return Mapped{Opcode::LoadFast, arg & 15};
    case STORE_FAST_STORE_FAST: return Mapped{Opcode::StoreFast, arg & 15};
    default: return {};
  }
}

}  // namespace braze::capture::cpython
#endif
