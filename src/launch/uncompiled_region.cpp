#include "launch/uncompiled_region.h"

#include <ATen/FuncTorchTLS.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

#include "base/check.h"
#include "launch/runnable.h"
#include "trace/convert.h"
#include "trace/joint.h"
#include "trace/pytorch/autograd_node.h"

namespace braze::launch {
namespace {

namespace py = pybind11;
using torch::autograd::variable_list;

constexpr const char* kWhen = " is differentiated with create_graph=True or batched gradients: ";

[[noreturn]] void refuse(const std::string& why) {
  throw std::runtime_error(std::string("braze: a compiled region") + kWhen + why);
}

// Where the history of a run ends: what comes before an input is not followed, so that an input which is a function of
// another adds nothing to that one's gradient.
struct RegionInputBackward : torch::autograd::Node {
  explicit RegionInputBackward(torch::autograd::edge_list&& edges) : Node(std::move(edges)) {}
  variable_list apply(variable_list&& gradients) override { return std::move(gradients); }
};

// The program's transforms of functions are around its backward; the forward was not under them.
class OutsideTransforms {
 public:
  OutsideTransforms() : keys_(transforms()), levels_(std::exchange(at::functorch::functorchTLSAccessor(), nullptr)) {}
  ~OutsideTransforms() { at::functorch::functorchTLSAccessor() = std::move(levels_); }
  OutsideTransforms(const OutsideTransforms&) = delete;

