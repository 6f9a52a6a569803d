#include "capture/guards/content.h"

#include <vector>

#include "capture/cpython/imported.h"
#include "capture/cpython/ref.h"

namespace braze::capture {
namespace {

struct Taken {
  Ref object, content;
};
thread_local std::vector<Taken> taken;

Ref of_deque(PyObject* deque) {
  static PyObject* maxlen = PyUnicode_InternFromString("maxlen");
  Ref most = Ref::steal(PyObject_GetAttr(deque, maxlen)), items = Ref::steal(PySequence_Tuple(deque));
  if (!most || !items) return Ref();
  Ref out = Ref::steal(PyTuple_New(PyTuple_GET_SIZE(items.get()) + 1));
  if (!out) return out;
  PyTuple_SET_ITEM(out.get(), 0, most.release());
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items.get()); ++i) PyTuple_SET_ITEM(out.get(), i + 1, Py_NewRef(PyTuple_GET_ITEM(items.get(), i)));
  return out;
}

}  // namespace

PyObject* content_of(PyObject* object) {
  static PyObject* deque = imported("collections", "deque");
  if (reinterpret_cast<PyObject*>(Py_TYPE(object)) != deque) return nullptr;
  for (const Taken& t : taken)
    if (t.object.get() == object) return t.content.get();
  Ref content = of_deque(object);
  if (!content) return PyErr_Clear(), nullptr;
  taken.push_back({Ref::borrow(object), std::move(content)});
  return taken.back().content.get();
}

void forget_contents() {
  if (taken.empty()) return;
  std::vector<Taken> gone;  // letting go of an object may run code
  gone.swap(taken);
}

}  // namespace braze::capture
