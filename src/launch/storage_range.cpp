#include "launch/storage_range.h"

#include <torch/csrc/autograd/python_variable.h>

namespace braze::launch {

StorageRange storage_range(PyObject* tensor) {
  if (!tensor || !THPVariable_Check(tensor)) return {};
  const c10::TensorImpl* impl = THPVariable_Unpack(tensor).unsafeGetTensorImpl();
  if (!impl->has_storage()) return {};
  const c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  if (!storage || !storage->data()) return {};
  auto from = reinterpret_cast<uintptr_t>(storage->data());
  return {from, from + storage->nbytes()};
}

}  // namespace braze::launch