 private:
  static c10::DispatchKeySet transforms() {
    using c10::DispatchKey;
    return c10::DispatchKeySet({DispatchKey::FuncTorchBatched, DispatchKey::FuncTorchVmapMode, DispatchKey::Batched,
                                DispatchKey::VmapMode, DispatchKey::FuncTorchGradWrapper,
                                DispatchKey::FuncTorchDynamicLayerFrontMode,
                                DispatchKey::FuncTorchDynamicLayerBackMode});
  }
  c10::impl::ExcludeDispatchKeyGuard keys_;
  std::unique_ptr<at::functorch::FuncTorchTLSBase> levels_;
};

}  // namespace

UncompiledRegion::UncompiledRegion(const graph::Graph& forward, const trace::Gradients& gradients,
                                   const std::vector<trace::OutputView>& views,
                                   std::shared_ptr<const Constants> constants, std::unique_ptr<RandomReplay> random,
                                   bool draws, const Options& options)
    : forward_(forward),
      gradients_(gradients),
      views_(views),
      constants_(std::move(constants)),
      random_(std::move(random)),
      draws_(draws),
      options_(options) {}

// Nodes are deleted with and without the GIL; what is Python's needs it.
UncompiledRegion::~UncompiledRegion() {
  if (!Py_IsInitialized()) {
    (void)calls_.release();
    return;
  }
  PyGILState_STATE gil = PyGILState_Ensure();
  calls_.reset();
  Py_CLEAR(module_);
  PyGILState_Release(gil);
}

void UncompiledRegion::keep(std::unique_ptr<trace::TorchCalls> calls) {
  outside_ = calls->outside();
  calls_ = std::move(calls);
}

PyObject* UncompiledRegion::module() {
  if (module_) return module_;
  module_ = calls_ && calls_->has_torch_level() ? calls_->graph_module() : nullptr;
  if (!module_) {
    if (PyErr_Occurred()) throw_python_error();
    refuse("it holds calls that PyTorch's functions alone do not express");
  }
  calls_.reset();
  return module_;
}

at::Tensor UncompiledRegion::stand_in(uint32_t input, const Call& call) const {
  const sym::ExprArena& arena = forward_.arena();
  const TensorType& type = forward_.type(forward_.inputs[input].value);
  auto value = [&](sym::Expr e) {
    return arena.evaluate(e, [&](sym::Expr symbol) {
      size_t at = 0;
      while (at < call.symbols.size() && forward_.size_symbols[at].first != symbol) ++at;
      BRAZE_CHECK(at < call.symbols.size(), "a size symbol that no call gives");
      return call.symbols[at];
    });
  };
  c10::SmallVector<int64_t, 5> sizes, strides;
  for (sym::Expr e : type.sizes) sizes.push_back(value(e));
  for (sym::Expr e : type.strides) strides.push_back(value(e));
  return at::empty_strided(sizes, strides,
                           at::TensorOptions(trace::scalar_type(type.dtype)).device(trace::torch_device(type.device)))
      .zero_();
}

// The torch-level graph on the random values of the call.
py::object UncompiledRegion::call_module(const py::tuple& args, const Call& call) {
  PyObject* module = this->module();
  auto on_values = [&](const std::vector<at::Tensor>& drawn) {
    py::object run = py::module_::import("braze._replay").attr("run");
    py::list values;
    for (const at::Tensor& t : drawn) values.append(t);
    return py::reinterpret_steal<py::object>(
        PyObject_CallFunctionObjArgs(run.ptr(), module, args.ptr(), values.ptr(), nullptr));
  };
  if (!call.drawn.empty()) {
    RandomReplay::Rewound as_it_is(RandomReplay::state());  // the program may set the generator's state
    return on_values(call.drawn);
  }
  if (!random_) return py::reinterpret_steal<py::object>(PyObject_CallObject(module, args.ptr()));
  if (options_.rng != Rng::Philox) {
    RandomReplay::Rewound rewound(call.random_state);
    return py::reinterpret_steal<py::object>(PyObject_CallObject(module, args.ptr()));
  }
  return on_values(random_->draw(call.random_state, call.symbols));
}

UncompiledRegion::Run UncompiledRegion::run(const Call& call) {
  pybind11::gil_scoped_acquire gil;
  OutsideTransforms outside;
  trace::AmbientScope modes(outside_);
  Run out;
  size_t inputs = forward_.inputs.size(), constant = 0;
  std::vector<bool> written(inputs);
  for (const graph::Writeback& w : forward_.writebacks) written[forward_.value(w.input).index] = true;
  out.inputs.resize(inputs);
  {
    c10::AutoGradMode no_grad(false);
    for (uint32_t i = 0; i < inputs; ++i) {
      at::Tensor& t = out.inputs[i];
      if (forward_.inputs[i].kind == graph::InputKind::Constant)
        t = constants_->tensors()[constant++];
      else
        t = call.inputs[i].defined() ? call.inputs[i] : stand_in(i, call);
      if (written[i]) t = t.clone();
    }
  }
  for (size_t k = 0; k < gradients_.inputs.size(); ++k) {
    at::Tensor& t = out.inputs[gradients_.inputs[k]];
    t = pytorch::without_history(t);
    torch::autograd::set_history(t, pytorch::make_node<RegionInputBackward>(torch::autograd::edge_list{call.edges[k]}));
    out.starts.push_back(torch::autograd::impl::gradient_edge(t));
  }
  py::tuple args(call.symbols.size() + inputs);
  for (size_t i = 0; i < call.symbols.size(); ++i) args[i] = py::int_(call.symbols[i]);
  for (size_t i = 0; i < inputs; ++i)
    args[call.symbols.size() + i] = py::reinterpret_steal<py::object>(THPVariable_Wrap(out.inputs[i]));
  py::object result = call_module(args, call);
  if (!result) throw_python_error();
  py::sequence sequence = result;
  for (size_t i = 0; i < sequence.size(); ++i) {
    py::object item = sequence[i];
    out.outputs.push_back(THPVariable_Check(item.ptr()) ? THPVariable_Unpack(item.ptr()) : at::Tensor());
  }
  return out;
}

// What the run gave for output `number` of the graph: that output, the tensor that several outputs are views of, or an
// input that was written to.
at::Tensor UncompiledRegion::source_of_tangent(const Run& run, uint32_t number) const {
  if (number < run.outputs.size()) return run.outputs[number];
  for (const trace::OutputView& v : views_)
    if (!v.of_input && v.base == number && v.made != trace::OutputView::Made::Apart &&
        v.made != trace::OutputView::Made::WithVersionOf) {
      const at::Tensor& view = run.outputs[v.output];
      return view.is_view() ? at::Tensor(view._base()) : view;
    }
  const graph::Value& value = forward_.value(forward_.outputs[number]);
  BRAZE_CHECK(!value.node.valid(), "a gradient of something that the region does not give");
  return run.inputs[value.index];
}

variable_list UncompiledRegion::gradients(const Call& call, const variable_list& tangents, bool create_graph) {
  if (draws_ && !random_) refuse("it draws random numbers that cannot be drawn again");
  torch::autograd::edge_list roots;
  variable_list from;
  Run made = run(call);
  for (size_t t = 0; t < tangents.size(); ++t) {
    if (!tangents[t].defined()) continue;
    roots.push_back(torch::autograd::impl::gradient_edge(source_of_tangent(made, gradients_.tangent_of[t])));
    from.push_back(tangents[t]);
  }
  if (roots.empty()) return variable_list(made.starts.size());
  return torch::autograd::Engine::get_default_engine().execute(roots, from, /*keep_graph=*/create_graph, create_graph,
                                                               /*accumulate_grad=*/false, made.starts);
}

}  // namespace braze::launch
