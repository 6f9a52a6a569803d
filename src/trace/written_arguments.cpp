#include "trace/written_arguments.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "graph/copied_view.h"
#include "graph/shape.h"
#include "trace/c_function.h"
#include "trace/convert.h"
#include "trace/fake_tensor.h"
#include "trace/lazy_bits.h"

namespace braze::trace {
namespace {

namespace functional = at::functionalization::impl;

// Calls f on each tensor that the argument holds.
template <class F>
void for_each_tensor(PyObject* o, F&& f) {
  if (THPVariable_Check(o)) return f(THPVariable_Unpack(o));
  if (PyTuple_Check(o))
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); ++i) for_each_tensor(PyTuple_GET_ITEM(o, i), f);
  if (PyList_Check(o))
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(o); ++i) for_each_tensor(PyList_GET_ITEM(o, i), f);
}

// Whether an operator of torch's of that name computes each element of its result from those at the same place.
bool is_by_element(std::string_view function) {
  if (function.empty()) return false;
  const std::string name = "aten::" + std::string(function);
  graph::Op op = graph::op_from_name(name);
  for (const char* overload : {".Tensor", ".Scalar"})
    if (op == graph::Op::Extern) op = graph::op_from_name(name + overload);
  return op != graph::Op::Extern && graph::op_class(op) == graph::OpClass::Pointwise;
}

// Several of its elements are one, as of an expanded tensor.
bool overlaps_itself(const sym::ExprArena& arena, const TensorType& t) {
  for (size_t d = 0; d < t.strides.size(); ++d)
    if (arena.is_const(t.strides[d], 0) && !arena.is_const(t.sizes[d], 0) && !arena.is_const(t.sizes[d], 1))
      return true;
  return false;
}

const c10::StorageImpl* storage_of(const at::Tensor& t) { return t.storage().unsafeGetStorageImpl(); }

const TensorType& type_of(Recorder& recorder, const FakeTensor& fake) {
  return fake.value().valid() ? recorder.graph().type(fake.value()) : recorder.slots[fake.slot()].type;
}

// What made it; invalid: it is an input.
graph::NodeId made_by(const graph::Graph& graph, const FakeTensor& fake) {
  return fake.value().valid() ? graph.value(fake.value()).node : graph::NodeId();
}

bool is_view(const graph::Graph& graph, graph::NodeId by) {
  return by.valid() && graph::op_class(graph.node(by).op) == graph::OpClass::View;
}

}  // namespace

WrittenTensor::WrittenTensor(const at::Tensor& t) {
  if (!functional::isFunctionalTensor(t) || lazy_bits(t).any()) return;
  functional::sync(t);
  written_ = t, before_ = functional::from_functional_tensor(t);
  views_ = functional::unsafeGetFunctionalWrapper(t)->view_metas().size();
}

void WrittenTensor::keep_strides(Recorder& recorder) const {
  // One that was made a view of itself, as by t_(), was not written to.
  if (!written_.defined() || functional::unsafeGetFunctionalWrapper(written_)->view_metas().size() != views_) return;
  functional::sync(written_);
  const at::Tensor now = functional::from_functional_tensor(written_);
  FakeTensor *from = as_fake(before_), *to = as_fake(now);
  if (!from || !to || from == to) return;
  const TensorType was = type_of(recorder, *from), is = type_of(recorder, *to);
  if (was.dtype != is.dtype || was.sizes != is.sizes || was.strides == is.strides) return;
  // A part with gaps is written into its base, which keeps its strides; what shows all of it is turned back into the
  // base.
  if (is_view(recorder.graph(), made_by(recorder.graph(), *from)) &&
      !graph::is_non_overlapping_and_dense(recorder.arena(), was)) {
    const TensorType& base = recorder.graph().type(graph::memory_root(recorder.graph(), from->value()));
    if (recorder.arena().product(base.sizes) != recorder.arena().product(was.sizes)) return;
  }
  const at::Tensor kept = recorder.copied_into(*from, *to);
  functional::replace_(written_, kept);
  functional::commit_update(written_);
  functional::sync(written_);
}

