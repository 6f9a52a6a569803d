// What Python code says to the compiler, and what capture says to Python code.
#pragma once
#include <array>
#include <string>

#include "capture/cpython/frame.h"
#include "capture/cpython/ref.h"

namespace braze::capture {

// The functions that the public package exports, compared by identity. Set once by bind/.
struct Markers {
  PyObject* graph_break = nullptr;
  PyObject* is_compiling = nullptr;
};
Markers& markers();

// True if `function` (a function, or an object with __dict__) was given to braze.disable or torch.compiler.disable.
bool is_disabled(PyObject* function);
// The names in its __dict__ that say so.
const std::array<PyObject*, 2>& disabling_marks();

// ": why", where it was said then; else empty.
std::string why_disabled(PyObject* function);
// True if torch.compiler.assume_constant_result was told of the function: it is called once, in capture.
bool has_constant_result(PyObject* function);

// True while this thread captures.
bool capturing();

// What this thread runs while the scope lives is hidden from the program's tracer and profiler.
class UntracedScope {
 public:
  UntracedScope() { PyThreadState_EnterTracing(PyThreadState_Get()); }
  ~UntracedScope() {
    if (PyThreadState* ts = cpython::state_if_held()) PyThreadState_LeaveTracing(ts);
  }
  UntracedScope(const UntracedScope&) = delete;
};

// This thread captures while the scope lives. PyTorch's own flag, which torch.compiler.is_compiling() reads, belongs to
// the process: the first scope of any thread sets it and the last one puts back what was there. Needs the GIL.
class CapturingScope {
 public:
  CapturingScope();
  ~CapturingScope();
  CapturingScope(const CapturingScope&) = delete;
  CapturingScope& operator=(const CapturingScope&) = delete;

 private:
  bool before_;
};

// Compiled callables that this thread calls run as they are. Returns what was set before.
bool set_disabled(bool on);
bool disabled();

// The Python function behind a compiled callable of ours (borrowed), or nullptr.
PyObject* wrapped_function(PyObject* callable);
void set_wrapped_function(PyObject* (*unwrap)(PyObject*));

}  // namespace braze::capture
