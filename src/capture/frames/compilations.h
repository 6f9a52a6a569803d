// What compiling does, counted and told: braze.counters(), braze.on_compile().
#pragma once
#include <map>
#include <string>

#include "capture/frames/region.h"

namespace braze::capture {

// Of the process, since it started or cleared them. Needs the GIL.
struct Counters {
  size_t captures = 0;         // that ended: in an entry, or in code that runs uncompiled
  size_t graphs = 0;           // compiled
  size_t training_graphs = 0;  // of these, with a backward
  size_t recompiles = 0;       // captures of code that had been compiled
  size_t failures = 0;         // captures that an error of ours ended
  size_t runs_made_again = 0;  // runs of a graph that ended in an exception, after which the uncompiled code ran
  size_t kept_captures = 0;    // captures that another process had made
  size_t left_out = 0;         // captures, where those before had served next to no other calls
  double capture_seconds = 0, compile_seconds = 0;
  std::map<std::string, size_t> breaks;  // by the name of the reason
};
Counters& counters();

// Told when a capture begins (`ended` is nullptr) and when it has ended, on the thread that compiles. Leaves no
// exception.
using Listener = void (*)(const UserLine& at, const std::string& name, const Event* ended);
void set_listener(Listener);  // nullptr: none
Listener listener();

// Compiled code forgets the object of this weak reference if it made the reference, as when the object ends.
void let_go(PyObject* weakref);

}  // namespace braze::capture
