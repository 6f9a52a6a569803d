#include "capture/guards/array_memory.h"

#include <vector>

#include "capture/cpython/ref.h"

namespace braze::capture {
namespace {

struct Made {
  Ref array, tensor;

  void abandon() { array.release(), tensor.release(); }
};
thread_local ThreadMemory<Made> made;

PyObject* loaded(const char* module, const char* name) {
  static PyObject* modules = PySys_GetObject("modules");
  PyObject* m = modules ? PyDict_GetItemString(modules, module) : nullptr;
  PyObject* o = m ? PyObject_GetAttrString(m, name) : nullptr;
  if (!o) PyErr_Clear();
  return o;
}

}  // namespace

PyTypeObject* array_type() {
  static PyTypeObject* type = nullptr;
  if (!type) type = reinterpret_cast<PyTypeObject*>(loaded("numpy", "ndarray"));
  return type;
}

PyObject* array_tensor(PyObject* array) {
  if (Py_TYPE(array) != array_type()) return nullptr;
  for (const Made& m : made)
    if (m.array.get() == array) return m.tensor.get();
  Py_buffer memory;
  if (PyObject_GetBuffer(array, &memory, PyBUF_WRITABLE | PyBUF_STRIDES) < 0) return PyErr_Clear(), nullptr;
  bool empty = memory.len == 0;
  PyBuffer_Release(&memory);
  static PyObject* from_numpy = loaded("torch", "from_numpy");
  Ref tensor = Ref::steal(PyObject_CallOneArg(from_numpy, array));
  // NumPy says that arrays without elements have strides of zero: no tensor of PyTorch's own is like that.
  if (tensor && empty)
    tensor = Ref::steal(PyObject_CallMethod(tensor.get(), "new_empty", "O",
                                            Ref::steal(PyObject_GetAttrString(tensor.get(), "shape")).get()));
  if (!tensor) return PyErr_Clear(), nullptr;
  made.push_back({Ref::borrow(array), std::move(tensor)});
  return made.back().tensor.get();
}

void forget_array_tensors() {
  if (made.empty()) return;
  std::vector<Made> gone;  // releasing an array may run code
  made.swap(gone);
}

}  // namespace braze::capture
