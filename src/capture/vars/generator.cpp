// Generators: frames that are resumed symbolically. Those that were there before are read where they wait, and the real
// ones brought to where they came to.
#include <algorithm>
#include <cstddef>
#include <utility>

#include "capture/builtins/builtins.h"
#include "capture/code/kept_ends.h"
#include "capture/cpython/generator.h"
#include "capture/eval/calls.h"
#include "capture/eval/translator.h"
#include "capture/guards/content.h"
#include "capture/guards/dynamic.h"
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

void refuse_dropped(Translator& tr, Variable* v) {
  if (v && v->is(Kind::Lazy)) v = v->as<LazyVariable>()->forced;
  if (v && v->is(Kind::Generator) && v->source.valid() && v->as<GeneratorVariable>()->has_end_to_run(tr))
    tr.unsupported("a generator that is dropped before its end");
}

void GeneratorVariable::change(Translator& tr) {
  tr.mutate();
  tr.effects.modified(this);
}

// The frame lets go of what it holds: of a real one, the interpreter closes generators that nobody else holds.
void GeneratorVariable::end(Translator& tr) {
  running = false;
  finished = true;
  if (!source.valid()) return;
  for (Variable* v : frame->locals) refuse_dropped(tr, v);
  for (int i = 0; i < frame->sp; ++i) refuse_dropped(tr, frame->stack[static_cast<size_t>(i)]);
}

// Runs the frame to its next yield (its value), or to its return (nullptr; the value is in `result`).
Variable* GeneratorVariable::resume(Translator& tr) {
  started = running = true;
  Variable* v;
  try {
    v = tr.run_in(frame, tr.frame(), false);
  } catch (PyRaise& e) {
    end(tr);
#if PY_VERSION_HEX < 0x030C0000
    // Later versions do this by an instruction.
    if (tr.is_instance(e.exception, PyExc_StopIteration)) tr.raise_stop_iteration_error(e.exception);
#endif
    throw;
  }
  if (tr.yielded()) return running = false, v;
  end(tr);
  result = v;
  return nullptr;
}

Variable* GeneratorVariable::send(Translator& tr, Variable* value) {
  change(tr);
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
  change(tr);
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

Variable* GeneratorVariable::close(Translator& tr) {
  change(tr);
  if (!started || finished) {
    finished = true;
    return tr.none();
  }
  try {
    throw_(tr, tr.call(tr.global_object(PyExc_GeneratorExit, Ground::fixed()), std::vector<Variable*>{}));
  } catch (PyRaise& e) {
    if (is_exit(tr, e.exception) || tr.is_instance(e.exception, PyExc_StopIteration)) return tr.none();
    throw;
  }
  if (!finished) tr.raise(PyExc_RuntimeError, "generator ignored GeneratorExit");
  return cpython::kCloseGivesResult ? result : tr.none();
}

bool GeneratorVariable::has_end_to_run(Translator& tr) {
  if (!started || finished || frame->ip < 1) return false;
  std::vector<int32_t> compared;
  if (frame->code->has_end_to_run(frame->ip - 1, &compared)) return true;
  auto takes_exit = [&](int32_t name) {
    try {
      Variable* cls = tr.force(tr.load_global(*frame, frame->code->name(name)));
      return !cls->is(Kind::Real) || !PyExceptionClass_Check(cls->as_constant()) ||
             tr.is_subclass(PyExc_GeneratorExit, cls->as_constant());
    } catch (const PyRaise&) {
      return true;
    } catch (const Unsupported&) {
      return true;
    }
  };
  return std::any_of(compared.begin(), compared.end(), takes_exit);
}

Variable* GeneratorVariable::getattr(Translator& tr, PyObject* name) {
  auto is = [&](const char* s) { return PyUnicode_CompareWithASCIIString(name, s) == 0; };
  if (is("gi_running")) return tr.boolean(running, Ground::pure(this));
  if (is("gi_suspended")) return tr.boolean(started && !running && !finished, Ground::pure(this));
  if (is("gi_frame") && finished) return tr.none();
  for (auto [own, offset] : {std::pair{"__name__", cpython::generator_name_offset()},
                             std::pair{"__qualname__", cpython::generator_qualname_offset()}})
    if (source.valid() && is(own)) {
      PyObject* value = *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(real.get()) + offset);
      return tr.wrap(value, tr.sources().add(SourceKind::Slot, source, static_cast<int64_t>(offset), name));
    }
  if (!frame) tr.unsupported("an attribute of a generator that has ended");
  if (is("gi_code")) return tr.global_object(reinterpret_cast<PyObject*>(frame->code->code), Ground::pure(this));
  if (is("__name__") || is("__qualname__")) return tr.getattr(frame->function, name);
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
    if (args.size() > 1 && cpython::kThrowWarns) return nullptr;
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
  if (n == "close" && args.size() == 0) return close(tr);
  return nullptr;
}

