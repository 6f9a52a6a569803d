// Runs machine code on random data and compares with the loop interpreter.
#pragma once
#include <iosfwd>

#include "tools_stages.h"

namespace braze::tools {

struct RunOptions {
  uint64_t seed = 0;
  double tolerance = 1e-4;
  std::vector<std::string> sizes;  // name=value; others get the least value of their range that is at least 8
};

// Prints one line per output. Extern calls need PyTorch: matrix products alone are carried out, by plain loops.
bool run_and_compare(State state, const Options& options, const RunOptions& run, bool time, std::ostream& out);

}  // namespace braze::tools
