// Exceptions of the user's program while it is captured: raising, what is handled, the chain of contexts; and what ends
// the graph.
#pragma once
#include <string>
#include <unordered_map>

#include "capture/eval/variable.h"

namespace braze::capture {

struct Frame;

// Exceptions whose state is their arguments (and what an empty call of their class leaves in the other fields).
bool is_plain_exception(PyTypeObject* cls);
// Its class and its text, for messages.
std::string describe_exception(Variable* exception);
// Whether so little of the C stack is left that nothing may recurse further.
bool stack_is_low();

class Raising {
 public:
  explicit Raising(Translator& tr) : tr_(tr) {}

  // Ends the graph before the current instruction.
  [[noreturn]] void unsupported(Reason r, const std::string& detail);
  [[noreturn]] void unsupported(const std::string& detail) { unsupported(Reason::UnsupportedFeature, detail); }
  // Ends the segment when the C stack is about to end (a recursion over values that are deeply nested).
  void check_stack() {
    if (stack_is_low()) unsupported("values that are nested too deeply");
  }

  // What a message calls a class. The program may rename its own.
  std::string name_of(PyTypeObject* cls);
  // As texts about an empty slot have it: from 3.13 on with its module and the scopes around it.
  std::string name_of_owner(PyTypeObject* cls);
  [[noreturn]] void raise(PyObject* type, const std::string& message);
  [[noreturn]] void raise(Variable* exception);
  [[noreturn]] void raise_current();  // the Python exception that is set, after a call into CPython failed
  // As it is, with the place where it was raised first.
  [[noreturn]] void throw_raised(Variable* exception);
  // The traceback, or something else that only a real raise gives, is wanted: the instruction that raised it is to be
  // carried out natively.
  [[noreturn]] void raise_natively(Variable* exception, const char* why);
  // What a StopIteration that leaves a generator becomes.
  [[noreturn]] void raise_stop_iteration_error(Variable* exception);

  // What sys.exc_info() gives: of this frame, or of a caller of the generator that runs. nullptr: nothing.
  Variable* being_handled();
  Variable* handled_at_start();      // what the thread handled when the capture began; None within a generator
  bool is_as_at_start(Variable* v);  // this, or nothing where there is nothing
  // Sets __context__ of an exception that is raised, as the interpreter does.
  void chain_context(Variable* exception, Variable* context);

  // The instruction that raised this exception first; `ordinal` where none did yet, which is noted. 0: it was there
  // before.
  uint64_t raised_at(Variable* exception, uint64_t ordinal) {
    return origins_.try_emplace(exception, ordinal).first->second;
  }
  // The same, and 0 where none did.
  uint64_t origin(const Variable* exception) const {
    auto it = origins_.find(exception);
    return it == origins_.end() ? 0 : it->second;
  }
  bool was_raised(const Variable* exception) const { return origin(exception) > 0; }

  Variable* handled = nullptr;  // the exception being handled (None: none); nullptr: as it was at the start

 private:
  void refuse_words_of_traces(PyObject* exception);

  Translator& tr_;
  std::unordered_map<const Variable*, uint64_t> origins_;  // the instruction that raised it first
  Variable* handled_before_ = nullptr;                     // what the thread handles at the start, lazy
};

}  // namespace braze::capture
