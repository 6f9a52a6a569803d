#include <ATen/Context.h>
#include <ATen/FunctionalStorageImpl.h>
#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/SequenceNumber.h>
#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/utils/python_symnode.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <typeinfo>
#include <utility>

#include "base/check.h"
#include "graph/given_symbol.h"
#include "trace/ambient.h"
#include "trace/below_tracing.h"
#include "trace/branch.h"
#include "trace/dual_number.h"
#include "trace/convert.h"
#include "trace/fake_tensor.h"
#include "trace/fixed_sizes.h"
#include "trace/fx.h"
#include "trace/graph_break.h"
#include "trace/joint.h"
#include "trace/recorder.h"
#include "trace/size_hint.h"
#include "trace/trace.h"

namespace braze::trace {
namespace {

namespace functional = at::functionalization::impl;

bool is_exact_tensor(PyObject* obj) { return Py_TYPE(obj) == reinterpret_cast<PyTypeObject*>(THPVariableClass); }

[[noreturn]] void refuse_tensor(const std::string& what) { throw Unsupported(Reason::UnsupportedTensor, what); }

void check_liftable(PyObject* obj) {
  if (!THPVariable_Check(obj)) refuse_tensor("not a tensor");
  const at::Tensor& t = THPVariable_Unpack(obj);
  if (!t.defined()) refuse_tensor("an undefined tensor");
  if (t.layout() != c10::kStrided) refuse_tensor("a sparse or otherwise not strided tensor");
  if (t.is_quantized()) refuse_tensor("a quantised tensor");
  if (t.is_conj() || t.is_neg()) refuse_tensor("a lazily conjugated or negated tensor");
  if (!t.device().is_cpu() && !t.device().is_cuda()) refuse_tensor("a tensor on device " + t.device().str());
  if (t.is_nested()) refuse_tensor("a nested tensor");
  auto keys = t.unsafeGetTensorImpl()->key_set();
  if (keys.has_any(c10::DispatchKeySet({kFakeKey, c10::DispatchKey::Functionalize, c10::DispatchKey::Python,
                                        c10::DispatchKey::FuncTorchGradWrapper, c10::DispatchKey::FuncTorchBatched})))
    refuse_tensor("a wrapper tensor (of a transform or a dispatch mode)");
  if (!t.has_storage()) refuse_tensor("a tensor without storage");
  if (has_tangent(t.unsafeGetTensorImpl())) refuse_tensor("a dual number of forward-mode differentiation");
}

// Methods whose answers depend on memory, which a fake does not have, or on where in its storage a tensor lies, which
// it does not know.
bool asks_for_memory(PyObject* fn) {
  static const std::unordered_set<std::string_view> asked = {
      "__array__", "__deepcopy__",    "__dlpack__", "__dlpack_device__", "__reduce_ex__", "data_ptr", "is_pinned",
      "is_shared", "is_set_to",       "numpy",      "pin_memory",        "share_memory_", "storage",  "storage_offset",
      "tolist",    "untyped_storage",
  };
  if (PyObject_TypeCheck(fn, &PyMethodDescr_Type))
    return asked.count(reinterpret_cast<PyMethodDescrObject*>(fn)->d_method->ml_name) != 0;
  if (!PyFunction_Check(fn)) return false;
  Py_ssize_t size = 0;
  const char* name = PyUnicode_AsUTF8AndSize(reinterpret_cast<PyFunctionObject*>(fn)->func_name, &size);
  return name && asked.count(std::string_view(name, static_cast<size_t>(size))) != 0;
}

// PyTorch's code that reads a tensor's memory finds none in a fake and says so in an error: not the user's, but a
// break.
void break_on_memory_access() {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  PyObject* text = value && PyErr_GivenExceptionMatches(value, PyExc_RuntimeError) ? PyObject_Str(value) : nullptr;
  const char* chars = text ? PyUnicode_AsUTF8(text) : nullptr;
  std::string_view message = chars ? chars : "";
  for (const char* phrase :
       {"its data is not allocated yet", "doesn't have storage", "with unallocated storage", "without storage"}) {
    if (message.find(phrase) == std::string_view::npos) continue;
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    Py_XDECREF(text);
    return set_graph_break(Reason::UnsupportedOp, "its kernel reads the memory of a tensor");
  }
  Py_XDECREF(text);
  PyErr_Restore(type, value, traceback);
}

// oneDNN's recurrent layer keeps a workspace for its backward whose size only it knows; without it PyTorch runs its own steps.
struct WithoutOneDnn {
  explicit WithoutOneDnn(bool wanted) : before(at::globalContext().userEnabledMkldnn()), set(wanted && before) {
    if (set) at::globalContext().setUserEnabledMkldnn(false);
  }
  ~WithoutOneDnn() {
    if (set) at::globalContext().setUserEnabledMkldnn(true);
  }
  bool before, set;
};

bool is_lstm(PyObject* fn) {
  return PyCFunction_Check(fn) && std::string_view(reinterpret_cast<PyCFunctionObject*>(fn)->m_ml->ml_name) == "lstm";
}

// torch.ops.namespace.name tries its overloads by turns and makes a text of what did not fit, whose elements a fake lacks.
bool is_overload_packet(PyObject* fn) { return std::string_view(Py_TYPE(fn)->tp_name) == "OpOverloadPacket"; }

class WithoutTexts {
 public:
  explicit WithoutTexts(bool on) {
    if (!on) return;
    static PyMethodDef method{"_str", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(text)), METH_VARARGS | METH_KEYWORDS, nullptr};
    static PyObject* instead = PyCFunction_New(&method, nullptr);
    static PyObject* module = pybind11::object(pybind11::module_::import("torch._tensor_str")).release().ptr();
    before_ = PyObject_GetAttrString(module, "_str");
    module_ = module;
    PyObject_SetAttrString(module, "_str", instead);
  }
  ~WithoutTexts() {
    if (!before_) return;
    PyObject *type, *value, *traceback;  // of the call, which may have failed
    PyErr_Fetch(&type, &value, &traceback);
    PyObject_SetAttrString(module_, "_str", before_);
    PyErr_Restore(type, value, traceback);
    Py_DECREF(before_);
  }
  WithoutTexts(const WithoutTexts&) = delete;
  WithoutTexts& operator=(const WithoutTexts&) = delete;

