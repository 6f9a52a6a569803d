// State of a capture that several parts share.
#include "capture/eval/translator.h"

#include "capture/vars/all.h"

namespace braze::capture {

void Translator::modified(Variable* v) {
  if (private_.count(v)) return;
  if (v->source.valid() || v->born < pure_since) no_effect("changes an object");
  if (!v->source.valid()) return;
  for (Variable* m : modified_)
    if (m == v) return;
  modified_.push_back(v);
}

DictVariable* Translator::globals_dict(const Frame& f) {
  return force(wrap(f.globals, f.globals_source))->as<DictVariable>();
}

void Translator::lifted(TensorVariable* v) { lifted_.push_back(v); }

void Translator::set_state(PyObject* get, std::vector<Ref> get_args, PyObject* set, std::vector<Ref> set_args) {
  auto invoke = [&](PyObject* f, const std::vector<Ref>& args) {
    std::vector<PyObject*> raw;
    for (const Ref& a : args) raw.push_back(a.get());
    Ref r = Ref::steal(PyObject_Vectorcall(f, raw.data(), raw.size(), nullptr));
    if (!r) raise_current();
    return r;
  };
  mutate();
  Ref before = invoke(get, get_args);
  invoke(set, set_args);
  for (State& s : states_)
    if (s.get == get && s.get_args.size() == get_args.size() &&
        (get_args.empty() || PyObject_RichCompareBool(s.get_args[0].get(), get_args[0].get(), Py_EQ) == 1)) {
      s.set_args = std::move(set_args);
      return;
    }
  states_.push_back({get, std::move(get_args), set, std::move(set_args), before});
}

void Translator::defer_call(Variable* callee, Args args) {
  no_effect("has an effect");
  mutate();
  deferred_.push_back({callee, std::move(args)});
}

HeldLock* Translator::held_lock(Variable* lock) {
  no_effect("takes a lock");
  for (HeldLock& l : locks_)
    if (l.object == lock->as_constant()) return &l;
  locks_.push_back({lock->as_constant(), lock->source, ordinal_});
  return &locks_.back();
}

void Translator::emit_locks() {
  if (locks_.empty()) return;
  // What writes messages may wait for other threads, which may wait for the lock.
  if (deferred_.size() != cached_deferred_) throw Restart{locks_[0].ordinal, {Reason::UnknownFunction, "a lock beside messages"}};
  for (const HeldLock& l : locks_) {
    if (l.count) throw Restart{l.ordinal, {Reason::UnknownFunction, "a lock that is still held where the graph ends"}};
    segment_.locks.push_back(l.source);
  }
}

UserLine Translator::line() const {
  for (Frame* f = frame_; f; f = f->parent)
    if (f->code && f->ip < static_cast<int>(f->code->instructions.size())) return f->line();
  return {};
}

}  // namespace braze::capture
