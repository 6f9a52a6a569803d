#include "tools_stages.h"

#include <algorithm>

#include "base/check.h"
#include "codegen/codegen.h"
#include "driver/build_plan.h"
#include "driver/compile_nests.h"
#include "driver/driver.h"
#include "driver/products.h"
#include "driver/targets.h"
#include "lower/lower.h"
#include "passes/optimize.h"
#include "schedule/memory.h"
#include "schedule/schedule.h"

namespace braze::tools {
namespace {

graph::Graph& need_graph(State& s, const std::string& stage) {
  BRAZE_CHECK(s.graph.has_value(), stage + " works on a tensor graph");
  return *s.graph;
}
loop::Program& need_program(State& s, const std::string& stage) {
  BRAZE_CHECK(s.program.has_value(), stage + " works on a loop program");
  return *s.program;
}

std::string describe_memory(const loop::Program& p) {
  schedule::MemoryPlan memory = schedule::plan_memory(p);
  const sym::ExprArena& arena = *p.arena;
  const char* kinds[] = {"none", "input", "arena", "output", "adopted"};
  std::string s =
      "memory: arena " + arena.print(memory.arena_bytes) + " bytes, peak " + std::to_string(memory.peak_bytes) + "\n";
  for (size_t i = 0; i < p.buffers.size(); ++i) {
    const schedule::Placement& at = memory.buffers[loop::BufferId(i)];
    s += "  %" + std::to_string(i) + " \"" + p.buffers[loop::BufferId(i)].name + "\" " +
         kinds[static_cast<int>(at.kind)];
    if (at.kind == schedule::Placement::Kind::Arena) s += " at " + arena.print(at.offset);
    if (at.kind == schedule::Placement::Kind::Arena || at.kind == schedule::Placement::Kind::Output)
      s += ", " + arena.print(at.bytes) + " bytes";
    s += ", items " + std::to_string(at.first) + " to " + std::to_string(at.last) + "\n";
  }
  return s;
}

// What may stand for each product, and the first such kernel of each way.
std::string describe_products(const loop::Program& p) {
  std::string s;
  const Targets targets = driver::targets_of(p);
  std::vector<driver::FoundProduct> all = driver::find_products(p, targets);
  for (const driver::FoundProduct& found : driver::safe(all, p, schedule::plan_memory(p, driver::uses_of(all)))) {
    s += "# product: items";
    for (size_t i : found.items) s += " " + std::to_string(i);
    s += ", reads";
    for (loop::BufferId b : found.reads) s += " %" + std::to_string(b.index);
    s += ", writes";
    for (loop::BufferId b : found.writes) s += " %" + std::to_string(b.index);
    s += "\n";
    bool shown[2] = {};
    for (const auto& config : codegen::triton::product_configs(found.product, *found.target)) {
      s += "# " + config.label() + "\n";
      if (std::exchange(shown[config.descriptors], true)) continue;
      auto made = codegen::triton::print_product(found.product, config, *found.target);
      s += "# " + std::to_string(made.programs) + " programs\n" + made.source.text + "\n";
    }
  }
  return s;
}

}  // namespace

std::vector<std::string> stage_names() {
  std::vector<std::string> names;
  for (const passes::Pass& pass : passes::pipeline()) names.push_back(pass.name);
  for (const char* n : {"optimize", "lower", "schedule", "memory", "codegen", "assembly", "products", "plan"})
    names.push_back(n);
  return names;
}

State parse(const std::string& text) {
  State s;
  size_t at = 0;
  for (;;) {  // blank lines and comments before the first keyword
    while (at < text.size() && std::isspace(static_cast<unsigned char>(text[at]))) ++at;
    if (at >= text.size() || (text[at] != '#' && text[at] != ';')) break;
    at = std::min(text.find('\n', at), text.size());
  }
  std::string_view body = std::string_view(text).substr(at);
  if (body.starts_with("program")) {
    s.program = loop::parse(body);
    loop::verify(*s.program);
    s.reference = s.program;
  } else {
    s.graph = graph::parse(body);
    graph::verify(*s.graph);
  }
  return s;
}

void apply(State& s, const std::string& stage, const Options& options) {
  for (const passes::Pass& pass : passes::pipeline())
    if (stage == pass.name) {
      const graph::Graph& g = need_graph(s, stage);
      s.graph = pass.run(g, driver::targets_of(g, options));
      graph::verify(*s.graph);
      return;
    }
  if (stage == "optimize") {
    const graph::Graph& g = need_graph(s, stage);
    s.graph = passes::optimize(g, options, driver::targets_of(g, options));
    graph::verify(*s.graph);
  } else if (stage == "lower") {
    const graph::Graph& g = need_graph(s, stage);
    s.program = lower::lower(g, options, driver::targets_of(g, options));
    loop::verify(*s.program);
    s.reference = s.program;
  } else if (stage == "schedule") {
    const loop::Program& p = need_program(s, stage);
    const Targets targets = driver::targets_of(p);
    s.program = schedule::schedule(p, options, targets, driver::taken(options, targets));
    loop::verify(*s.program);
  } else if (stage == "memory") {
    s.text = describe_memory(need_program(s, stage));
  } else if (stage == "products") {
    s.text = describe_products(need_program(s, stage));
  } else if (stage == "codegen") {
    s.text = driver::sources(need_program(s, stage), options);
  } else if (stage == "assembly") {
    const loop::Program& p = need_program(s, stage);
    s.text.emplace();
    for (const loop::Nest* n : driver::nests_of(p)) *s.text += codegen::cpu_generator().assembly(p, *n) + "\n";
  } else {
    loop::Program& p = need_program(s, stage);
    codegen::Compiled code = codegen::cpu_generator().compile(p, codegen::one_by_one(driver::nests_of(p)), options);
    const Targets targets = driver::targets_of(p);
    std::vector<driver::FoundProduct> products;
    if (options.autotune_seconds > 0) products = driver::find_products(p, targets);
    schedule::MemoryPlan memory = schedule::plan_memory(p, driver::uses_of(products));
    products = driver::safe(std::move(products), p, memory);
    plan::Plan plan = driver::build_plan(p, memory, std::move(code), std::vector<bool>(input_count(p)), products);
    plan::verify(plan);
    s.text = plan.describe();
  }
}

std::string print(const State& s) {
  if (s.text) return *s.text;
  return s.program ? loop::print(*s.program) : graph::print(*s.graph);
}

uint32_t input_count(const loop::Program& program) {
  uint32_t n = 0;
  for (const loop::Buffer& b : program.buffers)
    if (b.kind == loop::BufferKind::Input || b.kind == loop::BufferKind::Constant) n = std::max(n, b.input + 1);
  for (const loop::Output& o : program.outputs)
    if (o.kind == loop::Output::Kind::Input) n = std::max(n, o.input + 1);
  for (const loop::Writeback& w : program.writebacks) n = std::max(n, w.input + 1);
  for (auto& s : program.size_symbols) n = std::max(n, s.second.first + 1);
  return n;
}

}  // namespace braze::tools
