#include "trace/out_argument.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <optional>
#include <string>

#include "trace/convert.h"
#include "trace/fake_tensor.h"

namespace braze::trace {
namespace {

// Calls f on each tensor that the argument holds.
template <class F>
void for_each_tensor(PyObject* o, F&& f) {
  if (THPVariable_Check(o)) return f(THPVariable_Unpack(o));
  if (PyTuple_Check(o))
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); ++i) for_each_tensor(PyTuple_GET_ITEM(o, i), f);
  if (PyList_Check(o))
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(o); ++i) for_each_tensor(PyList_GET_ITEM(o, i), f);
}

// A function of torch's by whose name an operator computes each element of its result from those at the same place.
bool is_by_element(PyObject* fn) {
  if (!PyCFunction_Check(fn)) return false;
  const std::string name = std::string("aten::") + reinterpret_cast<PyCFunctionObject*>(fn)->m_ml->ml_name;
  graph::Op op = graph::op_from_name(name);
  if (op == graph::Op::Extern) op = graph::op_from_name(name + ".Tensor");
  return op != graph::Op::Extern && graph::op_class(op) == graph::OpClass::Pointwise;
}

// Several of its elements are one, as of an expanded tensor.
bool overlaps_itself(const at::Tensor& t) {
  for (int64_t d = 0; d < t.dim(); ++d) {
    auto size = t.sym_size(d).maybe_as_int(), stride = t.sym_stride(d).maybe_as_int();
    if (stride && *stride == 0 && (!size || *size > 1)) return true;
  }
  return false;
}

const c10::StorageImpl* storage_of(const at::Tensor& t) { return t.storage().unsafeGetStorageImpl(); }

}  // namespace

OutArgument::OutArgument(PyObject* fn, PyObject* const* args, size_t nargs, PyObject* kwargs) {
  PyObject* out = kwargs ? PyDict_GetItemString(kwargs, "out") : nullptr;
  if (!out) return;
  for_each_tensor(out, [&](const at::Tensor& t) {
    if (!unwrap_fake(t)) return;
    for (const at::Tensor& other : tensors_) shared_ = shared_ || storage_of(other) == storage_of(t);
    shared_ = shared_ || overlaps_itself(t);
    tensors_.push_back(t);
    sizes_.push_back(t.sym_sizes().vec());
  });
  if (tensors_.empty()) return;
  bool in_place = is_by_element(fn) && tensors_.size() == 1;
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

}  // namespace

bool OutArgument::was_resized(const graph::Graph& graph, size_t first) const {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const Known before = known(sizes_[i]);
    if (!may_be_same(before, known(tensors_[i].sym_sizes())) &&
        std::find(before.begin(), before.end(), std::optional<int64_t>(0)) == before.end())
      return true;
    // A view keeps its sizes, whatever it was given.
    auto* wrapper = at::functionalization::impl::isFunctionalTensor(tensors_[i])
                        ? at::functionalization::impl::unsafeGetFunctionalWrapper(tensors_[i])
                        : nullptr;
    if (wrapper && !wrapper->view_metas().empty() && !is_made(graph, first, before)) return true;
  }
  return false;
}

bool OutArgument::may_be_refused(const graph::Graph& graph, size_t first) const {
  auto casts = [&](const at::Tensor& t) {
    FakeTensor* fake = unwrap_fake(t);
    graph::NodeId n = fake && fake->value().valid() ? graph.value(fake->value()).node : graph::NodeId();
    if (!n.valid() || n.index < first || graph.node(n).op != graph::Op::_to_copy) return false;
    auto* from = std::get_if<graph::ValueId>(&graph.node(n).args[0]);
    if (!from || graph.type(*from).dtype == graph.type(fake->value()).dtype) return false;
    // Operators by element whose operands are promoted cast their result as PyTorch casts; others each have a rule of
    // their own.
    graph::NodeId by = graph.value(*from).node;
    if (!by.valid() || by.index < first) return true;
    const graph::OpRow& row = graph::op_row(graph.node(by).op);
    const bool promotes = row.result.dtype == graph::ResultDType::Promote ||
                          row.result.dtype == graph::ResultDType::Float || row.result.dtype == graph::ResultDType::Bool;
    return row.cls != graph::OpClass::Pointwise || !promotes || row.name.starts_with("aten::clamp") ||
           row.name.starts_with("aten::where") ||
           !c10::canCast(scalar_type(graph.type(*from).dtype), scalar_type(graph.type(fake->value()).dtype));
  };
  return std::any_of(tensors_.begin(), tensors_.end(), casts);
}

}  // namespace braze::trace
