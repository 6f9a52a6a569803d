// Calls, what a frame returns or yields, imports.
#include "capture/eval/instructions/instructions.h"
#include "capture/eval/library_objects.h"
#include "capture/vars/all.h"

namespace braze::capture {

void Instructions::ReturnValue(Execution& x) {
  Variable* v = x.ins.op == Opcode::ReturnConst ? x.tr.load_const(x.f.code->constant(x.ins.arg)) : x.f.pop();
  x.tr.yielded_ = false;
  x.result = v;
}
void Instructions::ReturnConst(Execution& x) { ReturnValue(x); }

void Instructions::ReturnGenerator(Execution& x) {
  if (!x.f.function) x.tr.unsupported("a generator as the compiled function");
  auto* g = x.tr.make<GeneratorVariable>(&x.f);
  x.f.is_generator = true;
  x.f.ip = x.next;
  x.tr.yielded_ = false;
  x.result = g;
}

void Instructions::YieldValue(Execution& x) {
  if (!x.f.is_generator) x.tr.unsupported("yield in the compiled function");
  Variable* v = x.f.pop();
  x.f.ip = x.next;
  x.tr.yielded_ = true;
  x.result = v;
}

void Instructions::KwNames(Execution& x) { x.f.kw_names = x.f.code->constant(x.ins.arg); }

void Instructions::Call(Execution& x) { x.tr.call_instruction(x.f, x.ins.arg); }

void Instructions::CallFunctionEx(Execution& x) { x.tr.call_ex_instruction(x.f, x.ins.arg & 1); }

void Instructions::MakeFunction(Execution& x) { x.tr.make_function(x.f, x.ins.arg); }

void Instructions::BeforeWith(Execution& x) { x.tr.before_with(x.f); }

void Instructions::LoadBuildClass(Execution& x) {
  static PyObject* build = native::builtin("__build_class__");
  x.f.push(x.tr.global_object(build, Ground::fixed()));
}

void Instructions::ImportName(Execution& x) {
  Ref from = x.tr.to_python(x.f.pop()), level = x.tr.to_python(x.f.pop());
  // Importing what is imported already has no effects; what is not would be imported by the code as well.
  Ref m = Ref::steal(PyImport_ImportModuleLevelObject(x.f.code->name(x.ins.arg), x.f.globals, nullptr, from.get(), static_cast<int>(PyLong_AsLong(level.get()))));
  if (!m) x.tr.raise_current();
  // The module of that name is what sys.modules says.
  PyObject* modules = PyImport_GetModuleDict();
  Ref name = Ref::steal(PyModule_Check(m.get()) ? PyModule_GetNameObject(m.get()) : nullptr);
  PyErr_Clear();
  SourceId at = name ? x.tr.sources().dict_item(x.tr.sources().constant(modules), name.get()) : SourceId();
  if (!name || native::item(Ground::guarded(at), modules, name.get()) != m.get()) x.tr.unsupported("a module that is not imported under its name");
  x.tr.guards().exists(at, x.tr.line());
  x.f.push(x.tr.wrap(m.get(), at));
}

void Instructions::ImportFrom(Execution& x) {
  Variable* v = x.tr.getattr_or_null(x.f.top(), x.f.code->name(x.ins.arg));
  if (!v) x.tr.unsupported("a name to import that is not there");
  x.f.push(v);
}

void Instructions::GetYieldFromIter(Execution& x) {
  Variable* v = x.tr.force(x.f.pop());
  x.f.push(v->is(Kind::Generator) ? v : x.tr.iter(v));
}

void Instructions::Send(Execution& x) { x.next = x.tr.send_instruction(x.f, x.ins, x.next); }

void Instructions::EndSend(Execution& x) {
  Variable* v = x.f.pop();
  x.f.pop();
  x.f.push(v);
}

}  // namespace braze::capture