OutArgument::OutArgument(Recorder& recorder, PyObject* fn, PyObject* const* args, size_t nargs, PyObject* kwargs)
    : recorder_(recorder) {
  PyObject* out = kwargs ? PyDict_GetItemString(kwargs, "out") : nullptr;
  if (!out) return;
  for_each_tensor(out, [&](const at::Tensor& t) {
    const FakeTensor* fake = unwrap_fake(t);
    if (!fake) return;
    for (const at::Tensor& other : tensors_) shared_ = shared_ || storage_of(other) == storage_of(t);
    shared_ = shared_ || overlaps_itself(recorder_.arena(), type_of(recorder_, *fake));
    tensors_.push_back(t);
    sizes_.push_back(t.sym_sizes().vec());
    written_.emplace_back(t);
  });
  if (tensors_.empty()) return;
  bool in_place = PyCFunction_Check(fn) && is_by_element(c_function_name(fn)) && tensors_.size() == 1;
  std::vector<at::Tensor> operands;
  auto add = [&](PyObject* o) { for_each_tensor(o, [&](const at::Tensor& t) { operands.push_back(t); }); };
  for (size_t i = 0; i < nargs; ++i) add(args[i]);
  PyObject *key, *value;
  for (Py_ssize_t at = 0; PyDict_Next(kwargs, &at, &key, &value);)
    if (value != out) add(value);
  for (const at::Tensor& operand : operands) in_place = in_place && operand.scalar_type() == tensors_[0].scalar_type();
  for (const at::Tensor& operand : operands) {
    if (!unwrap_fake(operand)) continue;
    for (const at::Tensor& t : tensors_)
      shared_ = shared_ || (storage_of(operand) == storage_of(t) && !(in_place && operand.is_same(t)));
  }
}

namespace {

using Known = std::vector<std::optional<int64_t>>;  // sizes; nullopt for those that are symbols

bool may_be_same(const Known& a, const Known& b) {
  if (a.size() != b.size()) return false;
  for (size_t d = 0; d < a.size(); ++d)
    if (a[d] && b[d] && *a[d] != *b[d]) return false;
  return true;
}

Known known(c10::SymIntArrayRef sizes) {
  Known out;
  for (const c10::SymInt& s : sizes) out.push_back(s.maybe_as_int());
  return out;
}

// Whether a node from `first` on, which is neither a view nor what puts a view's elements back, makes a tensor of these
// sizes.
bool is_made(const graph::Graph& graph, size_t first, const Known& sizes) {
  for (size_t i = first; i < graph.nodes().size(); ++i) {
    const graph::Node& n = graph.node(graph::NodeId(i));
    if (n.op == graph::Op::slice_scatter || n.op == graph::Op::select_scatter ||
        graph::op_class(n.op) == graph::OpClass::View)
      continue;
    for (graph::ValueId v : n.outputs) {
      Known made;
      if (!v.valid()) continue;
      for (sym::Expr e : graph.type(v).sizes) made.push_back(graph.arena().as_const(e));
      if (may_be_same(made, sizes)) return true;
    }
  }
  return false;
}

// What the tensor was given by a node from `first` on that converts it.
struct Cast {
  at::ScalarType from, to;
  graph::NodeId by;  // made what is converted; invalid: an input
};
std::optional<Cast> cast_since(const graph::Graph& graph, size_t first, const at::Tensor& t) {
  FakeTensor* fake = unwrap_fake(t);
  graph::NodeId n = fake ? made_by(graph, *fake) : graph::NodeId();
  if (!n.valid() || n.index < first || graph.node(n).op != graph::Op::_to_copy) return std::nullopt;
  auto* from = std::get_if<graph::ValueId>(&graph.node(n).args[0]);
  if (!from || graph.type(*from).dtype == graph.type(fake->value()).dtype) return std::nullopt;
  return Cast{scalar_type(graph.type(*from).dtype), scalar_type(graph.type(fake->value()).dtype),
              graph.value(*from).node};
}

}  // namespace

bool OutArgument::was_resized(const graph::Graph& graph, size_t first) const {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const Known before = known(sizes_[i]);
    if (!may_be_same(before, known(tensors_[i].sym_sizes())) &&
        std::find(before.begin(), before.end(), std::optional<int64_t>(0)) == before.end())
      return true;
    // A view keeps its sizes, whatever it was given.
    auto* wrapper =
        functional::isFunctionalTensor(tensors_[i]) ? functional::unsafeGetFunctionalWrapper(tensors_[i]) : nullptr;
    if (wrapper && !wrapper->view_metas().empty() && !is_made(graph, first, before)) return true;
  }
  return false;
}

bool OutArgument::may_be_refused(const graph::Graph& graph, size_t first) const {
  auto casts = [&](const at::Tensor& t) {
    std::optional<Cast> cast = cast_since(graph, first, t);
    if (!cast) return false;
    // Operators by element whose operands are promoted cast their result as PyTorch casts; others each have a rule of
    // their own.
    if (!cast->by.valid() || cast->by.index < first) return true;
    const graph::OpRow& row = graph::op_row(graph.node(cast->by).op);
    const bool promotes = row.result.dtype == graph::ResultDType::Promote ||
                          row.result.dtype == graph::ResultDType::Float || row.result.dtype == graph::ResultDType::Bool;
    return row.cls != graph::OpClass::Pointwise || !promotes || row.name.starts_with("aten::clamp") ||
           row.name.starts_with("aten::where") || !c10::canCast(cast->from, cast->to);
  };
  return std::any_of(tensors_.begin(), tensors_.end(), casts);
}

