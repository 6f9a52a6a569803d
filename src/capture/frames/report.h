// What is said of code that runs uncompiled: as an exception where all of it is to be compiled, else on the program's
// log.
#pragma once
#include <string>

#include "capture/eval/capture.h"

namespace braze::capture {

// Set once by bind/: the exception that fullgraph=True raises.
void set_unsupported_exception(PyObject* type);
// fullgraph=True: sets it.
void refuse(const BreakInfo& stop);
// "reason: detail" with remedy, place and source line.
std::string explain_break(const BreakInfo&);

// A graph, or all code from a place on, that runs uncompiled though it was captured, or could not be because of an
// error of ours: told to Python's logger "braze" as a warning, once per process for the same place and reason. Leaves
// no exception.
void say_uncompiled(const UserLine& at, const std::string& why);
// The text of an error of ours. `dump`: the IR that it was met with.
std::string describe_failure(const UserLine& at, const std::string& what, const std::string& dump);

// The Python exception that is set, as text; clears it.
std::string take_exception();

}  // namespace braze::capture