 private:
  static PyObject* text(PyObject*, PyObject*, PyObject*) { return PyUnicode_FromString("a tensor"); }
  PyObject *before_ = nullptr, *module_ = nullptr;
};

class TracerImpl final : public Tracer, public Differentiable {
 public:
  TracerImpl() : recorder_(std::make_shared<Recorder>()), outside_(current_ambient()) { require_recorder(); }

  ~TracerImpl() override {
    recorder_->close();
    for (auto& slot : recorder_->slots) slot.real = at::Tensor();  // fakes that are still held hold the recorder
    for (Lifted& l : lifted_) {
      Py_DECREF(l.fake);
      Py_XDECREF(l.real);
    }
    for (PyObject* o : outputs_) Py_DECREF(o);
  }

  PyObject* lift(PyObject* real, graph::InputKind kind, const std::string& name,
                 const std::vector<SymbolicDim>& symbolic) override {
    if (auto it = by_real_.find(real); it != by_real_.end()) {
      Py_INCREF(lifted_[it->second].fake);
      return lifted_[it->second].fake;
    }
    check_liftable(real);
    const at::Tensor& tensor = THPVariable_Unpack(real);
    TensorType type = input_type(tensor, symbolic, real);
    auto slot = static_cast<uint32_t>(recorder_->slots.size());
    at::Tensor inner = recorder_->lift(tensor, kind, name, std::move(type));
    at::Tensor fake = functional::to_functional_tensor(inner);
    torch::autograd::Edge outer;
    if (tensor.requires_grad() && tensor.is_leaf()) fake.set_requires_grad(true);
    else if (tensor.requires_grad()) outer = set_outer_history(fake);
    PyObject* obj = THPVariable_Wrap(fake);
    if (!obj) return nullptr;
    if (!is_exact_tensor(real) &&
        PyObject_SetAttrString(obj, "__class__", reinterpret_cast<PyObject*>(Py_TYPE(real))) < 0) {
      Py_DECREF(obj);
      return nullptr;
    }
    Py_INCREF(real);
    Py_INCREF(obj);
    by_real_[real] = lifted_.size();
    by_fake_[obj] = lifted_.size();
    lifted_.push_back(Lifted{obj, real, slot, std::move(inner), fake.storage().unsafeGetStorageImpl(), std::move(outer)});
    return obj;
  }

  bool is_fake(PyObject* obj) const override {
    if (!THPVariable_Check(obj)) return false;
    auto keys = THPVariable_Unpack(obj).unsafeGetTensorImpl()->key_set();
    if (keys.has(kFakeKey)) return true;
    // Inside of a transform fakes come wrapped.
    return host_depth_ > 0 && keys.has_any(c10::DispatchKeySet({c10::DispatchKey::FuncTorchGradWrapper, c10::DispatchKey::FuncTorchBatched}));
  }

  PyObject* real_of(PyObject* fake) const override {
    auto it = by_fake_.find(fake);
    return it == by_fake_.end() ? nullptr : lifted_[it->second].real;
  }

  void enter() override { scopes_.push_back(std::make_unique<RecordingScope>(recorder_.get())); }
  void leave() override {
    BRAZE_CHECK(!scopes_.empty(), "leave() without enter()");
    scopes_.pop_back();
  }

  PyObject* lift_int(int64_t value, sym::Range range) override {
    SizeEnv& env = *recorder_->sizes();
    sym::Expr symbol = env.add_symbol("n" + std::to_string(ints_), range, value);
    add_place(symbol, nullptr, ints_++);
    return pybind11::cast(sym_int(recorder_->sizes(), symbol)).release().ptr();
  }

  PyObject* known_number(PyObject* fake) override {
    const at::Tensor& t = THPVariable_Unpack(fake);
    if (functional::isFunctionalTensor(t)) functional::sync(t);
    FakeTensor* inner = unwrap_fake(t);
    const at::Tensor* known = inner && inner->value().valid() ? recorder_->known(inner->value()) : nullptr;
    if (!known || known->numel() != 1) return nullptr;
    c10::Scalar number;
    {
      BelowTracing below;
      number = known->item();
    }
    return pybind11::cast(number).release().ptr();
  }

  PyObject* storage_offset(PyObject* fake) override {
    FakeTensor* inner = unwrap_fake(THPVariable_Unpack(fake));
    if (!inner || host_depth_) return nullptr;
    auto offset = inner->sym_storage_offset().maybe_as_int();
    if (!offset) return nullptr;
    uint32_t slot = inner->value().valid() ? recorder_->root_slot(inner->value()) : inner->slot();
    if (slot != FakeTensor::kNoSlot) {
      if (recorder_->slots[slot].kind == graph::InputKind::Constant || !recorder_->slots[slot].real.defined()) return nullptr;
      recorder_->use_slot(slot);
      recorder_->offset_slots.push_back(slot);
      *offset += recorder_->slots[slot].real.storage_offset();
    } else if (inner->value().valid() && graph::op_class(recorder_->graph().node(recorder_->graph().value(inner->value()).node).op) == graph::OpClass::View) {
      return nullptr;
    }
    return PyLong_FromLongLong(*offset);
  }

  void set_where(std::function<uint32_t()> where) override { recorder_->sizes()->set_where(std::move(where)); }

  bool size_expression(PyObject* sym, sym::Expr* out) override {
    auto* size = size_node(sym);
    if (size) *out = recorder_->sizes()->over_base(size->expr());
    return size != nullptr;
  }

