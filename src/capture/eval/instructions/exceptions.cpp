// Exceptions: raising, matching, what is handled.
#include "capture/eval/instructions/instructions.h"
#include "capture/eval/library_objects.h"
#include "capture/vars/all.h"

namespace braze::capture {

void Instructions::RaiseVarargs(Execution& x) {
  int n = x.ins.arg;
  if (n == 0) {
    Variable* current = x.tr.being_handled();
    if (!current && !x.tr.handled) current = x.tr.force(x.tr.handled_at_start());
    if (current && is_none(current)) current = nullptr;
    if (!current) x.tr.raise(PyExc_RuntimeError, "No active exception to reraise");
    if (current->is(Kind::Object)) current->as<ObjectVariable>()->bare = false;
    x.tr.throw_raised(current);
  }
  Variable* cause = n == 2 ? x.tr.force(x.f.pop()) : nullptr;
  Variable* e = x.tr.force(x.f.pop());
  if (PyObject* cls = e->as_constant(); cls && PyExceptionClass_Check(cls))
    e = x.tr.force(x.tr.call(e, std::vector<Variable*>{}));
  if (!PyType_IsSubtype(e->type(), reinterpret_cast<PyTypeObject*>(PyExc_BaseException)))
    x.tr.raise(PyExc_TypeError, "exceptions must derive from BaseException");
  auto is_exception = [](Variable* v) {
    return PyType_IsSubtype(v->type(), reinterpret_cast<PyTypeObject*>(PyExc_BaseException));
  };
  if (cause && e->is(Kind::Object)) {
    if (PyObject* cls = cause->as_constant(); cls && PyExceptionClass_Check(cls))
      cause = x.tr.force(x.tr.call(cause, std::vector<Variable*>{}));
    if (!is_none(cause) && !is_exception(cause))
      x.tr.raise(PyExc_TypeError, "exception causes must derive from BaseException");
    e->as<ObjectVariable>()->set_field(x.tr, x.tr.intern("__cause__"), cause);
    e->as<ObjectVariable>()->set_field(x.tr, x.tr.intern("__suppress_context__"), x.tr.boolean(true, Ground::fixed()));
  }
  // It would be left with another traceback.
  if (e->source.valid()) x.tr.unsupported(Reason::RaisedException, "an exception that was there before is raised");
  x.tr.chain_context(e, x.tr.being_handled());
  if (e->is(Kind::Object)) e->as<ObjectVariable>()->bare = false;
  x.tr.throw_raised(e);
}

void Instructions::PushExcInfo(Execution& x) {
  Variable* e = x.f.pop();
  x.f.push(x.tr.handled ? x.tr.handled : x.tr.handled_at_start());
  x.f.push(e);
  x.tr.handled = e;
}

void Instructions::PopExcept(Execution& x) {
  Variable* before = x.f.pop();
  x.tr.handled = x.tr.is_as_at_start(before) ? nullptr : before;
}

void Instructions::CheckExcMatch(Execution& x) {
  Variable* cls = x.tr.force(x.f.pop());
  Ref c = x.tr.real.to_python(cls);
  // By the bases alone: no metaclass is asked.
  PyTypeObject* raised = x.tr.force(x.f.top())->type();
  x.tr.attributes.guard_bases(raised);
  bool all = true, match = false;
  auto compare = [&](PyObject* o) {
    all = all && PyExceptionClass_Check(o);
    match = match || (all && PyType_IsSubtype(raised, reinterpret_cast<PyTypeObject*>(o)));
  };
  if (!PyTuple_Check(c.get()))
    compare(c.get());
  else
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(c.get()); ++i) compare(PyTuple_GET_ITEM(c.get(), i));
  if (!all) x.tr.raise(PyExc_TypeError, "catching classes that do not inherit from BaseException is not allowed");
  x.f.push(x.tr.boolean(match, Ground::pure(x.f.top(), cls)));
}

void Instructions::Reraise(Execution& x) {
  Variable* e = x.f.pop();
  x.tr.throw_raised(e);
}

void Instructions::WithExceptStart(Execution& x) {
  // [exit, (self), number of the instruction, what was handled, exception]
  Variable* e = x.tr.force(x.f.top(1));
  auto [exit, self] =
      cpython::kExitIsPair ? cpython::called(x.f.top(5), x.f.top(4)) : cpython::Called<Variable*>{x.f.top(4), nullptr};
  Variable* cls = x.tr.global_object(reinterpret_cast<PyObject*>(e->type()), Ground::pure(e));
  std::vector<Variable*> args{cls, e, e->is(Kind::Object) ? x.tr.getattr(e, "__traceback__") : x.tr.none()};
  if (self) args.insert(args.begin(), self);
  Variable* r = x.tr.call(exit, args);
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
  if (!x.tr.is_instance(e, PyExc_StopIteration)) x.tr.throw_raised(e);
  x.f.pop();
  x.f.pop();
  x.f.push(x.tr.none());
  x.f.push(x.tr.getattr(e, "value"));
}

void Instructions::LoadAssertionError(Execution& x) {
  x.f.push(x.tr.global_object(PyExc_AssertionError, Ground::fixed()));
}

}  // namespace braze::capture
