#include "bind/triton.h"

#include <pybind11/stl.h>

#include "base/check.h"
#include "bind/options.h"
#include "codegen/choice.h"
#include "codegen/codegen.h"
#include "codegen/triton/compiler.h"
#include "codegen/triton/printer.h"
#include "driver/driver.h"
#include "driver/products.h"
#include "graph/graph.h"

namespace braze::bind {
namespace {

namespace py = pybind11;
namespace triton = codegen::triton;

triton::Code compile_kernel(const triton::Source& source) {
  py::gil_scoped_acquire gil;
  py::module_ door = py::module_::import("braze._triton");
  try {
    py::tuple made = door.attr("compile_kernel")(source.text, source.kernel, source.arguments, source.warps, source.sm,
                                                 source.stages, source.contract, source.aligned);
    return {made[0].cast<std::string>(), made[1].cast<uint32_t>(), made[2].cast<uint32_t>(), 0};
  } catch (py::error_already_set& e) {
    std::string words = e.what();
    if (e.matches(door.attr("Missing")))
      throw Unsupported(Reason::UnsupportedFeature, py::str(e.value()).cast<std::string>());
    throw InternalError("triton refused a kernel: " + words + "\n" + source.text);
  }
}

triton::Code code_of(const py::tuple& made) {
  return {made[0].cast<std::string>(), made[1].cast<uint32_t>(), made[2].cast<uint32_t>(), made[3].cast<uint32_t>()};
}

uint64_t start_kernels(const std::vector<triton::Source>& sources, double weight) {
  py::gil_scoped_acquire gil;
  py::list list;
  for (const triton::Source& s : sources)
    list.append(py::make_tuple(s.text, s.kernel, s.arguments, s.warps, s.sm, s.stages, s.contract, s.aligned));
  return py::module_::import("braze._triton_workers").attr("start")(list, weight).cast<uint64_t>();
}

std::vector<triton::Outcome> finish_kernels(uint64_t ticket, double seconds) {
  py::gil_scoped_acquire gil;
  std::vector<triton::Outcome> out;
  for (py::handle made : py::module_::import("braze._triton_workers").attr("finish")(ticket, seconds)) {
    triton::Outcome& o = out.emplace_back();
    if (py::isinstance<py::tuple>(made))
      o.code = code_of(py::reinterpret_borrow<py::tuple>(made));
    else if (!made.is_none())
      o.refused = py::str(made).cast<std::string>();
  }
  return out;
}

// What was chosen by timing so far, in this process.
py::list tuned() {
  py::list out;
  for (const codegen::Report& r : codegen::reports()) {
    py::dict d;
    d[codegen::name_of(r.kind)] = r.what, d["chosen"] = r.chosen, d["ways"] = r.ways, d["seconds"] = r.seconds;
    out.append(d);
  }
  return out;
}

std::string triton_version() {
  py::gil_scoped_acquire gil;
  return py::module_::import("braze._triton").attr("version")().cast<std::string>();
}

// As if every tensor were on a GPU.
graph::Graph on_gpu(graph::Graph graph) {
  const Device gpu{DeviceType::CUDA, 0};
  for (size_t i = 0; i < graph.values().size(); ++i) graph.value(graph::ValueId(i)).type.device = gpu;
  for (size_t i = 0; i < graph.nodes().size(); ++i)
    for (graph::Arg& arg : graph.node(graph::NodeId(i)).args)
      if (auto* device = std::get_if<Device>(&arg)) *device = gpu;
  return graph;
}

// A graph as GPU kernels in Triton's language with what running them needs: for tests under Triton's interpreter.
// `sizes`: values of the size symbols by name.
py::dict kernels_of(const std::string& text, const std::map<std::string, int64_t>& sizes,
                    const std::map<std::string, bool>& flags) {
  Options options = default_options();
  options.codegen = Codegen::Triton;
  if (auto it = flags.find("fuse"); it != flags.end()) options.fuse = it->second;
  loop::Program program = driver::scheduled(on_gpu(graph::parse(text)), options);
  const Target target = h200();
  const sym::ExprArena& arena = *program.arena;
  sym::Env env = [&](sym::Expr s) {
    auto it = sizes.find(std::string(arena.symbol_name(s)));
    if (it == sizes.end()) throw std::runtime_error("no value for the symbol " + std::string(arena.symbol_name(s)));
    return it->second;
  };
  auto values = [&](const std::vector<sym::Expr>& list) {
    std::vector<int64_t> out;
    for (sym::Expr e : list) out.push_back(arena.evaluate(e, env));
    return out;
  };
  py::list steps, buffers, outputs;
  for (const loop::Item& item : program.items) {
    auto* nest = std::get_if<loop::Nest>(&item);
    if (!nest) throw std::runtime_error("the graph has an extern call: " + std::get<loop::ExternCall>(item).name);
    codegen::Signature signature = codegen::signature_of(program, *nest);
    triton::Blocks blocks = triton::choose_blocks(program, *nest, target);
    triton::Printer printer(program, *nest, signature, blocks, target.sm);
    py::dict step;
    try {
      step["text"] = printer.run("kernel");
    } catch (const triton::Inexpressible& e) {
      step["inexpressible"] = e.what();
    }
    py::list arguments, pointers;
    for (const triton::Parameter& p : printer.parameters()) arguments.append(py::make_tuple(p.name, p.type));
    for (loop::BufferId b : signature.buffers) pointers.append(b.index);
    step["arguments"] = arguments;
    step["buffers"] = pointers;
    step["sizes"] = values(signature.sizes);
    step["programs"] = arena.evaluate(blocks.grid, env);
    step["warps"] = blocks.warps;
    steps.append(step);
  }
  for (const loop::Buffer& b : program.buffers) {
    bool given = b.kind == loop::BufferKind::Input || b.kind == loop::BufferKind::Constant;
    buffers.append(py::make_tuple(std::string(name(b.dtype)),
                                  given ? py::object(py::int_(b.input)) : py::object(py::none()), values(b.sizes),
                                  values(b.strides)));
  }
  auto view = [&](const loop::View& v) {
    return py::make_tuple(v.buffer.index, values(v.sizes), values(v.strides), arena.evaluate(v.offset, env));
  };
  for (const loop::Output& o : program.outputs)
    outputs.append(o.kind == loop::Output::Kind::View ? py::object(view(o.view)) : py::object(py::none()));
  py::list writebacks;
  for (const loop::Writeback& w : program.writebacks) writebacks.append(py::make_tuple(view(w.from), w.input));
  py::dict out;
  out["steps"] = steps;
  out["buffers"] = buffers;
  out["outputs"] = outputs;
  out["writebacks"] = writebacks;
  return out;
}

// The kernels of templates for a graph's products: for tests. `configs`: (m, n, k, warps, stages, descriptors,
// specialised) of each, instead of those that are worth timing.
py::dict product_kernels(const std::string& text,
                         const std::vector<std::tuple<int, int, int, int, int, bool, bool>>& configs,
                         int multiprocessors) {
  Options options = default_options();
  Target target = h200();
  target.multiprocessors = multiprocessors;
  loop::Program program = driver::scheduled(on_gpu(graph::parse(text)), options);
  Targets targets{codegen::cpu_target(), {{0, target}}};
  std::vector<driver::FoundProduct> products = driver::find_products(program, targets);
  schedule::MemoryPlan memory = schedule::plan_memory(program, driver::uses_of(products));
  products = driver::safe(std::move(products), program, memory);
  const sym::ExprArena& arena = *program.arena;
  auto values = [&](const std::vector<sym::Expr>& list) {
    std::vector<int64_t> out;
    for (sym::Expr e : list) out.push_back(*arena.as_const(e));
    return out;
  };
  auto numbers = [](const std::vector<loop::BufferId>& list) {
    std::vector<uint32_t> out;
    for (loop::BufferId b : list) out.push_back(b.index);
    return out;
  };
  py::list found, buffers, outputs;
  for (const driver::FoundProduct& p : products) {
    std::vector<triton::ProductConfig> wanted;
    for (auto [m, n, k, warps, stages, descriptors, specialised] : configs)
      wanted.push_back({m, n, k, warps, stages, descriptors, specialised});
    if (wanted.empty()) wanted = triton::product_configs(p.product, target);
    py::list kernels;
    for (const triton::ProductConfig& c : wanted) {
      triton::ProductSource made = triton::print_product(p.product, c, target);
      py::dict k;
      k["label"] = c.label(), k["text"] = made.source.text, k["kernel"] = made.source.kernel;
      k["arguments"] = made.source.arguments, k["warps"] = c.warps, k["stages"] = c.stages;
      k["buffers"] = numbers(made.buffers), k["programs"] = made.programs;
      k["shared"] = triton::shared_bytes(p.product, c);
      kernels.append(k);
    }
    py::dict d;
    d["items"] = p.items, d["writes"] = numbers(p.writes), d["kernels"] = kernels;
    found.append(d);
  }
  for (const loop::Buffer& b : program.buffers) {
    bool given = b.kind == loop::BufferKind::Input || b.kind == loop::BufferKind::Constant;
    buffers.append(py::make_tuple(std::string(name(b.dtype)),
                                  given ? py::object(py::int_(b.input)) : py::object(py::none()), values(b.sizes),
                                  values(b.strides)));
  }
  for (const loop::Output& o : program.outputs)
    outputs.append(py::make_tuple(o.view.buffer.index, values(o.view.sizes), values(o.view.strides),
                                  *arena.as_const(o.view.offset)));
  py::dict out;
  out["products"] = found, out["items"] = program.items.size(), out["buffers"] = buffers, out["outputs"] = outputs;
  return out;
}

}  // namespace

void install_triton() { triton::set_compiler({triton_version, compile_kernel, start_kernels, finish_kernels}); }

void add_triton_hooks(py::module_& module) {
  module.def("_tuned", &tuned);
  module.def("_prefer_kernels", &codegen::prefer_kernels, py::arg("on"), py::arg("name") = "");
  module.def("_product_kernels", &product_kernels, py::arg("graph"),
             py::arg("configs") = std::vector<std::tuple<int, int, int, int, int, bool, bool>>{},
             py::arg("multiprocessors") = 132);
  module.def("_triton_kernels", &kernels_of, py::arg("graph"), py::arg("sizes") = std::map<std::string, int64_t>{},
             py::arg("flags") = std::map<std::string, bool>{});
}

}  // namespace braze::bind
