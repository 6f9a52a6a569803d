// A Python frame being evaluated.
#pragma once
#include <vector>

#include "capture/code/bytecode.h"
#include "capture/cpython/call_order.h"
#include "capture/eval/variable.h"

namespace braze::capture {

// Generators keep theirs between resumptions.
struct Frame {
  const Bytecode* code = nullptr;
  Variable* function = nullptr;  // nullptr: the outermost frame of a capture
  PyObject* globals = nullptr;   // borrowed, as is builtins
  PyObject* builtins = nullptr;
  SourceId globals_source;
  std::vector<Variable*> locals;  // localsplus; cells as CellVariable
  std::vector<Variable*> stack;   // of fixed capacity; above sp nothing counts
  std::vector<int> cleared;       // locals that the evaluated code deleted
  int sp = 0;
  int ip = 0;
  uint64_t ordinal = 0;          // of the current instruction
  PyObject* kw_names = nullptr;  // the tuple of a KwNames that is in effect (borrowed from the code)
  bool resumable = false;        // its caller only waits for the result to push
  bool is_generator = false;
  Variable* pending = nullptr;  // an exception to be raised when the generator resumes
  Variable* handled = nullptr;  // what the generator was handling when it yielded
  Variable* around = nullptr;   // what the caller of a generator handles while it runs
  Frame* parent = nullptr;

  void push(Variable* v) { stack[sp++] = v; }
  Variable* pop() { return stack[--sp]; }
  void push_callable(Variable* v) {  // one without `self`
    auto pair = cpython::without_self(v);
    push(pair.lower);
    push(pair.upper);
  }
  Variable*& top(int i = 1) { return stack[sp - i]; }
  UserLine line() const { return {code->code, code->instructions[ip].line}; }
};

}  // namespace braze::capture