  void allow_unbacked() override { recorder_->allow_unbacked(); }
  bool has_unbacked() const override { return recorder_->sizes()->has_unbacked(); }
  bool depends_on_data(PyObject* sym) override {
    auto* size = size_node(sym);
    return size && !size->is_float() && size->arena().depends_on_data(size->expr());
  }
  PyObject* as_integer(PyObject* sym) override {
    auto* size = size_node(sym);
    BRAZE_CHECK(size, "a number of another compiler");
    return pybind11::cast(sym_int(recorder_->sizes(), size->expr())).release().ptr();
  }
  void assume(PyObject* sym, const std::string& exception, const std::string& message) override {
    auto* size = size_node(sym);
    BRAZE_CHECK(size, "an assumption on something else than a symbol");
    recorder_->sizes()->assume(size->expr(), {exception, message, {}});
    // The torch-level graph checks it with PyTorch's own operator.
    static PyObject* check = pybind11::object(pybind11::module_::import("torch").attr("ops").attr("aten").attr("_assert_scalar").attr("default")).release().ptr();
    PyObject* text = PyUnicode_FromStringAndSize(message.data(), static_cast<Py_ssize_t>(message.size()));
    PyObject* args[] = {sym, text};
    calls_.add(check, args, 2, nullptr, Py_None, current_ambient());
    Py_XDECREF(text);
  }

  PyObject* call(PyObject* fn, PyObject* const* args, size_t nargs, PyObject* kwargs,
                 const graph::Location& loc) override {
    if (asks_for_memory(fn)) {
      set_graph_break(Reason::UnsupportedOp, "a question about the memory of a tensor");
      return nullptr;
    }
    return perform(fn, args, nargs, kwargs, loc, host_depth_ ? nullptr : fn);
  }

  PyObject* call_host(PyObject* fn, PyObject* const* args, size_t nargs, PyObject* kwargs, const graph::Location& loc,
                      PyObject* noted) override {
    if (!noted && !host_depth_) torch_level_ = false;
    struct Depth {
      int& depth;
      explicit Depth(int& d) : depth(d) { ++depth; }
      ~Depth() { --depth; }
    } inside(host_depth_);
    return perform(fn, args, nargs, kwargs, loc, host_depth_ > 1 ? nullptr : noted);
  }

  PyObject* call_overridden(PyObject* fn, PyObject* const* args, size_t nargs, PyObject* kwargs, const graph::Location& loc) override {
    return perform(fn, args, nargs, kwargs, loc, nullptr);
  }

  BranchStart begin_branch(const std::vector<PyObject*>& fakes) override {
    torch_level_ = false;
    return {recorder_->graph().nodes().size(), writes_of(fakes), at::sequence_number::peek()};
  }
  std::string end_branch(const BranchStart& start, const std::vector<PyObject*>& fakes, const std::vector<PyObject*>& results,
                         PyObject* predicate, bool when) override {
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

  bool has_torch_level() const override { return torch_level_; }
  void forget_history(PyObject* fake) override { without_history_.insert(fake); }

  // Calls fn under the recorder; the torch-level graph gets a call of `noted`, if any.
  PyObject* perform(PyObject* fn, PyObject* const* args, size_t nargs, PyObject* kwargs, const graph::Location& loc, PyObject* noted) {
    RecordingScope scope(recorder_.get());
    const graph::Location* around = std::exchange(location_, &loc);
    recorder_->set_location(&loc);
    Ambient ambient = current_ambient();
    size_t before = recorder_->graph().nodes().size();
    WithoutTexts no_texts(is_overload_packet(fn));
    WithoutOneDnn steps(c10::GradMode::is_enabled() && is_lstm(fn));
    PyObject* result = PyObject_VectorcallDict(fn, args, nargs, kwargs);
    if (!result && !host_depth_ && recorder_->failure.empty() && failed_on_symbols())
      result = call_with_fixed_sizes(*recorder_, [this](PyObject* o) { return size_node(o) != nullptr; }, fn, args, nargs, kwargs);
    location_ = around;
    recorder_->set_location(around);
    if (!recorder_->failure.empty()) {
      Py_XDECREF(result);
      PyErr_Clear();
      throw InternalError(std::exchange(recorder_->failure, {}));
    }
    if (!result) {
      break_on_memory_access();
      return nullptr;
    }
    bool recorded = recorder_->graph().nodes().size() != before;
    if (noted && (recorded || holds_fake(result)) && !calls_.add(noted, args, nargs, kwargs, result, ambient)) {
      Py_DECREF(result);
      return nullptr;
    }
    return result;
  }

  Captured finish(const std::vector<PyObject*>& outputs, std::vector<PyObject*>& inputs) override;
  Gradients differentiate(Captured& captured) override;
  Ambient outside() const override { return outside_; }
  void forget_inputs() override {
    for (Lifted& l : lifted_) Py_CLEAR(l.real);
    for (auto& slot : recorder_->slots)
      if (slot.kind != graph::InputKind::Constant) slot.real = at::Tensor();
    by_real_.clear();
  }

  PyObject* graph_module() override {
    std::vector<std::pair<PyObject*, std::string>> inputs;
    std::unordered_map<uint32_t, PyObject*> fakes;
    for (const Lifted& l : lifted_) fakes[l.slot] = l.fake;
    for (uint32_t slot : recorder_->input_slots) {
      auto it = fakes.find(slot);
      inputs.emplace_back(it == fakes.end() ? nullptr : it->second, recorder_->slots[slot].name);
    }
    CallList::Size size = [&](PyObject* o, sym::Expr* out) {
      auto* node = size_node(o);
      if (node) *out = node->expr();
      return node != nullptr;
    };
    return calls_.graph_module(inputs, outputs_, outside_, recorder_->sizes()->arena(), graph_symbols_, size);
  }

 private:
  // Of a torch.SymInt or SymBool of this capture; nullptr for all else.
  SizeNode* size_node(PyObject* obj) const {
    pybind11::handle h(obj);
    if (!torch::is_symint(h) && !torch::is_symbool(h)) return nullptr;
    pybind11::object held = pybind11::getattr(h, "node");
    if (!pybind11::isinstance<c10::SymNodeImpl>(held)) return nullptr;
    auto* size = dynamic_cast<SizeNode*>(held.cast<c10::SymNodeImpl*>());
    return size && &size->arena() == &recorder_->sizes()->arena() ? size : nullptr;  // the object keeps it alive
  }

  // How often these fakes were written, and those that were lifted.
  size_t writes_of(const std::vector<PyObject*>& fakes) const {
    std::unordered_set<const c10::StorageImpl*> storages;
    for (const Lifted& l : lifted_) storages.insert(l.storage);
    for (PyObject* o : fakes)
      if (const at::Tensor& t = THPVariable_Unpack(o); functional::isFunctionalTensor(t)) storages.insert(t.storage().unsafeGetStorageImpl());
    size_t writes = 0;
    for (const c10::StorageImpl* s : storages)
      if (auto* f = dynamic_cast<const at::functionalization::FunctionalStorageImpl*>(s)) writes += f->generation();
    return writes;
  }

  struct Lifted {
    PyObject *fake, *real;  // owned
    uint32_t slot;
    at::Tensor inner;                 // the fake before any mutation
    const c10::StorageImpl* storage;  // of the functional wrapper
    torch::autograd::Edge outer;      // of a non-leaf
  };

  bool holds_fake(PyObject* obj) const {
    if (PyTuple_Check(obj)) {
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(obj); ++i)
        if (holds_fake(PyTuple_GET_ITEM(obj, i))) return true;
      return false;
    }
    if (PyList_Check(obj)) {
      for (Py_ssize_t i = 0; i < PyList_GET_SIZE(obj); ++i)
        if (holds_fake(PyList_GET_ITEM(obj, i))) return true;
      return false;
    }
    return is_fake(obj);
  }

