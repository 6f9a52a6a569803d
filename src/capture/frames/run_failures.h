// Runs of an entry's graph that ended in an exception, in whose place the uncompiled code ran.
#pragma once
#include <cstdint>
#include <string>

namespace braze::capture {

class RunFailures {
 public:
  // Whether the uncompiled code is to run at once: so many runs failed in a row that another try is not due yet. The
  // pauses double, so that code whose graph always fails costs what it costs uncompiled.
  bool pauses() { return pause_ && pause_--; }
  void succeeded() { in_a_row_ = 0; }
  // The exception that is set ended a run of the graph of that name; clears it.
  void ended(const std::string& name);

 private:
  uint32_t in_a_row_ = 0, pause_ = 0;
};

}  // namespace braze::capture