// ---- what was there before, and what outlives the compiled code ----

static const Instruction& instruction_of(const Bytecode& code, Opcode op) {
  return *std::find_if(code.instructions.begin(), code.instructions.end(),
                       [&](const Instruction& i) { return i.op == op; });
}

static Reg offset_of(Codegen& cg, const Instruction& i) {
  return cg.constant(Ref::steal(PyLong_FromLong(i.offset)).get());
}

// The arguments of cpython::generator_go_to() behind the generator.
std::vector<Reg> GeneratorVariable::state(Codegen& cg) {
  const Bytecode& code = *frame->code;
  bool handles = frame->handled && !is_none(cg.tr.force(frame->handled));
  if (running || frame->pending || frame->kw_names || handles)
    throw CannotRebuild{this, "a generator that handles an exception"};
  std::vector<Reg> out{offset_of(cg, code.instructions[static_cast<size_t>(frame->ip) - 1])};
  Reg nothing = cg.constant(cpython::empty_slot());
  auto add = [&](Variable* v) { out.push_back(v ? cg.reg(v) : nothing); };
  // Also what can't be read any more: eager keeps it until the generator ends.
  for (Variable* v : frame->locals) add(v);
  std::for_each(frame->stack.begin(), frame->stack.begin() + frame->sp, add);
  return out;
}

Reg GeneratorVariable::build(Codegen& cg) {
  if (!frame) return Variable::build(cg);
  Reg self = cg.recipe.make(StepKind::Call, {cg.constant(cpython::generator_made()), cg.reg(frame->function)});
  emit_state(cg, self);
  return self;
}

void GeneratorVariable::emit_state(Codegen& cg, Reg self) {
  if (!frame) return;
  PyObject* f = finished ? cpython::generator_ended() : cpython::generator_go_to();
  std::vector<Reg> args{cg.constant(f), self};
  std::vector<Reg> rest =
      finished ? std::vector{offset_of(cg, instruction_of(*frame->code, Opcode::ReturnGenerator))} : state(cg);
  args.insert(args.end(), rest.begin(), rest.end());
  cg.recipe.make(StepKind::Call, args);
}

Variable* wrap_generator(Translator& tr, SeenSizes* seen, PyObject* generator, SourceId source) {
  Ref content = Ref::borrow(content_of(generator));
  if (!content || keeps_end(content.get())) return nullptr;
  tr.keep(content);
  SourceId at = tr.sources().derived(SourceKind::Content, source);
  auto raw = [&](Py_ssize_t i) { return PyTuple_GET_ITEM(content.get(), i); };
  auto item = [&](Py_ssize_t i) { return tr.sources().tuple_item(at, i); };
  Py_ssize_t size = PyTuple_GET_SIZE(content.get());
  const Bytecode* code = nullptr;
  int64_t position = 0;
  if (size) {
    position = PyLong_AsLongLong(raw(1));
    if (!is_evaluated(raw(0)) || (seen && !seen->position(tr.sources().print(at), position))) return nullptr;
    try {
      code = &decode(reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(raw(0))));
    } catch (const Unsupported&) {
      return nullptr;
    }
  }
  tr.guards().type_is(source, &PyGen_Type, tr.line());
  tr.guards().length(at, size, tr.line());
  Variable* function = size ? tr.force(tr.wrap(raw(0), item(0))) : nullptr;
  if (function && !function->is(Kind::Function)) return nullptr;  // PyTorch's, which are not evaluated
  auto* g = tr.make<GeneratorVariable>(nullptr);
  g->source = source;
  g->real = Ref::borrow(generator);
  g->result = tr.none();
  g->started = g->finished = !size;
  if (!size) return g;
  auto* fn = function->as<FunctionVariable>();
  guard_code(tr, fn);
  tr.guards().equal(item(1), raw(1), tr.line());
  Frame& f = *(g->frame = frame_of(tr, fn));
  f.is_generator = true;
  f.ip = code->index_at[static_cast<size_t>(position) / 2] + 1;
  g->started = code->instructions[static_cast<size_t>(f.ip) - 1].op != Opcode::ReturnGenerator;
  for (Py_ssize_t i = 2; i < size; ++i) {
    int slot = static_cast<int>(i) - 2;
    bool local = slot < code->num_locals_plus;
    Variable* v = nullptr;
    if (raw(i) == cpython::empty_slot()) {
      tr.guard_identity(item(i), raw(i));
    } else {
      v = tr.wrap(raw(i), item(i));
      bool cell = local && (code->is_free(slot) || code->is_cell(slot)) && PyCell_Check(raw(i));
      if (cell) v = tr.force(v);
      if (!local) tr.guards().type_is(item(i), Py_TYPE(raw(i)), tr.line());
    }
    if (local)
      f.locals[static_cast<size_t>(slot)] = v;
    else
      f.push(v);
  }
  return g;
}

}  // namespace braze::capture