  TensorType input_type(const at::Tensor& tensor, const std::vector<SymbolicDim>& symbolic, PyObject* real);
  void add_place(sym::Expr symbol, PyObject* tensor, int32_t dim);
  void finish_sizes(Captured& captured, graph::Graph& graph);
  Gradients add_backward(Captured& captured, graph::Graph& graph);
  std::vector<uint32_t> write_back_mutations(graph::Graph& graph);  // see Captured::write_counts
  bool differs_in_history(const Lifted& lifted) const;
  graph::ValueId output_value(PyObject* output, bool& needs_grad);
  std::vector<at::Tensor> differentiable_outputs(graph::Graph& graph, Gradients& out);

  std::shared_ptr<Recorder> recorder_;
  std::vector<Lifted> lifted_;
  std::unordered_map<PyObject*, size_t> by_real_, by_fake_;
  std::unordered_map<const c10::StorageImpl*, size_t> mutated_;  // functional storage -> lifted
  std::vector<size_t> written_with_history_;  // lifted
  std::vector<std::unique_ptr<RecordingScope>> scopes_;
  std::vector<sym::Expr> symbols_;   // of sizes, integers and strides: what calls read
  std::vector<SizePlace> places_;
  std::vector<SizeGuard> stride_guards_;  // strides follow the sizes
  std::unordered_map<uint32_t, sym::Expr> offset_symbols_;  // by slot
  int32_t ints_ = 0;
  std::vector<sym::Expr> graph_symbols_;
  CallList calls_;
  Ambient outside_;                 // the modes at the start of the capture
  std::vector<PyObject*> outputs_;  // owned, of finish()
  std::vector<PyObject*> inputs_;   // of finish()
  int host_depth_ = 0;
  bool torch_level_ = true;
  const graph::Location* location_ = nullptr;
  std::unordered_set<PyObject*> without_history_;
};

void TracerImpl::add_place(sym::Expr symbol, PyObject* tensor, int32_t dim) {
  auto it = std::find(symbols_.begin(), symbols_.end(), symbol);
  auto index = static_cast<uint32_t>(it - symbols_.begin());
  if (it == symbols_.end()) symbols_.push_back(symbol);
  places_.push_back({index, tensor, dim});
}

TensorType TracerImpl::input_type(const at::Tensor& tensor, const std::vector<SymbolicDim>& symbolic, PyObject* real) {
  sym::ExprArena& arena = recorder_->arena();
  TensorType type = type_of(arena, tensor);
  type.offset = arena.constant(0);
  if (symbolic.empty()) return type;
  SizeEnv& env = *recorder_->sizes();
  auto slot = static_cast<uint32_t>(recorder_->slots.size());
  std::string prefix = "s" + std::to_string(slot) + "_";
  std::vector<const SymbolicDim*> stride_symbols(type.dim());
  for (const SymbolicDim& s : symbolic) {
    auto d = static_cast<size_t>(s.dim >= 0 ? s.dim : ~s.dim);
    BRAZE_CHECK(d < type.dim(), "a symbolic dimension that the tensor lacks");
    if (s.dim < 0) {
      stride_symbols[d] = &s;
      continue;
    }
    int64_t hint = tensor.size(s.dim);
    std::string name = prefix + std::to_string(s.dim);
    if (s.unbacked) {
      type.sizes[d] = env.add_unbacked_base(s.range, "the size of dimension " + std::to_string(s.dim) + " of an argument that was marked");
      add_place(type.sizes[d], real, s.dim);
      continue;
    }
    type.sizes[d] = s.duck ? env.duck_symbol(name, s.range, hint, {hint, s.before}) : env.add_symbol(name, s.range, hint);
    add_place(type.sizes[d], real, s.dim);
  }
  // Where the strides are those of a dense tensor in some order of its dimensions, they follow the symbols.
  std::vector<size_t> order(type.dim());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return tensor.stride(static_cast<int64_t>(a)) > tensor.stride(static_cast<int64_t>(b));
  });
  int64_t expected = 1;
  std::vector<sym::Expr> dense(type.dim());
  sym::Expr stride = arena.constant(1);
  bool is_dense = true;
  for (size_t i = order.size(); i-- > 0 && is_dense;) {
    auto d = static_cast<int64_t>(order[i]);
    is_dense = tensor.stride(d) == expected;
    dense[order[i]] = stride;
    expected *= tensor.size(d);
    stride = arena.mul(stride, type.sizes[order[i]]);
  }
  for (size_t d = 0; d < type.dim(); ++d) {
    sym::Expr read = arena.symbol(prefix + "stride" + std::to_string(d), sym::SymbolKind::Size, {});
    add_place(read, real, ~static_cast<int32_t>(d));
    if (is_dense) {
      type.strides[d] = dense[d];
    } else if (stride_symbols[d]) {
      int64_t hint = tensor.stride(static_cast<int64_t>(d));
      type.strides[d] = env.add_symbol(prefix + "step" + std::to_string(d), stride_symbols[d]->range, hint);
      add_place(type.strides[d], real, ~static_cast<int32_t>(d));
      continue;
    }
    stride_guards_.push_back({arena.eq(read, type.strides[d]), 0});
  }
  for (auto* list : {&type.sizes, &type.strides})  // a shared symbol may have been decided already
    for (sym::Expr& e : *list) e = env.simplify(e);
  return type;
}

