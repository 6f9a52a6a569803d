#include "trace/checkpoints.h"

#include <ATen/SequenceNumber.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/PyInterpreter.h>
#include <torch/csrc/jit/python/pybind_utils.h>

#include <utility>

#include "base/check.h"

namespace braze::trace {

namespace py = pybind11;

bool Checkpoints::begin(std::vector<at::Tensor> held, bool selective) {
  if (open_ || !c10::GradMode::is_enabled()) return false;
  held_.insert(held_.end(), held.begin(), held.end());
  if (regions_.empty()) around_ = torch::autograd::get_current_node();
  regions_.push_back({at::sequence_number::peek(), UINT64_MAX});
  open_ = true;
  selective_ = selective;
  calls_.clear();
  return true;
}

void Checkpoints::end() {
  BRAZE_CHECK(open_, "the end of a checkpoint that did not begin");
  open_ = false;
  regions_.back().end = at::sequence_number::peek();
}

graph::Checkpoint Checkpoints::current() const {
  if (regions_.empty()) return {};
  if (open_)  // a backward that runs within the region is a part of it, too
    return {static_cast<uint32_t>(regions_.size()),
            selective_ ? graph::Keep::PreferRecompute : graph::Keep::MustRecompute, false};
  auto node = torch::autograd::get_current_node();
  if (!node || node == around_) return {};
  for (uint32_t i = 0; i < regions_.size(); ++i)
    if (regions_[i].first <= node->sequence_nr() && node->sequence_nr() < regions_[i].end)
      return {i + 1, graph::Keep::MustRecompute, true};
  return {};
}

namespace {

py::object argument_to_python(const c10::Argument& argument, const c10::IValue& value) {
  if (value.isNone()) return py::none();
  auto* optional = argument.real_type()->castRaw<c10::OptionalType>();
  switch ((optional ? optional->getElementType() : argument.real_type())->kind()) {
    case c10::TypeKind::ScalarTypeType:
      return py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(torch::getTHPDtype(value.toScalarType())));
    case c10::TypeKind::LayoutType:
      return py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(torch::getTHPLayout(value.toLayout())));
    case c10::TypeKind::MemoryFormatType: return py::cast(value.toMemoryFormat());
    default: return torch::jit::toPyObject(value);
  }
}

}  // namespace

PyObject* call_to_python(const Checkpoints::Call& call) {
  try {
    const auto& schema = call.op.schema().arguments();
    auto is_default = [&](size_t i) { return schema[i].default_value() && *schema[i].default_value() == call.args[i]; };
    size_t positional = 0;
    while (positional < schema.size() && !schema[positional].kwarg_only()) ++positional;
    size_t given = positional;
    while (given > 0 && is_default(given - 1)) --given;
    py::tuple args(given);
    py::dict kwargs;
    for (size_t i = 0; i < given; ++i) args[i] = argument_to_python(schema[i], call.args[i]);
    for (size_t i = positional; i < schema.size(); ++i)
      if (!is_default(i)) kwargs[py::str(schema[i].name())] = argument_to_python(schema[i], call.args[i]);
    py::object results = py::none();
    if (call.results.size() == 1) {
      results = torch::jit::toPyObject(call.results[0]);
    } else if (!call.results.empty()) {
      py::tuple all(call.results.size());
      for (size_t i = 0; i < call.results.size(); ++i) all[i] = torch::jit::toPyObject(call.results[i]);
      results = std::move(all);
    }
    py::object op = py::reinterpret_borrow<py::object>(torch::detail::getTorchApiFunction(call.op));
    return py::make_tuple(op, args, kwargs, results).release().ptr();
  } catch (py::error_already_set& e) {
    e.restore();
  } catch (const std::exception& e) {
    PyErr_SetString(PyExc_RuntimeError, e.what());
  }
  return nullptr;
}

}  // namespace braze::trace
