#include <ATen/FunctionalTensorWrapper.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "trace/convert.h"
#include "trace/fake_tensor.h"
#include "trace/pytorch/dual_number.h"
#include "trace/pytorch/front_kernels.h"
#include "trace/tracer_impl.h"

namespace braze::trace {

namespace {

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
  if (t.requires_grad() && !c10::isFloatingType(t.scalar_type()) && !c10::isComplexType(t.scalar_type()))
    refuse_tensor("integers that require a gradient, as where a tensor that does was written to them");
  if (!t.has_storage()) refuse_tensor("a tensor without storage");
  if (keys.has(c10::DispatchKey::ZeroTensor)) refuse_tensor("a tensor of zeros without memory");
  if (pytorch::has_tangent(t.unsafeGetTensorImpl())) refuse_tensor("a dual number of forward-mode differentiation");
}

}  // namespace

PyObject* TracerImpl::lift(PyObject* real, graph::InputKind kind, const std::string& name,
                           const std::vector<SymbolicDim>& symbolic) {
  if (auto it = by_real_.find(real); it != by_real_.end()) {
    Py_INCREF(lifted_[it->second].fake);
    return lifted_[it->second].fake;
  }
  check_liftable(real);
  const at::Tensor& tensor = THPVariable_Unpack(real);
  TensorType type = input_type(tensor, symbolic, real);
  auto slot = static_cast<uint32_t>(recorder_->slots.size());
  // What stands for a plain tensor is one, whatever mode it is met in: views of it are.
  std::optional<c10::InferenceMode> mode;
  if (c10::InferenceMode::is_enabled() != tensor.is_inference()) mode.emplace(tensor.is_inference());
  if (tensor.is_inference()) pytorch::take_composites_apart();
  at::Tensor inner = recorder_->lift(tensor, kind, name, std::move(type));
  at::Tensor fake = at::functionalization::impl::to_functional_tensor(inner);
  torch::autograd::Edge outer;
  if (tensor.requires_grad() && tensor.is_leaf())
    fake.set_requires_grad(true);
  else if (tensor.requires_grad())
    outer = set_outer_history(fake);
  mode.reset();
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

PyObject* TracerImpl::lift_int(int64_t value, sym::Range range) {
  SizeEnv& env = *recorder_->sizes();
  sym::Expr symbol = env.add_symbol("n" + std::to_string(ints_), range, value);
  add_place(symbol, nullptr, ints_++);
  return pybind11::cast(sym_int(recorder_->sizes(), symbol)).release().ptr();
}

uint32_t TracerImpl::root_slot(const FakeTensor& fake) const {
  return fake.value().valid() ? recorder_->root_slot(fake.value()) : fake.slot();
}

bool TracerImpl::forgets_offset(PyObject* fake) {
  const at::Tensor& t = THPVariable_Unpack(fake);
  FakeTensor* inner = unwrap_fake(t);
  if (!inner || !t.has_storage() || root_slot(*inner) != FakeTensor::kNoSlot) return false;
  return std::ranges::any_of(lifted_, [&](const Lifted& l) {
    const at::Tensor& real = recorder_->slots[l.slot].real;
    return l.storage == t.storage().unsafeGetStorageImpl() && real.defined() && real.storage_offset() != 0;
  });
}

PyObject* TracerImpl::storage_offset(PyObject* fake) {
  FakeTensor* inner = unwrap_fake(THPVariable_Unpack(fake));
  if (!inner || host_depth_) return nullptr;
  auto offset = inner->sym_storage_offset().maybe_as_int();
  if (!offset) return nullptr;
  uint32_t slot = root_slot(*inner);
  if (slot != FakeTensor::kNoSlot) {
    if (recorder_->slots[slot].kind == graph::InputKind::Constant || !recorder_->slots[slot].real.defined())
      return nullptr;
    recorder_->use_slot(slot);
    recorder_->offset_slots.push_back(slot);
    *offset += recorder_->slots[slot].real.storage_offset();
  } else if (forgets_offset(fake)) {
    return nullptr;
  } else if (inner->value().valid() &&
             graph::op_class(recorder_->graph().node(recorder_->graph().value(inner->value()).node).op) ==
                 graph::OpClass::View) {
    return nullptr;
  }
  return PyLong_FromLongLong(*offset);
}

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
      type.sizes[d] = env.add_unbacked_base(
          s.range, "the size of dimension " + std::to_string(s.dim) + " of an argument that was marked");
      add_place(type.sizes[d], real, s.dim);
      continue;
    }
    type.sizes[d] =
        s.duck ? env.duck_symbol(name, s.range, hint, {hint, s.before}) : env.add_symbol(name, s.range, hint);
    add_place(type.sizes[d], real, s.dim);
  }
  input_strides(type, tensor, stride_symbols, prefix, real);
  for (auto* list : {&type.sizes, &type.strides})  // a shared symbol may have been decided already
    for (sym::Expr& e : *list) e = env.simplify(e);
  return type;
}

void TracerImpl::input_strides(TensorType& type, const at::Tensor& tensor,
                               const std::vector<const SymbolicDim*>& symbols, const std::string& prefix,
                               PyObject* real) {
  SizeEnv& env = *recorder_->sizes();
  sym::ExprArena& arena = recorder_->arena();
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
    } else if (symbols[d]) {
      int64_t hint = tensor.stride(static_cast<int64_t>(d));
      type.strides[d] = env.add_symbol(prefix + "step" + std::to_string(d), symbols[d]->range, hint);
      add_place(type.strides[d], real, ~static_cast<int32_t>(d));
      continue;
    }
    stride_guards_.push_back({arena.eq(read, type.strides[d]), 0});
  }
}

}  // namespace braze::trace
