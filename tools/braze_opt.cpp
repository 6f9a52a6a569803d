// braze-opt: runs stages of the compiler on IR text. No Python, no PyTorch.
//
//   braze-opt --pass=optimize --pass=lower --pass=schedule model.graph
//   braze-opt --pass=plan --run --time model.graph
//
// The input is a tensor graph ("graph {") or a loop program ("program"); a pass that needs a later form is refused.
#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>

#include "base/check.h"
#include "base/timers.h"
#include "tools_run.h"
#include "tools_stages.h"

namespace {

using braze::names_of;

std::string read(const std::string& path) {
  std::stringstream text;
  if (path == "-") {
    text << std::cin.rdbuf();
  } else {
    std::ifstream file(path);
    if (!file) throw braze::InternalError("cannot read " + path);
    text << file.rdbuf();
  }
  return text.str();
}

template <class Choice>
std::map<std::string, Choice> by_name() {
  std::map<std::string, Choice> out;
  for (std::string_view name : names_of(Choice{})) out.emplace(name, static_cast<Choice>(out.size()));
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace braze;
  CLI::App app{"Runs stages of the compiler on IR text and prints the result."};
  std::string path = "-";
  std::vector<std::string> passes;
  bool run = false, time = false, quiet = false;
  tools::RunOptions run_options;
  Options options;
  app.add_option("input", path, "file with IR text, - for standard input");
  app.add_option("--pass", passes, "stage to run, in the order given")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::IsMember(tools::stage_names()));
  app.add_flag("--run", run, "compile, run on random data, and compare with the interpreter");
  app.add_flag("--time", time, "print the seconds of each stage, and of a run");
  app.add_flag("--quiet", quiet, "do not print the result");
  app.add_option("--seed", run_options.seed, "of the random data");
  app.add_option("--tolerance", run_options.tolerance,
                 "largest error, relative to the larger of 1 and the expected value");
  app.add_option("--size", run_options.sizes, "value of a size symbol, as name=value")->allow_extra_args(false);
  app.add_option("--fuse", options.fuse, "fuse loops");
  app.add_option("--autotune", options.autotune_seconds,
                 "products of a GPU by kernels of templates, too, in the stage plan");
  app.add_option("--codegen", options.codegen, "what the kernels of a GPU become")
      ->transform(CLI::CheckedTransformer(by_name<Codegen>()));
  app.add_option("--convolution-layout", options.convolution_layout, "of the pass channels_last")
      ->transform(CLI::CheckedTransformer(by_name<ConvolutionLayout>()));
  app.add_option("--max-fusion-size", options.max_fusion_size, "most loop bodies in one kernel");
  CLI11_PARSE(app, argc, argv);
  try {
    tools::State state = tools::parse(read(path));
    Timings timings;
    for (const std::string& pass : passes) {
      StageTimer timer(timings, pass);
      tools::apply(state, pass, options);
    }
    if (!quiet) std::cout << tools::print(state);
    bool good = true;
    if (run) good = tools::run_and_compare(state, options, run_options, time, std::cout);
    if (time)
      for (auto& [name, seconds] : timings.stages) std::cout << "; " << name << ": " << seconds * 1e3 << " ms\n";
    return good ? 0 : 1;
  } catch (const Unsupported& e) {
    std::cerr << "unsupported (" << name(e.reason()) << "): " << e.detail() << "\n";
    return 2;
  } catch (const std::exception& e) {
    std::cerr << "error: " << e.what() << "\n";
    return 3;
  }
}
