// What an entry does besides computing: changes of objects that were there before, state of PyTorch's, deferred calls,
// locks, gradients.
#pragma once
#include <deque>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "capture/eval/variable.h"

namespace braze::capture {

class ContextTokenVariable;
class TensorVariable;

// A lock of threading that was there before and that the captured code takes or asks for.
struct HeldLock {
  PyObject* object;  // borrowed
  SourceId source;
  uint64_t ordinal;  // where it was met first
  int count = 0;     // how often the code has taken it and not given it back
};

class Effects {
 public:
  explicit Effects(Translator& tr) : tr_(tr) {}

  // Called by mutable variables that have a source, at their first change.
  void modified(Variable* v);
  const std::vector<Variable*>& modifications() const { return modified_; }
  // Of objects made here that nothing outside of the capture sees: a backward may change them as well.
  void private_to_capture(Variable* v) { private_.insert(v); }

  // A call without a result that matters here, made when the entry runs, after its graph and in order with others:
  // logging, warnings.
  void defer_call(Variable* callee, Args args);
  // The same, of a message: what its way leads over may not change after it in this capture.
  void defer_message(Variable* callee, Args args, const std::vector<PyObject*>& way);
  // The same, of one that nothing of the program's can see but the object that is called (a cache).
  void defer_unseen_call(Variable* callee, Args args);
  // Made by the entry whether or not it is part of what it gives, for the effect that making it has.
  void make_always(Variable* v) { ++seen_, always_made_.push_back(v); }

  // The entry takes this lock before its graph runs and gives it back at its end, or runs uncompiled where another
  // thread has it: what it holds in the meantime the code may take and give back. Of the captured code, the entry's end
  // included, none is left taken.
  HeldLock* held_lock(Variable* lock);
  const std::deque<HeldLock>& locks() const { return locks_; }

  // Changes interpreter state for the rest of the capture (grad mode, autocast...): calls set(value) now, and when the
  // entry runs; undone when the capture ends. get() reads the present state.
  void set_state(PyObject* get, std::vector<Ref> get_args, PyObject* set, std::vector<Ref> set_args);
  void undo_states();
  // For the life of this object the states are those of a function that PyTorch calls: what it sets is undone at the
  // end.
  class StatesOfCallback;

  // A contextvars.ContextVar set, and back to what it was. One that is set and reset is no effect.
  void set_context(ContextTokenVariable* token);
  void reset_context(ContextTokenVariable* token);
  std::vector<ContextTokenVariable*> context_tokens;  // set and not reset, in order

  // The entry gives the tensor's .grad what it has at the end of the capture (vars/tensor_grad.h).
  void watch_gradient(TensorVariable* t);
  bool frees_histories = false;  // a backward inside let go of what the graphs of its roots have saved

  // From this ordinal on no object of before may be changed and nothing else may have effects: `part` says of what
  // ("the backward of an autograd.Function"), which the entry runs at another time, or in vain.
  void begin_pure(uint64_t since, const char* part) { pure_since_ = since, pure_part_ = part; }
  class PurePart;
  bool in_pure_part() const { return pure_since_ != 0; }
  // Every effect says so; throws Unsupported there.
  void no_effect(const char* what);
  // How many effects were met: of two equal numbers nothing lies between.
  uint64_t seen() const { return seen_; }

  // Whether the entry has anything to do beside its graph, calls that cannot be seen aside.
  bool pending() const;
  // The steps of the entry that carry all this out.
  void emit(Codegen& cg);

  bool inference = false;                             // torch.inference_mode() was entered in the captured code
  uint64_t inference_since = 0;                       // the instruction that entered it last; 0: none
  uint64_t dual_since = 0;                            // the instruction that made the first dual number; 0: none
  std::unordered_map<Variable*, Variable*> weakrefs;  // those made in the capture, by what they refer to

 private:
  void emit_locks();
  void emit_modifications(Codegen& cg);
  void emit_gradients(Codegen& cg);
  void emit_calls(Codegen& cg);
  void emit_states(Codegen& cg);
  void emit_contexts(Codegen& cg);

  Translator& tr_;
  std::vector<Variable*> modified_;
  std::unordered_set<Variable*> private_;
  struct DeferredCall {
    Variable* callee;
    Args args;
  };
  std::vector<DeferredCall> deferred_;
  std::vector<Ref> ways_of_messages_;
  size_t unseen_ = 0;           // of these
  uint64_t context_since_ = 0;  // the instruction that set a context variable first; 0: none
  uint64_t seen_ = 0;
  std::vector<Variable*> always_made_;
  std::deque<HeldLock> locks_;  // addresses stay
  struct State {
    PyObject* get;
    std::vector<Ref> get_args;
    PyObject* set;
    std::vector<Ref> set_args;
    Ref before;
  };
  std::vector<State> states_;
  std::vector<TensorVariable*> gradients_;  // tensors that were there before, whose .grad was read or written
  uint64_t pure_since_ = 0;
  const char* pure_part_ = "";
};

class Effects::StatesOfCallback {
 public:
  explicit StatesOfCallback(Effects& effects) : effects_(effects), around_(effects.states_) {}
  ~StatesOfCallback();
  bool changed() const;  // a state is not as it was at the start

 private:
  Effects& effects_;
  std::vector<State> around_;
};

class Effects::PurePart {
 public:
  PurePart(Effects& effects, uint64_t since, const char* part)
      : effects_(effects), since_(effects.pure_since_), part_(effects.pure_part_) {
    effects.begin_pure(since, part);
  }
  ~PurePart() { effects_.begin_pure(since_, part_); }
  PurePart(const PurePart&) = delete;
  PurePart& operator=(const PurePart&) = delete;

 private:
  Effects& effects_;
  uint64_t since_;
  const char* part_;
};

}  // namespace braze::capture
