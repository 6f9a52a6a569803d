#include "capture/cpython/decode.h"

#if PY_VERSION_HEX >= 0x030E0000 && PY_VERSION_HEX < 0x030F0000
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
#include "capture/cpython/decode_same.def"
#undef BRAZE_SAME
    case NOP:
    case NOT_TAKEN:  // for tools that watch branches
    // Branches and `not` ask for the truth themselves, here as in earlier versions.
    case TO_BOOL: return plain(Opcode::Nop);
    case LOAD_FAST_CHECK: return plain(Opcode::LoadFastCheck);
    case LOAD_FAST_AND_CLEAR: return plain(Opcode::LoadFastAndClear);
    // A value that is borrowed from the local variable is as good here as one of its own.
    case LOAD_FAST_BORROW: return plain(Opcode::LoadFast);
    case LOAD_FAST_LOAD_FAST:
    case LOAD_FAST_BORROW_LOAD_FAST_BORROW: return {Opcode::LoadFast, arg >> 4};
    case STORE_FAST_LOAD_FAST:
    case STORE_FAST_STORE_FAST: return {Opcode::StoreFast, arg >> 4};
    case LOAD_SMALL_INT: return plain(Opcode::LoadSmallInt);
    case LOAD_COMMON_CONSTANT: return arg == 0 ? plain(Opcode::LoadAssertionError) : plain(Opcode::LoadCommonConstant);
    case LOAD_SPECIAL: return plain(Opcode::LoadSpecial);
    case LOAD_GLOBAL: return {Opcode::LoadGlobal, arg >> 1, (arg & 1) != 0};
    case LOAD_LOCALS: return plain(Opcode::LoadLocals);
    case LOAD_FROM_DICT_OR_DEREF: return plain(Opcode::LoadClassDeref);  // in class bodies
    case LOAD_ATTR: return {(arg & 1) ? Opcode::LoadMethod : Opcode::LoadAttr, arg >> 1, (arg & 1) != 0};
    case LOAD_SUPER_ATTR:
      return {(arg & 1) ? Opcode::LoadSuperMethod : Opcode::LoadSuperAttr, arg >> 2, (arg & 2) != 0};
    case BINARY_SLICE: return plain(Opcode::BinarySlice);
    case STORE_SLICE: return plain(Opcode::StoreSlice);
    case BINARY_OP: return arg == NB_SUBSCR ? Mapped{Opcode::BinarySubscr} : plain(Opcode::BinaryOp);
    case COMPARE_OP: return {Opcode::CompareOp, arg >> 5, (arg & 16) != 0};
    case CONVERT_VALUE: return plain(Opcode::ConvertValue);
    case FORMAT_SIMPLE: return {Opcode::FormatValue, 0};
    case FORMAT_WITH_SPEC: return {Opcode::FormatValue, 4};
    case BUILD_INTERPOLATION: return plain(Opcode::BuildInterpolation);
    case BUILD_TEMPLATE: return plain(Opcode::BuildTemplate);
    case CALL_KW: return plain(Opcode::CallKw);
    // It always finds keywords on the stack, or NULL in their place.
    case CALL_FUNCTION_EX: return {Opcode::CallFunctionEx, 1};
    case SET_FUNCTION_ATTRIBUTE: return plain(Opcode::SetFunctionAttribute);
    case POP_ITER: return plain(Opcode::PopTop);
    case FOR_ITER:
      return {Opcode::ForIter, arg, false, next + arg + 2};  // past END_FOR and POP_ITER, which pops the iterator
    case JUMP_FORWARD: return ahead(Opcode::Jump);
    case JUMP_BACKWARD:
    case JUMP_BACKWARD_NO_INTERRUPT: return back(Opcode::JumpBackward);
    case POP_JUMP_IF_TRUE: return ahead(Opcode::PopJumpIfTrue);
    case POP_JUMP_IF_FALSE: return ahead(Opcode::PopJumpIfFalse);
    case POP_JUMP_IF_NONE: return ahead(Opcode::PopJumpIfNone);
    case POP_JUMP_IF_NOT_NONE: return ahead(Opcode::PopJumpIfNotNone);
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
    case LOAD_FAST_BORROW_LOAD_FAST_BORROW:
    case STORE_FAST_LOAD_FAST: return Mapped{Opcode::LoadFast, arg & 15};
    case STORE_FAST_STORE_FAST: return Mapped{Opcode::StoreFast, arg & 15};
    default: return {};
  }
}

}  // namespace braze::capture::cpython
#endif
