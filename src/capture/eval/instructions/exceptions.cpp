// Exceptions: raising, matching, what is handled.
#include "capture/eval/instructions/instructions.h"
#include "capture/eval/library_objects.h"
#include "capture/vars/all.h"

namespace braze::capture {

void Instructions::RaiseVarargs(Execution& x) { x.tr.raise_instruction(x.f, x.ins.arg); }

void Instructions::PushExcInfo(Execution& x) {
  Variable* e = x.f.pop();
  x.f.push(x.tr.handled ? x.tr.handled : x.tr.handled_at_start());
  x.f.push(e);
  x.tr.handled = e;
}

void Instructions::PopExcept(Execution& x) {
  Variable* before = x.f.pop();
  bool as_at_start = before == x.tr.handled_before_ || (before == x.tr.none() && x.tr.handled_at_start() == x.tr.none());
  x.tr.handled = as_at_start ? nullptr : before;
}

void Instructions::CheckExcMatch(Execution& x) {
  Variable* cls = x.tr.force(x.f.pop());
  Ref c = x.tr.to_python(cls);
  auto catchable = [](PyObject* o) { return PyExceptionClass_Check(o); };
  bool all = true;
  if (!PyTuple_Check(c.get())) all = catchable(c.get());
  else
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(c.get()); ++i) all = all && catchable(PyTuple_GET_ITEM(c.get(), i));
  if (!all) x.tr.raise(PyExc_TypeError, "catching classes that do not inherit from BaseException is not allowed");
  bool match = x.tr.is_instance(x.f.top(), c.get());
  x.f.push(x.tr.boolean(match, Ground::pure(x.f.top(), cls)));
}

void Instructions::Reraise(Execution& x) {
  Variable* e = x.f.pop();
  uint64_t origin = x.tr.origins_.try_emplace(e, x.tr.ordinal_).first->second;
  throw PyRaise{e, origin};
}

void Instructions::WithExceptStart(Execution& x) {
  Variable *e = x.tr.force(x.f.top(1)), *exit = x.f.top(4);
  Variable* cls = x.tr.global_object(reinterpret_cast<PyObject*>(e->type()), Ground::pure(e));
  Variable* r = x.tr.call(exit, {cls, e, e->is(Kind::Object) ? x.tr.getattr(e, "__traceback__") : x.tr.none()});
  x.f.push(r);
}

void Instructions::StopIterationError(Execution& x) {
  // In place of an exception that leaves a generator.
  Variable* e = x.f.pop();
  if (x.tr.is_instance(e, PyExc_StopIteration)) x.tr.raise_stop_iteration_error(e);
  x.f.push(e);
}

void Instructions::CleanupThrow(Execution& x) {
  // [receiver, value sent, exception]: the exception that a receiver ended with.
  Variable* e = x.tr.force(x.f.pop());
  if (!x.tr.is_instance(e, PyExc_StopIteration)) throw PyRaise{e, x.tr.origins_.try_emplace(e, x.tr.ordinal_).first->second};
  x.f.pop();
  x.f.pop();
  x.f.push(x.tr.none());
  x.f.push(x.tr.getattr(e, "value"));
}

void Instructions::LoadAssertionError(Execution& x) { x.f.push(x.tr.global_object(PyExc_AssertionError, Ground::fixed())); }

}  // namespace braze::capture
