// Tensor guards: what a compiled graph assumed about each input, compared on every call.
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <sstream>

#include "base/check.h"
#include "launch/tensor_spec.h"
#include "trace/pytorch/dual_number.h"

namespace braze::launch {

struct TensorSpec {
  PyTypeObject* type = nullptr;  // owned
  uint64_t keys = 0;
  caffe2::TypeMeta dtype;
  c10::Device device{c10::kCPU};
  bool requires_grad = false, leaf = true, tangent = false;
  size_t dim = 0;
  std::vector<int64_t> geometry;  // sizes, then strides

  TensorSpec() = default;
  TensorSpec(const TensorSpec&) = delete;
  TensorSpec& operator=(const TensorSpec&) = delete;
  ~TensorSpec() { Py_XDECREF(type); }
};

namespace {

constexpr int64_t kOpen = INT64_MIN;  // a size or stride that guards on sizes look at

bool agree(c10::IntArrayRef now, c10::IntArrayRef expected) {
  return now.size() == expected.size() && std::equal(now.begin(), now.end(), expected.begin(),
                                                     [](int64_t a, int64_t b) { return a == b || b == kOpen; });
}

const torch::autograd::AutogradMeta* autograd_meta(const c10::TensorImpl* impl) {
  return static_cast<const torch::autograd::AutogradMeta*>(impl->autograd_meta());
}

// As TensorImpl::requires_grad, whose virtual function is called only where these fields do not decide it: a view that
// has no history of its own requires gradients if its base does.
bool requires_grad(const c10::TensorImpl* impl) {
  auto* meta = autograd_meta(impl);
  return meta && (meta->requires_grad_ || meta->grad_fn_ || meta->requires_grad());
}

// History matters only where gradients flow: a leaf that requires grad cannot be written in place.
bool is_leaf(const c10::TensorImpl* impl) {
  auto* meta = autograd_meta(impl);
  return !meta || !meta->grad_fn_;
}

template <class Range>
std::string list(const Range& values) {
  std::ostringstream out;
  out << "(";
  bool first = true;
  for (int64_t v : values) {
    out << (first ? "" : ", ");
    if (v == kOpen)
      out << "any";
    else
      out << v;
    first = false;
  }
  out << ")";
  return out.str();
}

}  // namespace

int64_t read_size(PyObject* tensor, int32_t dim) {
  const c10::TensorImpl* impl = THPVariable_Unpack(tensor).unsafeGetTensorImpl();
  if (dim == trace::kStorageOffset) return impl->storage_offset();
  return dim >= 0 ? impl->sizes()[static_cast<size_t>(dim)] : impl->strides()[static_cast<size_t>(~dim)];
}

std::vector<int64_t> geometry(PyObject* tensor) {
  const c10::TensorImpl* impl = THPVariable_Unpack(tensor).unsafeGetTensorImpl();
  std::vector<int64_t> out;
  if (impl->layout() != c10::kStrided || impl->key_set().has(c10::DispatchKey::NestedTensor) ||
      impl->has_symbolic_sizes_strides())
    return out;
  auto sizes = impl->sizes(), strides = impl->strides();
  out.assign(sizes.begin(), sizes.end());
  out.insert(out.end(), strides.begin(), strides.end());
  return out;
}

std::shared_ptr<const TensorSpec> snapshot(PyObject* tensor, const std::vector<trace::SymbolicDim>& symbolic) {
  BRAZE_CHECK(THPVariable_Check(tensor), "snapshot of an object that is no tensor");
  const c10::TensorImpl* impl = THPVariable_Unpack(tensor).unsafeGetTensorImpl();
  auto spec = std::make_shared<TensorSpec>();
  spec->type = Py_TYPE(tensor);
  Py_INCREF(spec->type);
  spec->keys = impl->key_set().raw_repr();
  spec->dtype = impl->dtype();
  spec->device = impl->device();
  spec->requires_grad = impl->requires_grad();
  spec->leaf = !spec->requires_grad || is_leaf(impl);
  spec->tangent = pytorch::has_tangent(impl);
  if (impl->layout() == c10::kStrided && !impl->key_set().has(c10::DispatchKey::NestedTensor)) {
    auto sizes = impl->sizes(), strides = impl->strides();
    spec->dim = sizes.size();
    spec->geometry.assign(sizes.begin(), sizes.end());
    spec->geometry.insert(spec->geometry.end(), strides.begin(), strides.end());
    for (const trace::SymbolicDim& s : symbolic)
      if (s.dim >= 0 && static_cast<size_t>(s.dim) < spec->dim) spec->geometry[static_cast<size_t>(s.dim)] = kOpen;
    if (!symbolic.empty())
      std::fill(spec->geometry.begin() + static_cast<ptrdiff_t>(spec->dim), spec->geometry.end(), kOpen);
  }
  return spec;
}

// Once per parameter and call: the accessors are to be inlined.
__attribute__((flatten)) bool matches(const TensorSpec& spec, PyObject* tensor) {
  if (Py_TYPE(tensor) != spec.type) return false;
  const c10::TensorImpl* impl = THPVariable_Unpack(tensor).unsafeGetTensorImpl();
  if (impl->key_set().raw_repr() != spec.keys || impl->dtype() != spec.dtype || impl->device() != spec.device)
    return false;
  if (requires_grad(impl) != spec.requires_grad || (spec.requires_grad && is_leaf(impl) != spec.leaf) ||
      pytorch::has_tangent(impl) != spec.tangent)
    return false;
  if (spec.geometry.empty() && (impl->layout() != c10::kStrided || impl->key_set().has(c10::DispatchKey::NestedTensor)))
    return true;  // never compiled, only told apart
  auto sizes = impl->sizes();
  if (sizes.size() != spec.dim) return false;
  const int64_t* expected = spec.geometry.data();
  const int64_t* strides = impl->strides().data();
  for (size_t i = 0; i < spec.dim; ++i)
    if ((sizes[i] != expected[i] && expected[i] != kOpen) ||
        (strides[i] != expected[spec.dim + i] && expected[spec.dim + i] != kOpen))
      return false;
  return true;
}

PyTypeObject* class_of(const TensorSpec& spec) { return spec.type; }

void pack(ByteWriter& out, const TensorSpec& spec) {
  out.number(spec.keys);
  out.number(static_cast<uint64_t>(spec.dtype.toScalarType()));
  out.text(spec.device.str());
  for (bool flag : {spec.requires_grad, spec.leaf, spec.tangent}) out.number(flag);
  out.number(spec.dim);
  out.number(spec.geometry.size());
  for (int64_t n : spec.geometry) out.integer(n);
}

std::shared_ptr<const TensorSpec> unpack_spec(ByteReader& in, PyTypeObject* type) {
  auto spec = std::make_shared<TensorSpec>();
  spec->type = type;
  Py_INCREF(type);
  spec->keys = in.number();
  const auto dtype = static_cast<c10::ScalarType>(in.number(static_cast<uint64_t>(c10::ScalarType::NumOptions) - 1));
  spec->dtype = c10::scalarTypeToTypeMeta(dtype);
  spec->device = c10::Device(in.text());
  for (bool* flag : {&spec->requires_grad, &spec->leaf, &spec->tangent}) *flag = in.number(1) != 0;
  spec->dim = static_cast<size_t>(in.number());
  spec->geometry.resize(in.count());
  for (int64_t& n : spec->geometry) n = in.integer();
  if (!spec->geometry.empty() && spec->geometry.size() != 2 * spec->dim) damaged("a tensor's sizes");
  return spec;
}

std::string describe_mismatch(const TensorSpec& spec, PyObject* tensor) {
  auto differ = [](const char* what, const std::string& expected, const std::string& got) {
    return std::string(what) + " is " + got + ", compiled for " + expected;
  };
  if (Py_TYPE(tensor) != spec.type) return differ("class", spec.type->tp_name, Py_TYPE(tensor)->tp_name);
  const c10::TensorImpl* impl = THPVariable_Unpack(tensor).unsafeGetTensorImpl();
  if (impl->dtype() != spec.dtype)
    return differ("dtype", std::string(spec.dtype.name()), std::string(impl->dtype().name()));
  if (impl->device() != spec.device) return differ("device", spec.device.str(), impl->device().str());
  if (impl->requires_grad() != spec.requires_grad)
    return differ("requires_grad", spec.requires_grad ? "True" : "False", spec.requires_grad ? "False" : "True");
  if (spec.requires_grad && is_leaf(impl) != spec.leaf)
    return differ("is_leaf", spec.leaf ? "True" : "False", spec.leaf ? "False" : "True");
  if (pytorch::has_tangent(impl) != spec.tangent)
    return differ("a tangent of forward-mode differentiation", spec.tangent ? "there" : "not there",
                  spec.tangent ? "not there" : "there");
  if (impl->key_set().raw_repr() != spec.keys)
    return differ("dispatch keys", c10::toString(c10::DispatchKeySet(c10::DispatchKeySet::RAW, spec.keys)),
                  c10::toString(impl->key_set()));
  if (impl->layout() != c10::kStrided || impl->key_set().has(c10::DispatchKey::NestedTensor))
    return {};  // they have no sizes
  c10::IntArrayRef sizes(spec.geometry.data(), spec.dim), strides(spec.geometry.data() + spec.dim, spec.dim);
  if (!agree(impl->sizes(), sizes)) return differ("size", list(sizes), list(impl->sizes()));
  if (!agree(impl->strides(), strides)) return differ("strides", list(strides), list(impl->strides()));
  return {};
}

}  // namespace braze::launch
