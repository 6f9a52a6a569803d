#include "capture/guards/content.h"

#include <vector>

#include "capture/cpython/generator.h"
#include "capture/cpython/imported.h"
#include "capture/cpython/iterators.h"
#include "capture/cpython/ref.h"
#include "capture/guards/array_memory.h"
#include "trace/pytorch/names.h"

namespace braze::capture {
namespace {

struct Taken {
  Ref object, content;

  void abandon() { object.release(), content.release(); }
};
thread_local ThreadMemory<Taken> taken;

Ref of_deque(PyObject* deque) {
  static PyObject* maxlen = PyUnicode_InternFromString("maxlen");
  Ref most = Ref::steal(PyObject_GetAttr(deque, maxlen)), items = Ref::steal(PySequence_Tuple(deque));
  if (!most || !items) return Ref();
  Ref out = Ref::steal(PyTuple_New(PyTuple_GET_SIZE(items.get()) + 1));
  if (!out) return out;
  PyTuple_SET_ITEM(out.get(), 0, most.release());
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items.get()); ++i)
    PyTuple_SET_ITEM(out.get(), i + 1, Py_NewRef(PyTuple_GET_ITEM(items.get(), i)));
  return out;
}

Ref of_generator(PyObject* generator) {
  static PyObject* standard = imported("torch", "default_generator");
  Ref device = Ref::steal(generator == standard ? nullptr : PyObject_GetAttrString(generator, "device"));
  Ref type = Ref::steal(device ? PyObject_GetAttrString(device.get(), "type") : nullptr);
  if (!type || PyUnicode_CompareWithASCIIString(type.get(), "cpu") != 0) return Ref();
  Ref state = Ref::steal(PyObject_CallMethod(generator, "get_state", nullptr));
  return Ref::steal(state ? PyTuple_Pack(1, state.get()) : nullptr);
}

Ref of_thread_local(PyObject* local) {
  Ref dict = Ref::steal(PyObject_GetAttrString(local, "__dict__"));
  return dict && PyDict_CheckExact(dict.get()) ? Ref::steal(PyTuple_Pack(1, dict.get())) : Ref();
}

}  // namespace

PyTypeObject* thread_local_type() {
  static PyObject* type = imported("_thread", "_local");
  return reinterpret_cast<PyTypeObject*>(type);
}

PyObject* content_of(PyObject* object) {
  static PyObject* deque = imported("collections", "deque");
  PyObject* generator = pytorch::get(pytorch::Name::Generator);
  auto* type = reinterpret_cast<PyObject*>(Py_TYPE(object));
  bool local = Py_TYPE(object) == thread_local_type();
  if (type != deque && type != generator && !local && !PyGen_CheckExact(object) &&
      cpython::iterator_family(Py_TYPE(object)) == cpython::IteratorFamily::None)
    return nullptr;
  for (const Taken& t : taken)
    if (t.object.get() == object) return t.content.get();
  Ref content = local                      ? of_thread_local(object)
                : type == deque            ? of_deque(object)
                : type == generator        ? of_generator(object)
                : PyGen_CheckExact(object) ? Ref::steal(cpython::generator_content(object))
                                           : Ref::steal(cpython::iterator_content(object));
  if (!content) return PyErr_Clear(), nullptr;
  taken.push_back({Ref::borrow(object), std::move(content)});
  return taken.back().content.get();
}

void forget_contents() {
  forget_array_tensors();
  if (taken.empty()) return;
  std::vector<Taken> gone;  // letting go of an object may run code
  taken.swap(gone);
}

}  // namespace braze::capture