// What is known of the sizes now, in `captured`, the graph (the recorder's) and for graph_module().
void TracerImpl::finish_sizes(Captured& captured, graph::Graph& graph) {
  recorder_->refresh_sizes(true);
  SizeEnv& env = *recorder_->sizes();
  sym::ExprArena& arena = env.arena();
  captured.size_symbols.clear();
  captured.size_guards.clear();
  captured.symbol_values.clear();
  graph.size_symbols.clear();
  graph_symbols_.clear();
  captured.size_places = places_;
  for (const auto& f : env.facts()) captured.size_guards.push_back({f.condition, f.where});
  for (sym::Expr s : symbols_) {
    bool base = std::find(env.base().begin(), env.base().end(), s) != env.base().end();
    SizeSymbol made{s, base ? arena.range(s) : sym::Range{}, base ? env.declared(s) : sym::Range{}, -1};
    if (base && arena.symbol_kind(s) == sym::SymbolKind::Unbacked) made.range = made.declared;  // what is assumed, the run asserts
    if (const auto* fact = base ? env.specialised(s) : nullptr) made.fixed_by = static_cast<int32_t>(fact - env.facts().data());
    captured.size_symbols.push_back(made);
    if (!base || env.simplify(s) != s) continue;
    // The first place that is an input of the graph says so in its text.
    std::pair<uint32_t, int32_t> origin{graph::kGivenSymbol, 0};
    for (const SizePlace& p : places_) {
      if (symbols_[p.symbol] != s || !p.tensor) continue;
      auto at = std::find(inputs_.begin(), inputs_.end(), p.tensor);
      if (at == inputs_.end()) continue;
      origin = {static_cast<uint32_t>(at - inputs_.begin()), p.dim};
      break;
    }
    graph.size_symbols.push_back({s, origin});
    captured.symbol_values.push_back(s);
  }
  for (const auto& d : env.derived()) {
    if (env.simplify(d.symbol) != d.symbol) continue;
    graph.size_symbols.push_back({d.symbol, {graph::kGivenSymbol, 0}});
    captured.symbol_values.push_back(d.definition);
  }
  for (const auto& s : graph.size_symbols) graph_symbols_.push_back(s.first);
  std::unordered_set<uint32_t> seen;
  for (const Lifted& l : lifted_) {
    bool relied = std::find(recorder_->offset_slots.begin(), recorder_->offset_slots.end(), l.slot) != recorder_->offset_slots.end();
    if (!relied || !l.real || !seen.insert(l.slot).second) continue;
    auto [known, fresh] = offset_symbols_.try_emplace(l.slot);
    if (fresh) known->second = arena.symbol("s" + std::to_string(l.slot) + "_offset", sym::SymbolKind::Size, {});
    sym::Expr read = known->second;
    auto symbol = static_cast<uint32_t>(captured.size_symbols.size());
    captured.size_symbols.push_back({read, {}, {}, -1});
    captured.size_places.push_back({symbol, l.real, kStorageOffset});
    captured.size_guards.push_back({arena.eq(read, arena.constant(recorder_->slots[l.slot].real.storage_offset())), 0});
  }
  for (SizeGuard g : stride_guards_) {
    g.condition = env.over_base(env.simplify(g.condition));
    if (!arena.is_const(g.condition, 1)) captured.size_guards.push_back(g);
  }
}

// It was written to by operators that autograd noted.
bool TracerImpl::differs_in_history(const Lifted& l) const {
  const at::Tensor& fake = THPVariable_Unpack(l.fake);
  const at::Tensor& real = recorder_->slots[l.slot].real;
  if (!fake.requires_grad() || fake.is_leaf()) return false;
  if (torch::autograd::impl::gradient_edge(fake) == l.outer) return false;
  // Eager has more to say about writing to a view that another way of making views gave.
  if (auto* view = torch::autograd::impl::get_view_autograd_meta(real); view && view->get_creation_meta() != torch::autograd::CreationMeta::DEFAULT)
    throw Unsupported(Reason::UnsupportedMutation, "an input is changed that is one of several views, or a view made without grad");
  return true;
}

