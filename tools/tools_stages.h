// The stages by name, over whichever form the text is in.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/options.h"
#include "graph/graph.h"
#include "loop/loop.h"

namespace braze::tools {

struct State {
  std::optional<graph::Graph> graph;       // the last graph
  std::optional<loop::Program> reference;  // the first loop program: what a run is compared with
  std::optional<loop::Program> program;    // the last loop program
  std::optional<std::string> text;         // of a stage whose result is no IR (memory, codegen, plan)
};

std::vector<std::string> stage_names();
State parse(const std::string& text);
// Throws InternalError where the state lacks the form that the stage works on. Verifies the result.
void apply(State& state, const std::string& stage, const Options& options);
std::string print(const State& state);
// Number of graph inputs of a loop program, from its buffers.
uint32_t input_count(const loop::Program& program);

}  // namespace braze::tools
