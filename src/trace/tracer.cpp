#include <ATen/FunctionalStorageImpl.h>
#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/SequenceNumber.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/utils/python_symnode.h>

#include <utility>

#include "base/check.h"
#include "trace/below_tracing.h"
#include "trace/branch.h"
#include "trace/fake_tensor.h"
#include "trace/pytorch/dual_number.h"
#include "trace/pytorch/names.h"
#include "trace/size_hint.h"
#include "trace/tracer_impl.h"

namespace braze::trace {

namespace functional = at::functionalization::impl;

TracerImpl::TracerImpl() : recorder_(std::make_shared<Recorder>()), outside_(current_ambient()) { require_recorder(); }

TracerImpl::~TracerImpl() {
  recorder_->close();
  for (auto& slot : recorder_->slots) slot.real = at::Tensor();  // fakes that are still held hold the recorder
  recorder_->reshaped.clear();
  for (Lifted& l : lifted_) {
    Py_DECREF(l.fake);
    Py_XDECREF(l.real);
  }
  for (PyObject* o : outputs_) Py_DECREF(o);
}

void TracerImpl::enter() { scopes_.push_back(std::make_unique<RecordingScope>(recorder_.get())); }

void TracerImpl::leave() {
  BRAZE_CHECK(!scopes_.empty(), "leave() without enter()");
  scopes_.pop_back();
}

bool TracerImpl::has_tangent(PyObject* fake) const {
  return pytorch::has_tangent(THPVariable_Unpack(fake).unsafeGetTensorImpl());
}

bool TracerImpl::is_fake(PyObject* obj) const {
  if (!THPVariable_Check(obj)) return false;
  auto keys = THPVariable_Unpack(obj).unsafeGetTensorImpl()->key_set();
  if (keys.has(kFakeKey)) return true;
  // Inside of a transform fakes come wrapped.
  return host_depth_ > 0 && keys.has_any(c10::DispatchKeySet(
                                {c10::DispatchKey::FuncTorchGradWrapper, c10::DispatchKey::FuncTorchBatched}));
}

PyObject* TracerImpl::known_number(PyObject* fake) {
  const at::Tensor& t = THPVariable_Unpack(fake);
  if (functional::isFunctionalTensor(t)) functional::sync(t);
  FakeTensor* inner = unwrap_fake(t);
  const at::Tensor* known = inner && inner->value().valid() && !inner->is_conj() && !inner->is_neg()
                                ? recorder_->known(inner->value())
                                : nullptr;
  if (!known || known->numel() != 1) return nullptr;
  c10::Scalar number;
  {
    BelowTracing below;
    number = known->item();
  }
  return pybind11::cast(number).release().ptr();
}

bool TracerImpl::size_expression(PyObject* sym, sym::Expr* out) {
  auto* size = size_node(sym);
  if (size) *out = recorder_->sizes()->over_base(size->expr());
  return size != nullptr;
}

bool TracerImpl::depends_on_data(PyObject* sym) {
  auto* size = size_node(sym);
  return size && !size->is_float() && size->arena().depends_on_data(size->expr());
}

PyObject* TracerImpl::as_integer(PyObject* sym) {
  auto* size = size_node(sym);
  BRAZE_CHECK(size, "a number of another compiler");
  return pybind11::cast(sym_int(recorder_->sizes(), size->expr())).release().ptr();
}

void TracerImpl::assume(PyObject* sym, const std::string& exception, const std::string& message) {
  auto* size = size_node(sym);
  BRAZE_CHECK(size, "an assumption on something else than a symbol");
  recorder_->sizes()->assume(size->expr(), {exception, message, {}});
  // The torch-level graph checks it with PyTorch's own operator.
  static PyObject* check =
      pybind11::object(
          pybind11::module_::import("torch").attr("ops").attr("aten").attr("_assert_scalar").attr("default"))
          .release()
          .ptr();
  PyObject* text = PyUnicode_FromStringAndSize(message.data(), static_cast<Py_ssize_t>(message.size()));
  PyObject* args[] = {sym, text};
  calls_.add(check, args, 2, nullptr, Py_None, current_ambient());
  Py_XDECREF(text);
}

Tracer::BranchStart TracerImpl::begin_branch(const std::vector<PyObject*>& fakes) {
  torch_level_ = false;
  return {recorder_->graph().nodes().size(), writes_of(fakes), at::sequence_number::peek()};
}

std::string TracerImpl::end_branch(const BranchStart& start, const std::vector<PyObject*>& fakes,
                                   const std::vector<PyObject*>& results, PyObject* predicate, bool when) {
  if (writes_of(fakes) != start.writes) return "it writes to a tensor that was there before";
  if (std::string why = why_not_in_vain(recorder_->graph(), start.nodes); !why.empty()) return why;
  std::vector<at::Tensor> roots;
  for (PyObject* o : results) roots.push_back(THPVariable_Unpack(o));
  std::unordered_set<const torch::autograd::Node*> outer;
  for (const Lifted& l : lifted_)
    if (l.outer.function) outer.insert(l.outer.function.get());
  RecordingScope scope(recorder_.get());
  end_gradients(roots, start.order, outer, THPVariable_Unpack(predicate), when);
  return {};
}

bool TracerImpl::begin_checkpoint(const std::vector<PyObject*>& held, bool selective) {
  std::vector<at::Tensor> inner;
  for (PyObject* o : held) {
    at::Tensor t = THPVariable_Unpack(o);
    if (functional::isFunctionalTensor(t)) {
      functional::sync(t);
      t = functional::from_functional_tensor(t);
    }
    if (as_fake(t)) inner.push_back(std::move(t));
  }
  return recorder_->checkpoints.begin(std::move(inner), selective);
}

PyObject* TracerImpl::checkpointed_calls() {
  const auto& calls = recorder_->checkpoints.calls();
  PyObject* list = PyList_New(static_cast<Py_ssize_t>(calls.size()));
  for (size_t i = 0; list && i < calls.size(); ++i) {
    PyObject* call = call_to_python(calls[i]);
    if (!call)
      Py_CLEAR(list);
    else
      PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i), call);
  }
  return list;
}

