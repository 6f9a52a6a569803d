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
    case NOP:
    case PRECALL: return plain(Opcode::Nop);
    case RESUME: return plain(Opcode::Resume);
    case POP_TOP: return plain(Opcode::PopTop);
    case PUSH_NULL: return plain(Opcode::PushNull);
    case COPY: return plain(Opcode::Copy);
    case SWAP: return plain(Opcode::Swap);
    case LOAD_CONST: return plain(Opcode::LoadConst);
    case LOAD_FAST: return plain(Opcode::LoadFast);
    case STORE_FAST: return plain(Opcode::StoreFast);
    case DELETE_FAST: return plain(Opcode::DeleteFast);
    case MAKE_CELL: return plain(Opcode::MakeCell);
    case COPY_FREE_VARS: return plain(Opcode::CopyFreeVars);
    case LOAD_CLOSURE: return plain(Opcode::LoadClosure);
    case LOAD_DEREF: return plain(Opcode::LoadDeref);
    case LOAD_CLASSDEREF: return plain(Opcode::LoadClassDeref);
    case STORE_DEREF: return plain(Opcode::StoreDeref);
    case DELETE_DEREF: return plain(Opcode::DeleteDeref);
    case LOAD_GLOBAL: return {Opcode::LoadGlobal, arg >> 1, (arg & 1) != 0};
    case STORE_GLOBAL: return plain(Opcode::StoreGlobal);
    case DELETE_GLOBAL: return plain(Opcode::DeleteGlobal);
    case LOAD_NAME: return plain(Opcode::LoadName);
    case STORE_NAME: return plain(Opcode::StoreName);
    case DELETE_NAME: return plain(Opcode::DeleteName);
    case LOAD_ATTR: return plain(Opcode::LoadAttr);
    case LOAD_METHOD: return {Opcode::LoadMethod, arg, true};
    case STORE_ATTR: return plain(Opcode::StoreAttr);
    case DELETE_ATTR: return plain(Opcode::DeleteAttr);
    case BINARY_SUBSCR: return plain(Opcode::BinarySubscr);
    case STORE_SUBSCR: return plain(Opcode::StoreSubscr);
    case DELETE_SUBSCR: return plain(Opcode::DeleteSubscr);
    case BINARY_OP: return plain(Opcode::BinaryOp);
    case COMPARE_OP: return plain(Opcode::CompareOp);
    case IS_OP: return plain(Opcode::IsOp);
    case CONTAINS_OP: return plain(Opcode::ContainsOp);
    case UNARY_POSITIVE: return plain(Opcode::UnaryPositive);
    case UNARY_NEGATIVE: return plain(Opcode::UnaryNegative);
    case UNARY_NOT: return plain(Opcode::UnaryNot);
    case UNARY_INVERT: return plain(Opcode::UnaryInvert);
    case BUILD_TUPLE: return plain(Opcode::BuildTuple);
    case BUILD_LIST: return plain(Opcode::BuildList);
    case BUILD_SET: return plain(Opcode::BuildSet);
    case BUILD_MAP: return plain(Opcode::BuildMap);
    case BUILD_CONST_KEY_MAP: return plain(Opcode::BuildConstKeyMap);
    case BUILD_STRING: return plain(Opcode::BuildString);
    case BUILD_SLICE: return plain(Opcode::BuildSlice);
    case LIST_EXTEND: return plain(Opcode::ListExtend);
    case LIST_APPEND: return plain(Opcode::ListAppend);
    case SET_ADD: return plain(Opcode::SetAdd);
    case SET_UPDATE: return plain(Opcode::SetUpdate);
    case MAP_ADD: return plain(Opcode::MapAdd);
    case DICT_UPDATE: return plain(Opcode::DictUpdate);
    case DICT_MERGE: return plain(Opcode::DictMerge);
    case LIST_TO_TUPLE: return plain(Opcode::ListToTuple);
    case FORMAT_VALUE: return plain(Opcode::FormatValue);
    case UNPACK_SEQUENCE: return plain(Opcode::UnpackSequence);
    case UNPACK_EX: return plain(Opcode::UnpackEx);
    case GET_LEN: return plain(Opcode::GetLen);
    case MATCH_MAPPING: return plain(Opcode::MatchMapping);
    case MATCH_SEQUENCE: return plain(Opcode::MatchSequence);
    case MATCH_KEYS: return plain(Opcode::MatchKeys);
    case MATCH_CLASS: return plain(Opcode::MatchClass);
    case GET_ITER: return plain(Opcode::GetIter);
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
    case KW_NAMES: return plain(Opcode::KwNames);
    case CALL: return plain(Opcode::Call);
    case CALL_FUNCTION_EX: return plain(Opcode::CallFunctionEx);
    case MAKE_FUNCTION: return plain(Opcode::MakeFunction);
    case LOAD_BUILD_CLASS: return plain(Opcode::LoadBuildClass);
    case IMPORT_NAME: return plain(Opcode::ImportName);
    case IMPORT_FROM: return plain(Opcode::ImportFrom);
    case IMPORT_STAR: return plain(Opcode::ImportStar);
    case LOAD_ASSERTION_ERROR: return plain(Opcode::LoadAssertionError);
    case RETURN_VALUE: return plain(Opcode::ReturnValue);
    case RAISE_VARARGS: return plain(Opcode::RaiseVarargs);
    case RERAISE: return plain(Opcode::Reraise);
    case PUSH_EXC_INFO: return plain(Opcode::PushExcInfo);
    case POP_EXCEPT: return plain(Opcode::PopExcept);
    case CHECK_EXC_MATCH: return plain(Opcode::CheckExcMatch);
    case CHECK_EG_MATCH: return plain(Opcode::CheckEgMatch);
    case PREP_RERAISE_STAR: return plain(Opcode::PrepReraiseStar);
    case BEFORE_WITH: return plain(Opcode::BeforeWith);
    case WITH_EXCEPT_START: return plain(Opcode::WithExceptStart);
    case SETUP_ANNOTATIONS: return plain(Opcode::SetupAnnotations);
    case PRINT_EXPR: return plain(Opcode::PrintExpr);
    case RETURN_GENERATOR: return plain(Opcode::ReturnGenerator);
    case YIELD_VALUE: return plain(Opcode::YieldValue);
    case GET_YIELD_FROM_ITER: return plain(Opcode::GetYieldFromIter);
    case SEND: return ahead(Opcode::Send);
    case BEFORE_ASYNC_WITH: return plain(Opcode::BeforeAsyncWith);
    case GET_AITER: return plain(Opcode::GetAiter);
    case GET_ANEXT: return plain(Opcode::GetAnext);
    case END_ASYNC_FOR: return plain(Opcode::EndAsyncFor);
    case GET_AWAITABLE: return plain(Opcode::GetAwaitable);
    case ASYNC_GEN_WRAP: return plain(Opcode::AsyncGenWrap);
    default: return {Opcode::Unknown, raw};
  }
}

}  // namespace braze::capture::cpython
#endif
