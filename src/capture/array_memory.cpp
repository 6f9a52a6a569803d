#include "capture/array_memory.h"

#include <vector>

#include "capture/ref.h"

namespace braze::capture {
namespace {

struct Made {
  PyObject* array;  // held by the tensor
  Ref tensor;
};
thread_local std::vector<Made> made;

PyObject* imported(const char* module, const char* name) {
  static PyObject* modules = PySys_GetObject("modules");
  PyObject* m = modules ? PyDict_GetItemString(modules, module) : nullptr;
  PyObject* o = m ? PyObject_GetAttrString(m, name) : nullptr;
  if (!o) PyErr_Clear();
  return o;
}

}  // namespace

PyTypeObject* array_type() {
  static PyTypeObject* type = nullptr;
  if (!type) type = reinterpret_cast<PyTypeObject*>(imported("numpy", "ndarray"));
  return type;
}

PyObject* array_tensor(PyObject* array) {
  if (Py_TYPE(array) != array_type()) return nullptr;
  for (const Made& m : made)
    if (m.array == array) return m.tensor.get();
  Py_buffer memory;
  if (PyObject_GetBuffer(array, &memory, PyBUF_WRITABLE | PyBUF_STRIDES) < 0) return PyErr_Clear(), nullptr;
  PyBuffer_Release(&memory);
  static PyObject* from_numpy = imported("torch", "from_numpy");
  Ref tensor = Ref::steal(PyObject_CallOneArg(from_numpy, array));
  if (!tensor) return PyErr_Clear(), nullptr;
  made.push_back({array, std::move(tensor)});
  return made.back().tensor.get();
}

void forget_array_tensors() {
  if (made.empty()) return;
  std::vector<Made> gone;  // releasing an array may run code
  gone.swap(made);
}

}  // namespace braze::capture
