// What a graph computes, before and after passes: interpreter against interpreter.
#pragma once
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "graph/interpret.h"
#include "passes/optimize.h"

namespace braze::passes {

// Values for the inputs, of both signs, negative zeros among them. An input's name may say which: "unit ..." in (0, 1),
// "... below N" whole numbers in [0, N); whole numbers are 0 or 1 otherwise. Sizes that are symbols are 3, or the next
// in their range.
sym::Env sample_sizes(const graph::Graph&);
std::vector<graph::HostTensor> sample_inputs(const graph::Graph&, uint64_t seed = 0);

// Where both graphs do not compute the same from the same inputs, to the bit or within rounding of floats; empty:
// nowhere.
enum class Within : uint8_t { Nothing, Rounding };
std::string difference(const graph::Graph& before, const graph::Graph& after, Within);
std::string difference(const graph::HostTensor& want, const graph::HostTensor& got, Within);

// The machine of the tests: any CPU, and an H200 as the first GPU.
const Targets& machine();

// For each pass of the pipeline by itself, and for each in its place after those before it. `seen` gets the names of
// all operators that were interpreted.
void expect_passes_keep_meaning(const graph::Graph&, std::set<std::string>* seen = nullptr);

std::set<std::string> operators_of(const graph::Graph&);

// The text of the file, from the folder of the sources.
std::string source(const std::string& path);
std::vector<std::string> sources(const std::string& folder, std::string_view suffix);  // their paths

}  // namespace braze::passes
