// Instructions that end the graph: of modules and classes bodies, of coroutines, of exception groups.
#include "capture/eval/instructions/instructions.h"

namespace braze::capture {
namespace {

[[noreturn]] void not_captured(Execution& x) {
  x.tr.unsupported(Reason::UnsupportedBytecode, std::string(opcode_name(x.ins.op)));
}

}  // namespace

void Instructions::LoadClassDeref(Execution& x) { not_captured(x); }
void Instructions::LoadName(Execution& x) { not_captured(x); }
void Instructions::StoreName(Execution& x) { not_captured(x); }
void Instructions::DeleteName(Execution& x) { not_captured(x); }
void Instructions::LoadLocals(Execution& x) { not_captured(x); }
void Instructions::ImportStar(Execution& x) { not_captured(x); }
void Instructions::CheckEgMatch(Execution& x) { not_captured(x); }
void Instructions::PrepReraiseStar(Execution& x) { not_captured(x); }
void Instructions::SetupAnnotations(Execution& x) { not_captured(x); }
void Instructions::BuildInterpolation(Execution& x) { not_captured(x); }
void Instructions::BuildTemplate(Execution& x) { not_captured(x); }
void Instructions::PrintExpr(Execution& x) { not_captured(x); }
void Instructions::BeforeAsyncWith(Execution& x) { not_captured(x); }
void Instructions::GetAiter(Execution& x) { not_captured(x); }
void Instructions::GetAnext(Execution& x) { not_captured(x); }
void Instructions::EndAsyncFor(Execution& x) { not_captured(x); }
void Instructions::GetAwaitable(Execution& x) { not_captured(x); }
void Instructions::AsyncGenWrap(Execution& x) { not_captured(x); }
void Instructions::Unknown(Execution& x) { not_captured(x); }

}  // namespace braze::capture
