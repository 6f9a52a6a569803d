// The exception that carries a graph break out of a torch function: raised where the recorder stands below PyTorch's
// dispatcher, it passes through C++ and Python frames and arrives in the evaluator as a Python exception.
#pragma once
#include <string>

#include "base/reasons.h"

namespace braze::trace {

// Throws PyTorch's python_error with our exception set, so that it keeps its type on the way. Takes the GIL itself.
[[noreturn]] void throw_graph_break(Reason reason, const std::string& detail);

// The same as a Python exception that is set. Needs the GIL.
void set_graph_break(Reason reason, const std::string& detail);

}  // namespace braze::trace
