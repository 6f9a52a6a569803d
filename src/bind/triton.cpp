#include "bind/triton.h"

#include <pybind11/stl.h>

#include "base/check.h"
#include "codegen/triton/compiler.h"
#include "codegen/triton/printer.h"
#include "driver/driver.h"
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
    return {made[0].cast<std::string>(), made[1].cast<uint32_t>(), made[2].cast<uint32_t>()};
  } catch (py::error_already_set& e) {
    std::string words = e.what();
    if (e.matches(door.attr("Missing")))
      throw Unsupported(Reason::UnsupportedFeature, py::str(e.value()).cast<std::string>());
    throw InternalError("triton refused a kernel: " + words + "\n" + source.text);
  }
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
  Options options;
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

}  // namespace

void init_triton(py::module_& module) {
  triton::set_compiler({triton_version, compile_kernel});
  module.def("_triton_kernels", &kernels_of, py::arg("graph"), py::arg("sizes") = std::map<std::string, int64_t>{},
             py::arg("flags") = std::map<std::string, bool>{});
}

}  // namespace braze::bind
