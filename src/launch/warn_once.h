#pragma once
#include <string>

namespace braze::launch {

// Tells the program's log, Python's logger "braze", as a warning; the same text once per process. On any thread, with
// the GIL or without, which it takes. Leaves no exception.
void warn_once(const std::string& text);

}  // namespace braze::launch
