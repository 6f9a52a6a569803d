// Effects of a capture, and the steps of an entry that carry them out.
#include "capture/eval/effects.h"

#include <algorithm>

#include "capture/builtins/messages.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"
#include "capture/vars/context_token.h"
#include "trace/global_state.h"

namespace braze::capture {

void Effects::modified(Variable* v) {
  if (private_.count(v)) return;
  if (v->source.valid() || v->born < pure_since_) no_effect("changes an object");
  if (!v->source.valid()) return;
  if (PyObject* object = ways_of_messages_.empty() ? nullptr : object_behind(v))
    for (const Ref& seen : ways_of_messages_)
      if (seen.get() == object)
        tr_.unsupported(Reason::UnsupportedMutation, "what a message was given to is changed after it");
  for (Variable* m : modified_)
    if (m == v) return;
  modified_.push_back(v);
}

void Effects::no_effect(const char* what) {
  ++seen_;
  if (pure_since_) tr_.unsupported(Reason::UnsupportedMutation, std::string(pure_part_) + " " + what);
}

bool Effects::pending() const { return !modified_.empty() || deferred_.size() != unseen_ || !context_tokens.empty(); }

void Effects::defer_call(Variable* callee, Args args) {
  no_effect("has an effect");
  tr_.mutate();
  deferred_.push_back({callee, std::move(args)});
}

void Effects::defer_message(Variable* callee, Args args, const std::vector<PyObject*>& way) {
  defer_call(callee, std::move(args));
  for (PyObject* object : way) ways_of_messages_.push_back(Ref::borrow(object));
}

void Effects::defer_unseen_call(Variable* callee, Args args) {
  ++unseen_;
  defer_call(callee, std::move(args));
}

void Effects::watch_gradient(TensorVariable* t) {
  for (TensorVariable* o : gradients_)
    if (o == t) return;
  gradients_.push_back(t);
}

// ---- states ----

static Ref invoke(PyObject* f, const std::vector<Ref>& args) {
  std::vector<PyObject*> raw;
  for (const Ref& a : args) raw.push_back(a.get());
  return Ref::steal(PyObject_Vectorcall(f, raw.data(), raw.size(), nullptr));
}

void Effects::set_state(PyObject* get, std::vector<Ref> get_args, PyObject* set, std::vector<Ref> set_args) {
  tr_.mutate();
  Ref before = invoke(get, get_args);
  if (!before || !invoke(set, set_args)) tr_.raise_current();
  for (State& s : states_)
    if (s.get == get && s.get_args.size() == get_args.size() &&
        (get_args.empty() || PyObject_RichCompareBool(s.get_args[0].get(), get_args[0].get(), Py_EQ) == 1)) {
      s.set_args = std::move(set_args);
      return;
    }
  states_.push_back({get, std::move(get_args), set, std::move(set_args), before});
}

void Effects::undo_states() {
  trace::WithoutTorchFunctions own_calls(tr_.torch_functions.has_modes() ? 2 : 0);
  for (auto it = states_.rbegin(); it != states_.rend(); ++it) {
    std::vector<Ref> args = it->get_args;
    args.push_back(it->before);
    if (!invoke(it->set, args)) PyErr_Clear();
  }
  states_.clear();
}

Effects::StatesOfCallback::~StatesOfCallback() {
  effects_.states_.erase(effects_.states_.begin(), effects_.states_.begin() + static_cast<long>(around_.size()));
  effects_.undo_states();
  effects_.states_ = std::move(around_);
}

bool Effects::StatesOfCallback::changed() const {
  for (size_t i = around_.size(); i < effects_.states_.size(); ++i) {
    const State& s = effects_.states_[i];
    Ref now = invoke(s.get, s.get_args);
    if (!now || PyObject_RichCompareBool(now.get(), s.before.get(), Py_EQ) != 1) return true;
  }
  return false;
}

// ---- context variables ----

void Effects::set_context(ContextTokenVariable* token) {
  tr_.mutate();
  ++seen_;
  token->in_pure_part = in_pure_part();
  if (!context_since_) context_since_ = tr_.ordinal();
  context_tokens.push_back(token);
}

void Effects::reset_context(ContextTokenVariable* token) {
  tr_.mutate();
  token->used = true;
  context_tokens.erase(std::find(context_tokens.begin(), context_tokens.end(), token));
}

void Effects::emit_contexts(Codegen& cg) {
  // What writes messages may read the variable, and would find what it is at the end.
  if (context_since_ && deferred_.size() != unseen_)
    throw Restart{context_since_, {Reason::UnsupportedMutation, "a context variable that is set beside messages"}};
  for (ContextTokenVariable* token : context_tokens) {
    if (token->in_pure_part)
      throw Restart{
          token->born,
          {Reason::UnsupportedMutation, "a context variable that is left set in a function that PyTorch calls"}};
    cg.reg(token);
  }
}

// ---- locks ----

HeldLock* Effects::held_lock(Variable* lock) {
  no_effect("takes a lock");
  for (HeldLock& l : locks_)
    if (l.object == lock->as_constant()) return &l;
  locks_.push_back({lock->as_constant(), lock->source, tr_.ordinal()});
  return &locks_.back();
}

void Effects::emit_locks() {
  if (locks_.empty()) return;
  // What writes messages may wait for other threads, which may wait for the lock.
  if (deferred_.size() != unseen_)
    throw Restart{locks_[0].ordinal, {Reason::UnknownFunction, "a lock beside messages"}};
  for (const HeldLock& l : locks_) {
    if (l.count) throw Restart{l.ordinal, {Reason::UnknownFunction, "a lock that is still held where the graph ends"}};
    tr_.segment().locks.push_back(l.source);
  }
}

// ---- steps ----

// A deque that was there before gets its items anew.
static void emit_deque(Codegen& cg, ListVariable* v, Reg self) {
  if (!v->changes) {  // its iterators go on
    for (size_t i = 0; i < v->elements.size(); ++i)
      cg.recipe.effect(StepKind::SetItem,
                       {self, cg.constant(Ref::steal(PyLong_FromSize_t(i)).get()), cg.reg(v->elements[i])});
    return;
  }
  auto method = [&](const char* name) {
    return cg.constant(Ref::steal(native::attr(Ground::fixed(), reinterpret_cast<PyObject*>(v->cls), name)).get());
  };
  Reg items = cg.recipe.make(StepKind::List, cg.regs(v->elements));
  cg.recipe.make(StepKind::Call, {method("clear"), self});
  cg.recipe.make(StepKind::Call, {method("extend"), self, items});
}

void Effects::emit_modifications(Codegen& cg) {
  // By index: what is emitted may touch more.
  for (size_t i = 0; i < modified_.size(); ++i) {
    Variable* v = modified_[i];
    Reg self = cg.reg(v);
    switch (v->kind) {
      case Kind::Dict: v->as<DictVariable>()->emit_changes(cg, self); break;
      case Kind::List: {
        if (v->type() != &PyList_Type) {
          emit_deque(cg, v->as<ListVariable>(), self);
          break;
        }
        std::vector<Reg> args{self};
        for (Variable* e : v->as<ListVariable>()->elements) args.push_back(cg.reg(e));
        cg.recipe.effect(StepKind::ListAssign, args);
        break;
      }
      case Kind::Set: {
        std::vector<Reg> args{self};
        v->as<SetVariable>()->add_content(cg, args);
        cg.recipe.effect(StepKind::SetAssign, args);
        break;
      }
      case Kind::Cell: cg.recipe.effect(StepKind::CellSet, {self, cg.reg(v->as<CellVariable>()->contents)}); break;
      case Kind::Object:
      case Kind::Module: v->as<ObjectVariable>()->emit_changes(cg, self); break;
      case Kind::Tensor: v->as<TensorVariable>()->emit_changes(cg, self); break;
      case Kind::Generator: v->as<GeneratorVariable>()->emit_state(cg, self); break;
      case Kind::Iterator: static_cast<IteratorVariable*>(v)->emit_advance(cg, self); break;
      default: throw InternalError("a change of " + v->describe() + " without a recipe");
    }
  }
}

void Effects::emit_calls(Codegen& cg) {
  for (const DeferredCall& c : deferred_) {
    std::vector<Reg> regs{cg.reg(c.callee)};
    for (Variable* a : c.args.pos) regs.push_back(cg.reg(a));
    Ref names = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(c.args.kw.size())));
    for (size_t i = 0; i < c.args.kw.size(); ++i) {
      regs.push_back(cg.reg(c.args.kw[i].second));
      PyTuple_SET_ITEM(names.get(), static_cast<Py_ssize_t>(i), Ref::borrow(c.args.kw[i].first).release());
    }
    cg.recipe.make(StepKind::Call, regs, c.args.kw.empty() ? nullptr : names.get());
  }
}

void Effects::emit_states(Codegen& cg) {
  for (const State& s : states_) {
    Ref now = invoke(s.get, s.get_args);
    if (!now) {
      PyErr_Clear();
      continue;
    }
    if (PyObject_RichCompareBool(now.get(), s.before.get(), Py_EQ) == 1) continue;
    std::vector<Reg> regs{cg.constant(s.set)};
    for (const Ref& a : s.set_args) regs.push_back(cg.constant(a.get()));
    cg.recipe.make(StepKind::Call, regs);
  }
}

void Effects::emit(Codegen& cg) {
  emit_locks();
  emit_modifications(cg);
  for (const Attributes::Write& w : tr_.attributes.writes())
    cg.recipe.effect(StepKind::SetAttr, {cg.constant(reinterpret_cast<PyObject*>(w.type)), cg.reg(w.value)}, w.name);
  emit_gradients(cg);
  emit_contexts(cg);
  for (Variable* v : always_made_) cg.reg(v);
  emit_calls(cg);
  tr_.torch_functions.emit_modes(cg);
  emit_states(cg);
}

}  // namespace braze::capture