namespace {

// What an in-place function computes: add of add_, __iadd__ and operator.iadd; empty: it is none.
std::string_view written_by(std::string_view name) {
  constexpr std::string_view kOperators[] = {"add", "sub",  "mul", "truediv", "floordiv", "mod",
                                             "pow", "and_", "or_", "xor",     "lshift",   "rshift"};
  auto is_operator = [&](std::string_view s) {
    return std::ranges::any_of(kOperators, [&](std::string_view o) { return s == o || s == o.substr(0, o.find('_')); });
  };
  if (name.starts_with("__i") && name.ends_with("__") && is_operator(name.substr(3, name.size() - 5)))
    return name.substr(3, name.size() - 5);
  if (name == "setitem" || name == "__setitem__") return "setitem";
  if (name.starts_with('i') && is_operator(name.substr(1))) return name.substr(1);
  if (name == "and_" || name == "or_") return {};  // of module operator
  if (name.size() > 1 && name.ends_with('_') && !name.ends_with("__")) return name.substr(0, name.size() - 1);
  return {};
}

// What eager refuses, as far as it is certain to see it: of tensors that leave gaps it does not ask.
bool overlap(Recorder& recorder, const FakeTensor& a, const FakeTensor& b) {
  auto& arena = recorder.arena();
  const TensorType ta = type_of(recorder, a), tb = type_of(recorder, b);
  for (const TensorType* t : {&ta, &tb})
    if (!graph::is_non_overlapping_and_dense(arena, *t)) return false;
  auto bytes = [&](const TensorType& t, sym::Expr elements) {
    return arena.mul(elements, arena.constant(size_of(t.dtype)));
  };
  auto start = [&](const TensorType& t) { return bytes(t, t.offset); };
  auto end = [&](const TensorType& t) { return arena.add(start(t), bytes(t, arena.product(t.sizes))); };
  sym::ShapeEnv& sizes = *recorder.sizes();
  auto holds = [&](sym::Expr e) {
    return sizes.has_hint(sizes.simplify(e)) ? sizes.decide(e) : sizes.known(e) == true;
  };
  return holds(arena.lt(start(ta), end(tb))) && holds(arena.lt(start(tb), end(ta)));
}

// A view by windows, which may leave elements between them or show some several times, or of a tensor that was
// expanded: PyTorch's inverses of these, which put back what is written, sum, round and leave zeros.
bool shows_several_times(Recorder& recorder, const FakeTensor& fake) {
  const graph::Graph& graph = recorder.graph();
  for (graph::NodeId by = made_by(graph, fake); is_view(graph, by);) {
    if (graph.node(by).op == graph::Op::unfold || graph.node(by).op == graph::Op::expand) return true;
    auto* of = std::get_if<graph::ValueId>(&graph.node(by).args[0]);
    if (!of) return false;
    by = graph.value(*of).node;
    if (!by.valid() && overlaps_itself(recorder.arena(), graph.type(*of))) return true;
  }
  return false;
}

bool is_same_view(Recorder& recorder, const FakeTensor& a, const FakeTensor& b) {
  const TensorType &ta = type_of(recorder, a), &tb = type_of(recorder, b);
  return ta.dtype == tb.dtype && ta.sizes == tb.sizes && ta.strides == tb.strides && ta.offset == tb.offset;
}

// Whether an index makes a view, by numbers that are known.
bool is_basic(PyObject* index) {
  if (PyTuple_Check(index)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(index); ++i)
      if (PyTuple_Check(PyTuple_GET_ITEM(index, i)) || !is_basic(PyTuple_GET_ITEM(index, i))) return false;
    return true;
  }
  if (PySlice_Check(index)) {
    auto* slice = reinterpret_cast<PySliceObject*>(index);
    return is_basic(slice->start) && is_basic(slice->stop) && is_basic(slice->step);
  }
  return index == Py_None || index == Py_Ellipsis ||
         (PyIndex_Check(index) && !PyBool_Check(index) && !THPVariable_Check(index));
}

