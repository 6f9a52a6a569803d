#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/CPUAllocator.h>

#include <cstring>

#include "launch/extern.h"

namespace braze::launch {

ViewSpec::ViewSpec(const runtime::Program& program, const loop::View& view) {
  if (!view.buffer.valid()) return;
  const plan::Plan& plan = program.plan();
  buffer = view.buffer.index;
  const plan::Buffer& b = plan.buffers.at(buffer);
  where = b.where;
  dtype = trace::scalar_type(view.dtype);
  device = trace::torch_device(b.device);
  input = b.index;
  for (sym::Expr e : view.sizes) sizes.push_back(program.slot(e));
  for (sym::Expr e : view.strides) strides.push_back(program.slot(e));
  offset = program.slot(view.offset);
  bool owner_is_tensor = where == plan::Where::Input || where == plan::Where::Adopted;
  whole = owner_is_tensor && view.dtype == b.dtype && view.sizes == b.sizes && view.strides == b.strides &&
          plan.arena->is_const(view.offset, 0);
}

void Geometry::read(const ViewSpec& spec, const runtime::Frame& frame) {
  sizes.clear();
  strides.clear();
  offset = frame.value(spec.offset);
  int64_t last = offset;
  bool empty = false;
  for (size_t d = 0; d < spec.sizes.size(); ++d) {
    sizes.push_back(frame.value(spec.sizes[d]));
    strides.push_back(frame.value(spec.strides[d]));
    empty |= sizes[d] == 0;
    last += (sizes[d] - 1) * strides[d];
  }
  bytes = empty ? 0 : (last + 1) * c10::elementSize(spec.dtype);
}

at::Tensor tensor_on(c10::Storage storage, c10::IntArrayRef sizes, c10::IntArrayRef strides, int64_t offset,
                     c10::ScalarType dtype) {
  c10::DispatchKeySet keys(storage.device().is_cuda() ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU);
  at::Tensor t = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), keys, c10::scalarTypeToTypeMeta(dtype));
  t.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return t;
}

at::Tensor aligned_copy(const at::Tensor& t, bool with_gaps) {
  if (!with_gaps) return at::empty_strided(t.sizes(), t.strides(), t.options()).copy_(t);
  int64_t elements = 1;
  for (int64_t d = 0; d < t.dim(); ++d) elements += (t.size(d) - 1) * t.stride(d);
  at::Tensor memory = tensor_on(t.storage(), {elements}, {1}, t.storage_offset(), t.scalar_type()).clone();
  return tensor_on(memory.storage(), t.sizes(), t.strides(), 0, t.scalar_type());
}

at::Tensor wrap_memory(void* data, const Geometry& g, c10::ScalarType dtype, c10::Device device) {
  c10::Storage storage(c10::Storage::use_byte_size_t(), g.bytes, c10::DataPtr(data, device), nullptr, false);
  return tensor_on(std::move(storage), g.sizes, g.strides, g.offset, dtype);
}

const at::Tensor& WrappedView::get(const ViewSpec& spec, const runtime::Frame& frame, const TorchFrame& call) {
  if (spec.whole) return spec.where == plan::Where::Input ? *call.inputs[spec.input] : call.adopted[spec.buffer];
  void* data = frame.pointer(spec.buffer);
  if (generation_ == frame.generation() && tensor_.defined()) {
    if (data != data_) {
      tensor_.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(c10::DataPtr(data, spec.device));
      data_ = data;
    }
    return tensor_;
  }
  Geometry g;
  g.read(spec, frame);
  tensor_ = wrap_memory(data, g, spec.dtype, spec.device);
  data_ = data;
  generation_ = frame.generation();
  bytes_ = g.bytes;
  return tensor_;
}

namespace {
bool is_held_elsewhere(size_t references, const c10::impl::PyObjectSlot& python) {
  if (!python.load_pyobj()) return references > 1;
  return references > 2 || !python.has_unique_reference();
}
}  // namespace

bool is_held_elsewhere(const at::Tensor& t) {
  if (is_held_elsewhere(t.use_count(), *t.unsafeGetTensorImpl()->pyobj_slot()) || !t.has_storage()) return true;
  return is_held_elsewhere(t.storage().use_count(), *t.storage().unsafeGetStorageImpl()->pyobj_slot());
}

void WrappedView::let_go_if_kept() {
  if (!tensor_.defined()) return;
  if (!is_held_elsewhere(tensor_)) {
    // Weak references to what Python code has seen end here.
    if (tensor_.unsafeGetTensorImpl()->pyobj_slot()->load_pyobj() ||
        tensor_.storage().unsafeGetStorageImpl()->pyobj_slot()->load_pyobj())
      tensor_ = at::Tensor();
    return;
  }
  if (!tensor_.device().is_cpu()) {
    // On the stream that wrote it.
    at::Tensor bytes = at::empty({static_cast<int64_t>(bytes_)}, tensor_.options().dtype(at::kByte));
    Geometry all;
    all.sizes = {static_cast<int64_t>(bytes_)};
    all.strides = {1};
    all.bytes = bytes_;
    bytes.copy_(wrap_memory(data_, all, at::kByte, tensor_.device()));
    c10::DataPtr kept = bytes.storage().unsafeGetStorageImpl()->set_data_ptr(c10::DataPtr(nullptr, tensor_.device()));
    tensor_.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(kept));
    tensor_ = at::Tensor();
    return;
  }
  c10::DataPtr copy = c10::GetCPUAllocator()->allocate(bytes_);
  std::memcpy(copy.get(), data_, bytes_);
  tensor_.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(copy));
  tensor_ = at::Tensor();
}

void* stand_in(at::Tensor& kept, c10::IntArrayRef sizes, c10::IntArrayRef strides, const at::TensorOptions& options) {
  int64_t reach = 64;
  for (size_t d = 0; d < sizes.size(); ++d) reach += std::max<int64_t>(sizes[d], 1) * std::max<int64_t>(strides[d], 1);
  if (!kept.defined() || kept.numel() < 2 * reach) kept = at::zeros({2 * reach}, options);
  return static_cast<std::byte*>(kept.mutable_data_ptr()) + static_cast<size_t>(reach) * kept.itemsize();
}

c10::DispatchKeySet keys_above_region() {
  using c10::DispatchKey;
  return c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset |
         c10::DispatchKeySet({DispatchKey::Functionalize, DispatchKey::Python, DispatchKey::PythonTLSSnapshot,
                              DispatchKey::PreDispatch, DispatchKey::FuncTorchBatched, DispatchKey::FuncTorchVmapMode,
                              DispatchKey::Batched, DispatchKey::VmapMode, DispatchKey::FuncTorchGradWrapper,
                              DispatchKey::FuncTorchDynamicLayerFrontMode, DispatchKey::FuncTorchDynamicLayerBackMode});
}

}  // namespace braze::launch