void TracerImpl::keep(size_t call, graph::Keep keep) {
  const Checkpoints::Call& of = recorder_->checkpoints.calls().at(call);
  for (size_t n = of.first_node; n < of.end_node; ++n) recorder_->graph().node(graph::NodeId(n)).checkpoint.keep = keep;
}

void TracerImpl::forget_inputs() {
  for (Lifted& l : lifted_) Py_CLEAR(l.real);
  for (auto& slot : recorder_->slots)
    if (slot.kind != graph::InputKind::Constant) slot.real = at::Tensor();
  by_real_.clear();
}

std::vector<CallList::Input> TracerImpl::call_inputs() {
  std::vector<CallList::Input> inputs;
  std::unordered_map<uint32_t, PyObject*> fakes;
  for (const Lifted& l : lifted_) fakes[l.slot] = l.fake;
  for (uint32_t slot : recorder_->input_slots) {
    auto it = fakes.find(slot);
    const auto& given = recorder_->slots[slot];
    CallList::Input input{it == fakes.end() ? nullptr : it->second, given.name, given.type.sizes, given.type.strides};
    for (auto* exprs : {&input.sizes, &input.strides})
      for (sym::Expr& e : *exprs) e = recorder_->sizes()->simplify(e);
    inputs.push_back(std::move(input));
  }
  return inputs;
}

bool TracerImpl::size_of_call(PyObject* o, sym::Expr* out) const {
  auto* node = size_node(o);
  if (node) *out = node->expr();
  return node != nullptr;
}

PyObject* TracerImpl::graph_module() {
  return calls_.graph_module(call_inputs(), outputs_, outside_, recorder_->sizes()->arena(), graph_symbols_,
                             [this](PyObject* o, sym::Expr* out) { return size_of_call(o, out); });
}

bool TracerImpl::is_literal(PyObject* constant) const {
  const c10::TensorImpl* impl = THPVariable_Unpack(constant).unsafeGetTensorImpl();
  return std::ranges::any_of(recorder_->slots,
                             [&](const auto& slot) { return slot.literal && slot.real.unsafeGetTensorImpl() == impl; });
}

TorchLevel TracerImpl::torch_level() {
  return calls_.describe(
      call_inputs(), outputs_, outside_, graph_symbols_, [this](PyObject* o) { return is_fake(o); },
      [this](PyObject* o, sym::Expr* out) { return size_of_call(o, out); });
}

SizeNode* TracerImpl::size_node(PyObject* obj) const {
  pybind11::handle h(obj);
  if (!torch::is_symint(h) && !torch::is_symbool(h)) return nullptr;
  pybind11::object held = pybind11::getattr(h, "node");
  if (!pybind11::isinstance<c10::SymNodeImpl>(held)) return nullptr;
  auto* size = dynamic_cast<SizeNode*>(held.cast<c10::SymNodeImpl*>());
  return size && &size->arena() == &recorder_->sizes()->arena() ? size : nullptr;  // the object keeps it alive
}

size_t TracerImpl::writes_of(const std::vector<PyObject*>& fakes) const {
  std::unordered_set<const c10::StorageImpl*> storages;
  for (const Lifted& l : lifted_) storages.insert(l.storage);
  for (PyObject* o : fakes)
    if (const at::Tensor& t = THPVariable_Unpack(o); functional::isFunctionalTensor(t))
      storages.insert(t.storage().unsafeGetStorageImpl());
  size_t writes = 0;
  for (const c10::StorageImpl* s : storages)
    if (auto* f = dynamic_cast<const at::functionalization::FunctionalStorageImpl*>(s)) writes += f->generation();
  return writes;
}

std::unique_ptr<Tracer> Tracer::create(const Options&) {
  initialize();
  return std::make_unique<TracerImpl>();
}

void initialize() {
  static bool done = false;  // the GIL is held
  if (done) return;
  pytorch::check();
  install_recorder();
  static PyMethodDef wait = {"wait_for_traced_backwards",
                             [](PyObject*, PyObject*) -> PyObject* {
                               wait_for_traced_backwards();
                               Py_RETURN_NONE;
                             },
                             METH_NOARGS, nullptr};
  pybind11::object before = pybind11::reinterpret_steal<pybind11::object>(PyCFunction_New(&wait, nullptr));
  pybind11::module_::import("os").attr("register_at_fork")(pybind11::arg("before") = before);
  done = true;
}

PyObject* size_hint(PyObject* size) {
  pybind11::handle h(size);
  if (!torch::is_symint(h)) return Py_NewRef(size);
  pybind11::object held = pybind11::getattr(h, "node");
  auto* node =
      pybind11::isinstance<c10::SymNodeImpl>(held) ? dynamic_cast<SizeNode*>(held.cast<c10::SymNodeImpl*>()) : nullptr;
  if (!node || !node->has_hint()) Py_RETURN_NONE;
  return PyLong_FromLongLong(node->hint());
}

}  // namespace braze::trace
