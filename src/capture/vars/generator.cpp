// Generators: frames that are resumed symbolically.
#include "capture/eval/translator.h"
#include "capture/vars/all.h"

namespace braze::capture {
namespace {

bool is_exit(Translator& tr, Variable* e) { return tr.is_instance(e, PyExc_GeneratorExit); }

// The instruction of a `yield from` that a suspended frame waits at, or nullptr.
const Instruction* waiting_send(const Frame& f) {
  if (f.ip < 2 || f.code->instructions[static_cast<size_t>(f.ip) - 1].op != Opcode::YieldValue) return nullptr;
  const Instruction& before = f.code->instructions[static_cast<size_t>(f.ip) - 2];
  return before.op == Opcode::Send ? &before : nullptr;
}

}  // namespace

// Runs the frame to its next yield (its value), or to its return (nullptr; the value is in `result`).
Variable* GeneratorVariable::resume(Translator& tr) {
  started = running = true;
  Variable* v;
  try {
    v = tr.run_in(frame, tr.frame(), false);
  } catch (PyRaise& e) {
    running = false;
    finished = true;
#if PY_VERSION_HEX < 0x030C0000
    // Later versions do this by an instruction.
    if (tr.is_instance(e.exception, PyExc_StopIteration)) tr.raise_stop_iteration_error(e.exception);
#endif
    throw;
  }
  running = false;
  if (tr.yielded()) return v;
  finished = true;
  result = v;
  return nullptr;
}

Variable* GeneratorVariable::send(Translator& tr, Variable* value) {
  tr.mutate();
  if (running) tr.raise(PyExc_ValueError, "generator already executing");
  if (finished) {
    result = tr.none();
    return nullptr;
  }
  if (!started && !is_none(tr.force(value)))
    tr.raise(PyExc_TypeError, "can't send non-None value to a just-started generator");
  frame->push(value);
  return resume(tr);
}

Variable* GeneratorVariable::throw_(Translator& tr, Variable* exception) {
  tr.mutate();
  if (running) tr.raise(PyExc_ValueError, "generator already executing");
  if (!started || finished) {
    finished = true;
    throw PyRaise{exception, tr.ordinal()};
  }
  if (const Instruction* send = waiting_send(*frame)) {
    // The generator or iterator that it waits for gets it first.
    Variable* receiver = tr.force(frame->top());
    running = true;
    try {
      Variable *yielded = nullptr, *returned = nullptr;
      if (is_exit(tr, exception)) {
        if (Variable* close = tr.getattr_or_null(receiver, "close")) tr.call(close, std::vector<Variable*>{});
      } else if (receiver->is(Kind::Generator)) {
        auto* inner = receiver->as<GeneratorVariable>();
        yielded = inner->throw_(tr, exception);
        returned = inner->result;
      } else if (Variable* method = tr.getattr_or_null(receiver, "throw")) {
        try {
          yielded = tr.call(method, {exception});
        } catch (PyRaise& e) {
          if (!tr.is_instance(e.exception, PyExc_StopIteration)) throw;
          returned = tr.getattr(e.exception, "value");
        }
      }
      running = false;
      if (yielded) return yielded;
      if (returned) {
        tr.finish_send(*frame, *send, returned);
        return resume(tr);
      }
    } catch (PyRaise& e) {
      running = false;
      exception = e.exception;
    }
  }
  frame->pending = exception;
  return resume(tr);
}

Variable* GeneratorVariable::next(Translator& tr) { return send(tr, tr.none()); }

void GeneratorVariable::close(Translator& tr) {
  if (!started || finished) {
    finished = true;
    return;
  }
  try {
    throw_(tr, tr.call(tr.global_object(PyExc_GeneratorExit, Ground::fixed()), std::vector<Variable*>{}));
  } catch (PyRaise& e) {
    if (is_exit(tr, e.exception) || tr.is_instance(e.exception, PyExc_StopIteration)) return;
    throw;
  }
  if (!finished) tr.raise(PyExc_RuntimeError, "generator ignored GeneratorExit");
}

bool GeneratorVariable::has_end_to_run() const {
  return started && !finished && frame->ip >= 1 && frame->code->has_end_to_run(frame->ip - 1);
}

Variable* GeneratorVariable::getattr(Translator& tr, PyObject* name) {
  auto is = [&](const char* s) { return PyUnicode_CompareWithASCIIString(name, s) == 0; };
  if (is("gi_running")) return tr.boolean(running, Ground::pure(this));
  if (is("gi_suspended")) return tr.boolean(started && !running && !finished, Ground::pure(this));
  if (is("gi_frame") && finished) return tr.none();
  if (is("gi_code")) return tr.global_object(reinterpret_cast<PyObject*>(frame->code->code), Ground::pure(this));
  if (is("__name__")) return tr.constant(frame->code->code->co_name, Ground::pure(this));
  if (is("__qualname__")) return tr.constant(frame->code->code->co_qualname, Ground::pure(this));
  return Variable::getattr(tr, name);
}

Variable* GeneratorVariable::call_method(Translator& tr, const char* name, Args& args) {
  std::string_view n = name;
  auto stop = [&](Variable* v) -> Variable* {
    if (v) return v;
    std::vector<Variable*> exc_args;
    if (!is_none(tr.force(result))) exc_args.push_back(result);
    tr.raise(tr.call(tr.global_object(PyExc_StopIteration, Ground::fixed()), exc_args));
  };
  if (n == "__iter__" && args.size() == 0) return this;
  if (n == "__next__" && args.size() == 0) return stop(next(tr));
  if (n == "send" && args.size() == 1) return stop(send(tr, args[0]));
  if (n == "throw" && args.size() >= 1 && args.size() <= 3) {
    if (args.size() == 3 && !is_none(tr.force(args[2])) && !tr.force(args[2])->is(Kind::Traceback)) return nullptr;
    Variable* e = tr.force(args[0]);
    PyObject* cls = e->as_constant();
    auto is_exception = [](Variable* v) {
      return PyType_IsSubtype(v->type(), reinterpret_cast<PyTypeObject*>(PyExc_BaseException));
    };
    if (cls && PyExceptionClass_Check(cls)) {
      Variable* value = args.size() > 1 && !is_none(tr.force(args[1])) ? tr.force(args[1]) : nullptr;
      e = value && is_exception(value)
              ? value
              : tr.force(tr.call(e, value ? std::vector<Variable*>{value} : std::vector<Variable*>{}));
    } else if (args.size() > 1 && !is_none(tr.force(args[1]))) {
      return nullptr;
    }
    if (!is_exception(e)) return nullptr;
    return stop(throw_(tr, e));
  }
  if (n == "close" && args.size() == 0) return close(tr), tr.none();
  return nullptr;
}

}  // namespace braze::capture
