#include "codegen/source.h"

#include <algorithm>
#include <vector>

namespace braze::codegen {

std::string head_comment(const loop::Program& program, const loop::Nest& nest, std::string_view comment,
                         std::string_view facts) {
  std::string begin = std::string(comment) + " ";
  std::string out = begin + "nest " + nest.name + (facts.empty() ? "" : ": " + std::string(facts)) + "\n";
  std::vector<std::string> seen;
  for (graph::LocId id : nest.locs) {
    const graph::Location& at = program.locations[id];
    std::string line = at.file + ":" + std::to_string(at.line);
    if (!at.function.empty()) line += " in " + at.function;
    if (!at.text.empty()) line += ": " + at.text;
    std::replace(line.begin(), line.end(), '\n', ' ');
    if (std::find(seen.begin(), seen.end(), line) != seen.end()) continue;
    seen.push_back(line);
    out += begin + "  " + line + "\n";
  }
  return out;
}

}  // namespace braze::codegen