// Inputs whose data changed: their last values are written back. Fills mutated_.
std::vector<uint32_t> TracerImpl::write_back_mutations(graph::Graph& graph) {
  std::vector<uint32_t> counts;
  for (size_t i = 0; i < lifted_.size(); ++i) {
    const at::Tensor& fake = THPVariable_Unpack(lifted_[i].fake);
    if (!functional::isFunctionalTensor(fake))
      throw Unsupported(Reason::UnsupportedMutation, "the data of an input are replaced");
    auto* wrapper = functional::unsafeGetFunctionalWrapper(fake);
    const at::Tensor& real = recorder_->slots[lifted_[i].slot].real;
    if (wrapper->has_metadata_mutation() || wrapper->was_storage_changed())
      throw Unsupported(Reason::UnsupportedMutation, "the sizes, strides or storage of an input are changed");
    bool same_storage = fake.storage().unsafeGetStorageImpl() == lifted_[i].storage;
    if (!same_storage || (!wrapper->has_data_mutation() && unwrap_fake(fake) != lifted_[i].inner.unsafeGetTensorImpl()))
      throw Unsupported(Reason::UnsupportedMutation, "the data of an input are replaced");
    bool history = differs_in_history(lifted_[i]);
    if (fake.requires_grad() != real.requires_grad() && !history)
      throw Unsupported(Reason::UnsupportedMutation, "requires_grad of an input is changed");
    if (!wrapper->has_data_mutation()) continue;
    if (history) written_with_history_.push_back(i);
    functional::sync(fake);
    FakeTensor* now = unwrap_fake(fake);
    BRAZE_CHECK(now, "an input's functional wrapper holds no fake");
    mutated_[fake.storage().unsafeGetStorageImpl()] = i;
    if (now->slot() == lifted_[i].slot && !now->value().valid()) continue;
    graph::ValueId input = recorder_->use_slot(lifted_[i].slot), value = recorder_->value_of(*now);
    if (input == value) continue;
    if (graph.type(input).dtype != graph.type(value).dtype || graph.type(input).sizes != graph.type(value).sizes)
      throw Unsupported(Reason::UnsupportedMutation, "an input would get values of another dtype or size");
    graph.writebacks.push_back({input, value});
    // Taking over the history counts as one.
    uint32_t count = fake.unsafeGetTensorImpl()->version_counter().current_version();
    counts.push_back(history && count > 0 ? count - 1 : count);
  }
  if (graph.writebacks.empty()) return counts;
  // A write through one of two inputs that share memory would have to be seen through the other.
  std::unordered_map<const c10::StorageImpl*, size_t> owners;
  for (const Lifted& l : lifted_) ++owners[recorder_->slots[l.slot].real.storage().unsafeGetStorageImpl()];
  for (const auto& [storage, i] : mutated_)
    if (owners[recorder_->slots[lifted_[i].slot].real.storage().unsafeGetStorageImpl()] > 1)
      throw Unsupported(Reason::UnsupportedMutation, "an input is changed that shares its memory with another");
  return counts;
}

graph::ValueId TracerImpl::output_value(PyObject* output, bool& needs_grad) {
  if (output == Py_None) return {};
  BRAZE_CHECK(THPVariable_Check(output), "an output that is not a tensor");
  const at::Tensor& tensor = THPVariable_Unpack(output);
  needs_grad |= tensor.requires_grad() && !by_fake_.count(output) && !without_history_.count(output);
  if (!functional::isFunctionalTensor(tensor)) {
    if (FakeTensor* fake = unwrap_fake(tensor)) return recorder_->value_of(*fake);
    return recorder_->constant(tensor);
  }
  auto* wrapper = functional::unsafeGetFunctionalWrapper(tensor);
  if (auto it = mutated_.find(tensor.storage().unsafeGetStorageImpl()); it != mutated_.end()) {
    // It aliases an input that is written after all nodes: the same views, of the input itself.
    at::Tensor view = lifted_[it->second].inner;
    for (const auto& meta : wrapper->view_metas()) view = meta->forward(view);
    FakeTensor* fake = as_fake(view);
    BRAZE_CHECK(fake, "views of an input are not fakes");
    return recorder_->value_of(*fake);
  }
  functional::sync(tensor);
  FakeTensor* fake = unwrap_fake(tensor);
  BRAZE_CHECK(fake, "a functional wrapper holds no fake");
  return recorder_->value_of(*fake);
}

Captured TracerImpl::finish(const std::vector<PyObject*>& outputs, std::vector<PyObject*>& inputs) {
  RecordingScope scope(recorder_.get());
  c10::AutoGradMode no_grad(false);
  c10::impl::ExcludeDispatchKeyGuard below(c10::autograd_dispatch_keyset |
                                           c10::DispatchKeySet(c10::DispatchKey::ADInplaceOrView) |
                                           c10::DispatchKeySet(c10::DispatchKey::Functionalize));
  for (PyObject* o : outputs) {
    Py_INCREF(o);
    outputs_.push_back(o);
  }
  graph::Graph& graph = recorder_->graph();
  bool needs_grad = false;
  std::vector<uint32_t> write_counts;
  try {
    write_counts = write_back_mutations(graph);
    for (PyObject* o : outputs) graph.outputs.push_back(output_value(o, needs_grad));
    needs_grad |= !written_with_history_.empty();
  } catch (python_error& e) {  // a graph break met while views were replayed
    e.restore();
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    Reason reason = Reason::TraceFailed;
    std::string detail = e.what();
    is_graph_break_exception(value, &reason, &detail);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    throw Unsupported(reason, detail);
  } catch (const c10::Error& e) {
    throw Unsupported(Reason::TraceFailed, e.what_without_backtrace());
  }
  // What only the torch-level graph reads is an input, too: both graphs have the same.
  std::vector<PyObject*> read;
  calls_.operands([&](PyObject* o) { return by_fake_.count(o) != 0; }, read);
  for (PyObject* fake : read) recorder_->use_slot(lifted_[by_fake_[fake]].slot);

  std::unordered_map<uint32_t, PyObject*> reals;
  for (const Lifted& l : lifted_) reals[l.slot] = l.real;
  std::vector<PyObject*> constants;
  inputs.clear();
  for (size_t i = 0; i < recorder_->input_slots.size(); ++i) {
    uint32_t slot = recorder_->input_slots[i];
    if (auto it = reals.find(slot); it != reals.end()) {
      inputs.push_back(it->second);
    } else {
      PyObject* constant = THPVariable_Wrap(recorder_->slots[slot].real);
      constants.push_back(constant);
      inputs.push_back(constant);
    }
  }
  Captured captured{graph::Graph(graph.shared_arena()), std::move(constants), needs_grad, std::move(write_counts), {}, {}, {}, {}};
  inputs_ = inputs;
  finish_sizes(captured, graph);
  captured.graph = std::move(graph);
  recorder_->close();
  return captured;
}

