// A nest's ops as lines of a kernel that has the points' indices and inputs as values already.
#pragma once
#include <array>
#include <set>
#include <string>
#include <vector>

#include "loop/loop.h"

namespace braze::codegen::triton {

struct PointNames {
  std::array<std::string, 4> axes;    // indices of the four dimensions, numbers or 2-dimensional
  std::vector<std::string> values;    // of inputs 0, 1, ...: what is there already
  std::vector<std::string> pointers;  // of the inputs after these
  std::string prefix;                 // of the names that the lines define
};
struct PointText {
  std::vector<std::string> lines;
  std::string result;
};

// The program is one nest of one stage that stores one result over `sizes`, whose symbols are names in the kernel.
// `helpers` collects what the lines call (helpers.h). Throws Inexpressible.
PointText print_point(const loop::Program& program, const std::array<sym::Expr, 4>& sizes, const PointNames& names,
                      int sm, std::set<std::string>& helpers);

}  // namespace braze::codegen::triton
