// What the process asks of compiling, besides the options of each braze.compile().
#pragma once
#include <cstddef>
#include <optional>
#include <string>

#include "capture/cpython/ref.h"
#include "capture/guards/dynamic.h"

namespace braze::capture {

enum class Stance : uint8_t { Default, ForceEager, EagerOnRecompile, FailOnRecompile, EagerThenCompile };

// braze.set_stance's; where that is the default one, torch.compiler.set_stance's. Needs the GIL.
Stance stance();
std::string set_stance(const std::string& name);  // what it was before; empty: there is none of this name
std::string stance_names();                       // by commas

// Whether the program is inside of torch._dynamo.error_on_graph_break(True).
bool breaks_are_errors();

// What programs set in torch._dynamo.config, where they loaded it.
struct TorchConfig {
  size_t recompile_limit = 0;      // 0: as by default
  bool numbers = false;            // numbers read from tensors stay in the graph
  bool fail = false;               // code that needs to be compiled again is an error
  bool off = false;                // nothing is compiled
  std::optional<Dynamic> dynamic;  // instead of Auto
};
TorchConfig torch_config();

}  // namespace braze::capture
