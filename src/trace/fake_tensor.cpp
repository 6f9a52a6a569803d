#include "trace/fake_tensor.h"

#include <ATen/FunctionalTensorWrapper.h>

#include "base/check.h"
#include "trace/convert.h"
#include "trace/recorder.h"
#include "trace/symnode.h"

namespace braze::trace {
namespace {

c10::DispatchKeySet keys_for(Device device) {
  switch (device.type) {
    case DeviceType::CPU: return c10::DispatchKeySet(c10::DispatchKey::CPU).add(kFakeKey);
    case DeviceType::CUDA: return c10::DispatchKeySet(c10::DispatchKey::CUDA).add(kFakeKey);
    case DeviceType::Meta: return c10::DispatchKeySet(c10::DispatchKey::Meta).add(kFakeKey);
    case DeviceType::Other: break;
  }
  throw InternalError("a fake tensor on an unknown device");
}

bool all_const(const sym::ExprArena& arena, const TensorType& type) {
  auto known = [&](sym::Expr e) { return arena.as_const(e).has_value(); };
  return std::all_of(type.sizes.begin(), type.sizes.end(), known) &&
         std::all_of(type.strides.begin(), type.strides.end(), known) && known(type.offset);
}

}  // namespace

FakeTensor::FakeTensor(std::shared_ptr<Recorder> recorder, graph::ValueId value, uint32_t slot,
                       c10::DispatchKeySet keys, caffe2::TypeMeta dtype, c10::Device device)
    : TensorImpl(keys, dtype, device), recorder_(std::move(recorder)), value_(value), slot_(slot) {}

template <class Version>
c10::intrusive_ptr<c10::TensorImpl> FakeTensor::copy(Version&& version, bool allow_change) const {
  auto result = c10::make_intrusive<FakeTensor>(recorder_, value_, slot_, key_set(), dtype(), device());
  copy_tensor_metadata(this, result.get(), std::forward<Version>(version), allow_change);
  return result;
}

c10::intrusive_ptr<c10::TensorImpl> FakeTensor::shallow_copy_and_detach(const c10::VariableVersion& version,
                                                                        bool allow_change) const {
  return copy(version, allow_change);
}

c10::intrusive_ptr<c10::TensorImpl> FakeTensor::shallow_copy_and_detach(c10::VariableVersion&& version,
                                                                        bool allow_change) const {
  return copy(std::move(version), allow_change);
}

void FakeTensor::shallow_copy_from(const c10::intrusive_ptr<c10::TensorImpl>& impl) {
  auto* other = dynamic_cast<FakeTensor*>(impl.get());
  BRAZE_CHECK(other, "the data of a fake tensor is set to those of a real one");
  copy_tensor_metadata(other, this, version_counter(), allow_tensor_metadata_change());
  value_ = other->value_;
  slot_ = other->slot_;
}

FakeTensor* as_fake(const at::Tensor& tensor) {
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  auto keys = impl->key_set();
  if (!keys.has(kFakeKey) || keys.has(c10::DispatchKey::Functionalize)) return nullptr;
  return dynamic_cast<FakeTensor*>(impl);
}

FakeTensor* unwrap_fake(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.unsafeGetTensorImpl()->key_set().has(kFakeKey)) return nullptr;
  if (at::functionalization::impl::isFunctionalTensor(tensor))
    return unwrap_fake(at::functionalization::impl::unsafeGetFunctionalWrapper(tensor)->value());
  return as_fake(tensor);
}

at::Tensor make_fake(const std::shared_ptr<Recorder>& recorder, graph::ValueId value, uint32_t slot,
                     const TensorType& type) {
  auto impl =
      c10::make_intrusive<FakeTensor>(recorder, value, slot, keys_for(type.device),
                                      c10::scalarTypeToTypeMeta(scalar_type(type.dtype)), torch_device(type.device));
  const sym::ExprArena& arena = recorder->arena();
  size_t dim = type.dim();
  if (all_const(arena, type)) {
    c10::SmallVector<int64_t, 6> sizes(dim), strides(dim);
    for (size_t i = 0; i < dim; ++i) {
      sizes[i] = *arena.as_const(type.sizes[i]);
      strides[i] = *arena.as_const(type.strides[i]);
    }
    impl->set_sizes_and_strides(sizes, strides, *arena.as_const(type.offset));
  } else {
    c10::SmallVector<c10::SymInt, 6> sizes, strides;
    for (size_t i = 0; i < dim; ++i) {
      sizes.push_back(sym_int(recorder->sizes(), type.sizes[i]));
      strides.push_back(sym_int(recorder->sizes(), type.strides[i]));
    }
    impl->set_sizes_and_strides(sizes, strides, sym_int(recorder->sizes(), type.offset));
  }
  return at::Tensor(std::move(impl));
}

}  // namespace braze::trace