namespace {

// What owns the memory of a value.
graph::ValueId root_in(const graph::Graph& graph, graph::ValueId v) {
  while (graph.value(v).node.valid()) {
    const graph::Node& n = graph.node(graph.value(v).node);
    auto* operand = n.args.empty() ? nullptr : std::get_if<graph::ValueId>(&n.args[0]);
    if (graph::op_class(n.op) != graph::OpClass::View || !operand) break;
    v = *operand;
  }
  return v;
}

// Memory of inputs and outputs that nodes from `first` on, the backward, read of what was computed before.
void find_reads(const graph::Graph& graph, size_t first, const std::vector<graph::ValueId>& gradients, Gradients& out) {
  std::vector<bool> read(graph.values().size());
  auto note = [&](graph::ValueId v) {
    graph::NodeId by = graph.value(v).node;
    if (!by.valid() || by.index < first) read[root_in(graph, v).index] = true;
  };
  for (size_t i = first; i < graph.nodes().size(); ++i) graph::Graph::for_each_operand(graph.node(graph::NodeId(i)), note);
  for (graph::ValueId v : gradients)
    if (v.valid()) note(v);
  // What was written to an input is in its memory.
  for (const graph::Writeback& w : graph.writebacks)
    if (read[root_in(graph, w.value).index]) read[w.input.index] = true;
  for (uint32_t i = 0; i < graph.inputs.size(); ++i)
    if (read[graph.inputs[i].value.index] && std::find(out.tangents.begin(), out.tangents.end(), i) == out.tangents.end()) out.read_inputs.push_back(i);
  for (uint32_t k = 0; k < out.outputs; ++k)
    if (graph::ValueId v = graph.outputs[k]; v.valid() && read[root_in(graph, v).index]) out.read_outputs.push_back(k);
}

// A result of an autograd.Function on the memory of its operand has a history that views of that memory do not have.
bool is_of_custom_function(const at::Tensor& t) {
  if (!t.requires_grad() || !t.is_view()) return false;
  const torch::autograd::Node* end = torch::autograd::impl::gradient_edge(at::Tensor(t._base())).function.get();
  for (const torch::autograd::Node* n = t.grad_fn().get(); n && n != end; n = n->num_outputs() ? n->next_edge(0).function.get() : nullptr)
    if (std::string_view(typeid(*n).name()) == "N5torch8autograd6PyNodeE") return true;  // PyTorch does not export the class
  return false;
}

bool is_one_of_several(const at::Tensor& t) {
  return t.is_view() && torch::autograd::impl::get_view_autograd_meta(t)->get_creation_meta() == torch::autograd::CreationMeta::MULTI_OUTPUT_NODE;
}

}  // namespace

// What the backward starts from. Outputs on the memory of inputs or of each other become views in Gradients::views: as in
// eager they know their bases, so that writing to one changes the history of the others.
std::vector<at::Tensor> TracerImpl::differentiable_outputs(graph::Graph& graph, Gradients& out) {
  auto root_of = [&](graph::ValueId v) { return root_in(graph, v); };
  struct Group {  // outputs on one memory
    std::vector<uint32_t> members;
    bool differentiable = false;
  };
  std::vector<std::pair<graph::ValueId, Group>> groups;
  std::vector<at::Tensor> roots;
  for (uint32_t i = 0; i < out.results; ++i) {
    if (outputs_[i] == Py_None || !graph.outputs[i].valid()) continue;
    if (is_of_custom_function(THPVariable_Unpack(outputs_[i]))) {
      roots.push_back(THPVariable_Unpack(outputs_[i]));
      out.tangent_of.push_back(i);
      continue;
    }
    graph::ValueId root = root_of(graph.outputs[i]);
    auto it = std::find_if(groups.begin(), groups.end(), [&](auto& g) { return g.first == root; });
    if (it == groups.end()) it = groups.insert(it, {root, {}});
    it->second.members.push_back(i);
    it->second.differentiable |= THPVariable_Unpack(outputs_[i]).requires_grad();
  }
  for (auto& [root, group] : groups) {
    if (!group.differentiable) continue;
    for (uint32_t i : group.members) {
      const at::Tensor& t = THPVariable_Unpack(outputs_[i]);
      if (t.requires_grad() && t.is_leaf() && !by_fake_.count(outputs_[i]))
        throw Unsupported(Reason::UnsupportedTensor, "an output is a leaf that was made inside and requires grad");
    }
    auto tensor = [&](uint32_t i) -> const at::Tensor& { return THPVariable_Unpack(outputs_[i]); };
    auto same_dtype = [&](uint32_t i) {
      if (graph.type(graph.outputs[i]).dtype != graph.type(root).dtype)
        throw Unsupported(Reason::UnsupportedMutation, "outputs with gradients are views of one tensor as different dtypes");
    };
    if (!graph.value(root).node.valid()) {
      for (uint32_t i : group.members) {
        same_dtype(i);
        out.views.push_back({i, graph.value(root).index, true, tensor(i).requires_grad(), is_one_of_several(tensor(i))});
      }
      continue;
    }
    uint32_t first = group.members[0];
    bool one = std::all_of(group.members.begin(), group.members.end(), [&](uint32_t i) { return outputs_[i] == outputs_[first]; });
    if (one) {
      roots.push_back(tensor(first));
      out.tangent_of.push_back(first);
      continue;
    }
    at::Tensor base;
    for (uint32_t i : group.members) {
      same_dtype(i);
      const at::Tensor& t = tensor(i);
      if (!t.requires_grad()) continue;
      at::Tensor b = t.is_view() ? at::Tensor(t._base()) : t;
      if (base.defined() && b.unsafeGetTensorImpl() != base.unsafeGetTensorImpl())
        throw Unsupported(Reason::UnsupportedMutation, "outputs with gradients share memory but not their history");
      base = std::move(b);
    }
    if (functional::isFunctionalTensor(base)) functional::sync(base);
    FakeTensor* fake = unwrap_fake(base);
    if (!fake || !base.requires_grad() || root_of(recorder_->value_of(*fake)) != root || recorder_->value_of(*fake) != root)
      throw Unsupported(Reason::UnsupportedMutation, "outputs with gradients share memory in a way that views do not express");
    auto number = static_cast<uint32_t>(graph.outputs.size());
    graph.outputs.push_back(root);
    roots.push_back(base);
    out.tangent_of.push_back(number);
    for (uint32_t i : group.members) {
      out.views.push_back({i, number, false, tensor(i).requires_grad(), is_one_of_several(tensor(i))});
    }
  }
  // The program writes the data; as an output an input stands for what it then holds.
  for (size_t i : written_with_history_) {
    out.tangent_of.push_back(static_cast<uint32_t>(graph.outputs.size()));
    graph.outputs.push_back(recorder_->use_slot(lifted_[i].slot));
    roots.push_back(THPVariable_Unpack(lifted_[i].fake));
  }
  return roots;
}

