// The stack, local variables, cells, globals.
#include "capture/eval/instructions/instructions.h"
#include "capture/vars/all.h"

namespace braze::capture {
namespace {

Variable*& local(Execution& x) { return x.f.locals[static_cast<size_t>(x.ins.arg)]; }
CellVariable* cell(Execution& x) { return local(x)->as<CellVariable>(); }
std::string local_name(Execution& x) { return PyUnicode_AsUTF8(x.f.code->local_name(x.ins.arg)); }

[[noreturn]] void raise_unbound(Execution& x) {
  x.tr.raise(PyExc_UnboundLocalError,
             "cannot access local variable '" + local_name(x) + "' where it is not associated with a value");
}

// What is bound; an exception where nothing is.
Variable* bound(Execution& x) {
  Variable* v = local(x);
  if (!v) raise_unbound(x);
  // Where the capture begins within a frame, a variable that is bound now may be unbound in another call: nothing else
  // asks, if all that happens to it is that it is passed on, or unbound.
  if (x.tr.view().start > 0 && v->is(Kind::Lazy) && v->source.valid() &&
      x.tr.sources()[v->source].kind == SourceKind::Local)
    x.tr.guards().exists(v->source, x.tr.line());
  return v;
}

// What is in the cell; an exception where nothing is.
Variable* contents(Execution& x) {
  if (Variable* v = cell(x)->get(x.tr)) return v;
  if (x.f.code->is_free(x.ins.arg))
    x.tr.raise(PyExc_NameError, "cannot access free variable '" + local_name(x) +
                                    "' where it is not associated with a value in enclosing scope");
  raise_unbound(x);
}

}  // namespace

void Instructions::Nop(Execution&) {}
void Instructions::Resume(Execution&) {}
void Instructions::CopyFreeVars(Execution&) {}

void Instructions::PopTop(Execution& x) { x.f.pop(); }

void Instructions::PushNull(Execution& x) { x.f.push(nullptr); }

void Instructions::Copy(Execution& x) { x.f.push(x.f.top(x.ins.arg)); }

void Instructions::Swap(Execution& x) { std::swap(x.f.top(1), x.f.top(x.ins.arg)); }

void Instructions::LoadConst(Execution& x) { x.f.push(x.tr.load_const(x.f.code->constant(x.ins.arg))); }

void Instructions::LoadSmallInt(Execution& x) { x.f.push(x.tr.integer(x.ins.arg, Ground::code())); }

void Instructions::LoadCommonConstant(Execution& x) {
  static PyObject* const constants[] = {PyExc_AssertionError, PyExc_NotImplementedError,
                                        reinterpret_cast<PyObject*>(&PyTuple_Type), native::builtin("all"),
                                        native::builtin("any")};
  auto i = static_cast<size_t>(x.ins.arg);
  if (i >= std::size(constants)) x.tr.unsupported(Reason::UnsupportedBytecode, std::string(opcode_name(x.ins.op)));
  x.f.push(x.tr.global_object(constants[i], Ground::fixed()));
}

void Instructions::LoadFast(Execution& x) { x.f.push(bound(x)); }
void Instructions::LoadFastCheck(Execution& x) { LoadFast(x); }

void Instructions::LoadFastAndClear(Execution& x) {
  x.f.push(local(x) ? bound(x) : nullptr);
  if (local(x)) x.f.cleared.push_back(x.ins.arg);
  local(x) = nullptr;
}

void Instructions::StoreFast(Execution& x) { local(x) = x.f.pop(); }

void Instructions::DeleteFast(Execution& x) {
  bound(x);
  x.f.cleared.push_back(x.ins.arg);
  local(x) = nullptr;
}

void Instructions::MakeCell(Execution& x) {
  auto* c = x.tr.make<CellVariable>();
  c->known = true;
  c->contents = local(x);
  local(x) = c;
}

void Instructions::LoadClosure(Execution& x) { x.f.push(local(x)); }

void Instructions::LoadDeref(Execution& x) { x.f.push(contents(x)); }

void Instructions::StoreDeref(Execution& x) { cell(x)->set(x.tr, x.f.pop()); }

void Instructions::DeleteDeref(Execution& x) {
  contents(x);
  cell(x)->set(x.tr, nullptr);
}

void Instructions::LoadGlobal(Execution& x) {
  Variable* v = x.tr.load_global(x.f, x.f.code->name(x.ins.arg));
  if (x.ins.flag)
    x.f.push_callable(v);
  else
    x.f.push(v);
}

void Instructions::StoreGlobal(Execution& x) {
  x.tr.globals_dict(x.f)->set(x.tr, x.f.code->name(x.ins.arg), x.f.pop());
}

void Instructions::DeleteGlobal(Execution& x) {
  if (!x.tr.globals_dict(x.f)->remove(x.tr, x.tr.constant(x.f.code->name(x.ins.arg), Ground::code())))
    x.tr.raise(PyExc_NameError,
               std::string("name '") + PyUnicode_AsUTF8(x.f.code->name(x.ins.arg)) + "' is not defined");
}

}  // namespace braze::capture
