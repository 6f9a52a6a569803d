#include "bind/trace_hooks.h"
#include "launch/tensor_spec.h"
#include "trace/global_state.h"

#include <pybind11/stl.h>

#include <memory>

#include "trace/pytorch/names.h"
#include "trace/trace.h"

namespace braze::bind {
namespace {

namespace py = pybind11;
using graph::ValueId;

py::object steal(PyObject* result) {
  if (!result) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(result);
}

// Unsupported crosses as RuntimeError with the reason's name first.
template <class F>
auto reported(F&& f) {
  try {
    return f();
  } catch (const Unsupported& e) {
    throw std::runtime_error(std::string(name(e.reason())) + ": " + e.detail());
  }
}

int64_t number(const graph::Graph& graph, graph::Expr e) {
  auto value = graph.arena().as_const(e);
  return value ? *value : -1;
}

py::object id(ValueId value) { return value.valid() ? py::object(py::int_(value.index)) : py::object(py::none()); }

std::string text(Device device) {
  std::string type = device.type == DeviceType::CPU ? "cpu" : device.type == DeviceType::CUDA ? "cuda" : "meta";
  return device.index < 0 ? type : type + ":" + std::to_string(device.index);
}

py::list numbers(const graph::Graph& graph, const std::vector<graph::Expr>& exprs) {
  py::list list;
  for (graph::Expr e : exprs) list.append(number(graph, e));
  return list;
}

// Kinds that Python has are themselves, others pairs (kind, payload).
struct ArgToPython {
  const graph::Graph& graph;
  py::object operator()(graph::NoneArg) const { return py::none(); }
  py::object operator()(ValueId v) const { return py::make_tuple("value", id(v)); }
  py::object operator()(const graph::TensorList& list) const {
    py::list ids;
    for (ValueId v : list) ids.append(id(v));
    return py::make_tuple("values", ids);
  }
  py::object operator()(bool b) const { return py::bool_(b); }
  py::object operator()(graph::Expr e) const { return py::int_(number(graph, e)); }
  py::object operator()(double d) const { return py::float_(d); }
  py::object operator()(const std::string& s) const { return py::str(s); }
  py::object operator()(DType d) const { return py::make_tuple("dtype", std::string(name(d))); }
  py::object operator()(Device d) const { return py::make_tuple("device", text(d)); }
  py::object operator()(graph::MemoryFormatArg f) const { return py::make_tuple("format", static_cast<int>(f.value)); }
  py::object operator()(graph::LayoutArg l) const { return py::make_tuple("layout", static_cast<int>(l.value)); }
  py::object operator()(const graph::IntList& l) const { return numbers(graph, l.v); }
  py::object operator()(const graph::DoubleList& l) const { return py::cast(l.v); }
  py::object operator()(const graph::BoolList& l) const { return py::cast(l.v); }
  py::object operator()(graph::OpaqueArg o) const { return py::make_tuple("opaque", o.index); }
};

py::dict to_python(const graph::Graph& graph) {
  py::list nodes, inputs, outputs, writebacks;
  py::dict values;
  for (const graph::Node& node : graph.nodes()) {
    py::list args, results;
    for (const graph::Arg& arg : node.args) args.append(std::visit(ArgToPython{graph}, arg));
    for (ValueId v : node.outputs) results.append(id(v));
    std::string op = node.op == graph::Op::Extern ? node.extern_name : std::string(op_name(node.op));
    nodes.append(py::make_tuple(op, args, results, node.list_sizes));
  }
  for (size_t i = 0; i < graph.values().size(); ++i) {
    const TensorType& type = graph.type(ValueId(i));
    values[py::int_(i)] = py::make_tuple(std::string(name(type.dtype)), text(type.device), numbers(graph, type.sizes),
                                         numbers(graph, type.strides), number(graph, type.offset));
  }
  for (const graph::Input& input : graph.inputs) inputs.append(id(input.value));
  for (ValueId v : graph.outputs) outputs.append(id(v));
  for (const graph::Writeback& w : graph.writebacks) writebacks.append(py::make_tuple(id(w.input), id(w.value)));
  py::dict result;
  result["nodes"] = nodes;
  result["values"] = values;
  result["inputs"] = inputs;
  result["outputs"] = outputs;
  result["writebacks"] = writebacks;
  result["text"] = print(graph);
  return result;
}

struct PyTracer {
  std::unique_ptr<trace::Tracer> tracer = trace::Tracer::create(Options{});
  graph::Location location{"test", "test", "", 1};
};

py::dict finish(PyTracer& self, const std::vector<py::object>& outputs) {
  std::vector<PyObject*> fakes, inputs;
  for (const py::object& o : outputs) fakes.push_back(o.ptr());
  trace::Captured captured = reported([&] { return self.tracer->finish(fakes, inputs); });
  graph::verify(captured.graph);
  py::dict result = to_python(captured.graph);
  py::list reals;
  for (PyObject* real : inputs) reals.append(py::reinterpret_borrow<py::object>(real));
  result["reals"] = reals;
  result["needs_grad"] = captured.needs_grad;
  py::list guards;
  for (const auto& g : captured.size_guards) guards.append(captured.graph.arena().print(g.condition));
  result["size_guards"] = guards;
  for (PyObject* constant : captured.constants) Py_DECREF(constant);
  return result;
}

}  // namespace

void add_trace_hooks(py::module_& module) {
  py::class_<PyTracer>(module, "_Tracer")
      .def(py::init<>())
      .def(
          "lift",
          [](PyTracer& self, py::object real, const std::string& name, const std::vector<int>& symbolic) {
            std::vector<trace::SymbolicDim> dims;
            for (int d : symbolic) dims.push_back({d, {2, INT32_MAX}});
            return steal(
                reported([&] { return self.tracer->lift(real.ptr(), graph::InputKind::Argument, name, dims); }));
          },
          py::arg("real"), py::arg("name") = "x", py::arg("symbolic") = std::vector<int>{})
      .def("is_fake", [](PyTracer& self, py::object obj) { return self.tracer->is_fake(obj.ptr()); })
      .def("enter", [](PyTracer& self) { self.tracer->enter(); })
      .def("leave", [](PyTracer& self) { self.tracer->leave(); })
      .def("call",
           [](PyTracer& self, py::object fn, py::tuple args, py::dict kwargs) {
             std::vector<PyObject*> list;
             for (auto arg : args) list.push_back(arg.ptr());
             return steal(self.tracer->call(fn.ptr(), list.data(), list.size(), kwargs.empty() ? nullptr : kwargs.ptr(),
                                            self.location));
           })
      .def("finish", &finish)
      .def("graph_module", [](PyTracer& self) { return steal(self.tracer->graph_module()); });
  module.def("_graph_break_of", [](py::object exception) -> py::object {
    Reason reason;
    std::string detail;
    if (!trace::is_graph_break_exception(exception.ptr(), &reason, &detail)) return py::none();
    return py::make_tuple(std::string(name(reason)), detail);
  });
  module.def("_guard_mismatch", [](py::object seen, py::object now) -> py::object {
    auto spec = launch::snapshot(seen.ptr());
    if (launch::matches(*spec, now.ptr())) return py::none();
    return py::str(launch::describe_mismatch(*spec, now.ptr()));
  });
  module.def("_global_state_key", &trace::global_state_key);
  module.def("_pytorch_lacks", &pytorch::lacking);
}

}  // namespace braze::bind