Gradients TracerImpl::differentiate(Captured& captured) {
  BRAZE_CHECK(captured.needs_grad, "differentiate() without need");
  recorder_->reopen();
  struct Close {
    Recorder& recorder;
    ~Close() { recorder.close(); }
  } close{*recorder_};
  graph::Graph& graph = recorder_->graph();
  graph = std::move(captured.graph);
  struct HandBack {
    graph::Graph &from, &to;
    ~HandBack() { to = std::move(from); }
  } hand_back{graph, captured.graph};
  // Backwards of the user's are no calls of the torch-level graph.
  struct Inside {
    int& depth;
    ~Inside() { --depth; }
  } inside{++host_depth_};
  // What the backward decided on sizes was put into what the torch-level graph holds, wherever it ended.
  try {
    Gradients out = add_backward(captured, graph);
    finish_sizes(captured, graph);
    return out;
  } catch (const Unsupported&) {
    finish_sizes(captured, graph);
    throw;
  }
}

Gradients TracerImpl::add_backward(Captured& captured, graph::Graph& graph) {
  Gradients out;
  out.results = graph.outputs.size();
  std::vector<at::Tensor> roots = differentiable_outputs(graph, out);
  out.outputs = graph.outputs.size();
  for (uint32_t slot : recorder_->input_slots)
    if (recorder_->slots[slot].kind == graph::InputKind::Constant && recorder_->slots[slot].real.requires_grad())
      throw Unsupported(Reason::UnsupportedTensor, "a tensor that requires grad is met in the middle of a call");
  torch::autograd::edge_list leaves;
  std::unordered_map<uint32_t, uint32_t> input_of;
  for (size_t i = 0; i < recorder_->input_slots.size(); ++i) input_of[recorder_->input_slots[i]] = static_cast<uint32_t>(i);
  for (const Lifted& l : lifted_) {
    const at::Tensor& fake = THPVariable_Unpack(l.fake);
    auto it = input_of.find(l.slot);
    if (!recorder_->slots[l.slot].real.requires_grad() || it == input_of.end()) continue;
    leaves.push_back(l.outer.is_valid() ? l.outer : torch::autograd::impl::gradient_edge(fake));
    out.inputs.push_back(it->second);
  }
  size_t inputs = recorder_->input_slots.size();
  struct Shorten {  // what a backward that could not be traced has added is no input of the forward
    std::vector<uint32_t>& slots;
    std::vector<graph::Input>& graph_inputs;
    size_t size, graph_size;
    bool failed = true;
    ~Shorten() {
      if (!failed) return;
      slots.resize(size);
      graph_inputs.resize(graph_size);
    }
  } on_failure{recorder_->input_slots, graph.inputs, inputs, graph.inputs.size()};
  auto versions = [&] {
    std::vector<uint32_t> of;
    for (const Lifted& l : lifted_) of.push_back(THPVariable_Unpack(l.fake).unsafeGetTensorImpl()->version_counter().current_version());
    return of;
  };
  std::vector<uint32_t> before = versions();
  JointTrace joint;
  joint.gradients.resize(leaves.size());
  size_t first = graph.nodes().size();
  if (!roots.empty()) joint = trace_backward(*recorder_, roots, leaves);
  std::vector<uint32_t> after = versions();
  if (!std::equal(before.begin(), before.end(), after.begin())) throw Unsupported(Reason::UnsupportedMutation, "an input is changed by the backward");
  for (size_t i = inputs; i < recorder_->input_slots.size(); ++i) {
    const auto& slot = recorder_->slots[recorder_->input_slots[i]];
    if (slot.kind != graph::InputKind::Constant) throw Unsupported(Reason::TraceFailed, "the backward reads an input that the forward does not");
    captured.constants.push_back(THPVariable_Wrap(slot.real));
  }
  graph.outputs.insert(graph.outputs.end(), joint.gradients.begin(), joint.gradients.end());
  out.tangents = std::move(joint.tangents);
  find_reads(graph, first, joint.gradients, out);
  on_failure.failed = false;
  return out;
}

}  // namespace

std::unique_ptr<Tracer> Tracer::create(const Options&) {
  initialize();
  return std::make_unique<TracerImpl>();
}

void initialize() { install_recorder(); }

PyObject* size_hint(PyObject* size) {
  pybind11::handle h(size);
  if (!torch::is_symint(h)) return Py_NewRef(size);
  pybind11::object held = pybind11::getattr(h, "node");
  auto* node = pybind11::isinstance<c10::SymNodeImpl>(held) ? dynamic_cast<SizeNode*>(held.cast<c10::SymNodeImpl*>()) : nullptr;
  if (!node || !node->has_hint()) Py_RETURN_NONE;
  return PyLong_FromLongLong(node->hint());
}

}  // namespace braze::trace