// Whether a function written in Python, as those of torch.nn.functional, is called with inplace=True.
bool is_told_to_write(PyObject* fn, PyObject* const* args, size_t nargs, PyObject* kwargs) {
  if (kwargs && PyDict_GetItemString(kwargs, "inplace") == Py_True) return true;
  PyObject* names =
      PyFunction_Check(fn) ? PyCode_GetVarnames(reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(fn))) : nullptr;
  bool told = false;
  for (size_t i = 0; names && i < std::min(nargs, static_cast<size_t>(PyTuple_GET_SIZE(names))); ++i)
    told = told || (args[i] == Py_True && PyUnicode_CompareWithASCIIString(
                                              PyTuple_GET_ITEM(names, static_cast<Py_ssize_t>(i)), "inplace") == 0);
  Py_XDECREF(names);
  return told;
}

}  // namespace

WrittenOperand::WrittenOperand(Recorder& recorder, PyObject* fn, PyObject* const* args, size_t nargs, PyObject* kwargs)
    : recorder_(recorder) {
  auto is_spread = [&](const at::Tensor& t) {
    const FakeTensor& fake = *unwrap_fake(t);
    return overlaps_itself(recorder.arena(), type_of(recorder, fake)) || shows_several_times(recorder, fake);
  };
  if (c_function_name(fn).empty()) {  // written in Python: it may write to any of them
    const bool writes = is_told_to_write(fn, args, nargs, kwargs);
    auto look = [&](const at::Tensor& t) {
      if (!unwrap_fake(t)) return;
      written_.emplace_back(t);
      is_spread_ = is_spread_ || (writes && is_spread(t));
    };
    for (size_t i = 0; i < nargs; ++i) for_each_tensor(args[i], look);
    PyObject *key, *value;
    for (Py_ssize_t at = 0; kwargs && PyDict_Next(kwargs, &at, &key, &value);) for_each_tensor(value, look);
    return;
  }
  const std::string_view does = written_by(c_function_name(fn));
  if (does.empty() || !nargs) return;
  if (PyList_Check(args[0]) || PyTuple_Check(args[0])) {  // all of a list: torch._foreach_add_ and its like
    for_each_tensor(args[0], [&](const at::Tensor& t) { written_.emplace_back(t); });
    return;
  }
  if (!THPVariable_Check(args[0])) return;
  const at::Tensor& written = THPVariable_Unpack(args[0]);
  if (!unwrap_fake(written)) return;
  if (does == "set" || does == "resize_as" || does == "requires_grad") return;
  written_.emplace_back(written);
  is_spread_ = is_spread(written);
  // These take what they are given as it is.
  constexpr std::string_view kCopies[] = {"copy", "fill", "resize", "zero", "setitem"};
  if (std::ranges::find(kCopies, does) == std::end(kCopies)) tensor_ = written;
  if (does == "setitem") {  // indices that are tensors, which make no view, are not looked at
    is_read_ = nargs == 3 && is_basic(args[1]) && is_read_by_item(args[0], args[1], args[2]);
    return;
  }
  const bool operation = !c_function_name(fn).ends_with('_') || c_function_name(fn).starts_with("__");
  const bool by_element = operation || does == "copy" || is_by_element(does);
  auto look = [&](const at::Tensor& t) {
    FakeTensor *read = unwrap_fake(t), *into = unwrap_fake(written);
    if (!read || storage_of(t) != storage_of(written)) return;
    if (by_element && (t.is_same(written) || is_same_view(recorder, *read, *into))) return;
    is_read_ = is_read_ || overlap(recorder, *read, *into);
  };
  for (size_t i = 1; i < nargs; ++i) for_each_tensor(args[i], look);
  PyObject *key, *value;
  for (Py_ssize_t at = 0; kwargs && PyDict_Next(kwargs, &at, &key, &value);) for_each_tensor(value, look);
}

bool WrittenOperand::is_read_by_item(PyObject* written, PyObject* index, PyObject* value) const {
  const at::Tensor* read = THPVariable_Check(value) ? &THPVariable_Unpack(value) : nullptr;
  if (!read || !unwrap_fake(*read) || storage_of(*read) != storage_of(THPVariable_Unpack(written))) return false;
  PyObject* part = PyObject_GetItem(written, index);
  if (!part) return PyErr_Clear(), false;
  const FakeTensor *into = unwrap_fake(THPVariable_Unpack(part)), *from = unwrap_fake(*read);
  const bool is_read = into && !is_same_view(recorder_, *from, *into) && overlap(recorder_, *from, *into);
  Py_DECREF(part);
  return is_read;
}

bool WrittenOperand::is_refused(const graph::Graph& graph, size_t first) const {
  if (!tensor_.defined()) return false;
  std::optional<Cast> cast = cast_since(graph, first, tensor_);
  return cast && !c10::canCast(cast->from, cast->to);
}

}  // namespace braze::trace
