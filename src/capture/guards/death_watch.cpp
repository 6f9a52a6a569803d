#include "capture/guards/death_watch.h"

#include <algorithm>
#include <utility>

namespace braze::capture {

DeathWatch::DeathWatch(std::function<void(size_t)> died)
    : died_(std::move(died)), itself_(std::make_shared<DeathWatch*>(this)) {}

DeathWatch::~DeathWatch() {
  *itself_ = nullptr;
  clear();
}

void DeathWatch::clear() {
  std::vector<Ref> gone;
  gone.swap(references_);
}

PyObject* DeathWatch::tell(PyObject* watch, PyObject* weakref) {
  auto* itself = static_cast<std::shared_ptr<DeathWatch*>*>(PyCapsule_GetPointer(watch, nullptr));
  if (!itself) return nullptr;
  if (DeathWatch* w = **itself) {
    // The watch, which owns the reference, may go meanwhile.
    Ref hold = Ref::borrow(weakref);
    std::function<void(size_t)> died = w->died_;
    auto at =
        std::find_if(w->references_.begin(), w->references_.end(), [&](const Ref& r) { return r.get() == weakref; });
    if (at != w->references_.end()) died(static_cast<size_t>(at - w->references_.begin()));
  }
  Py_RETURN_NONE;
}

void DeathWatch::let_go(PyObject* weakref) {
  PyObject* callback = reinterpret_cast<PyWeakReference*>(weakref)->wr_callback;
  if (!callback || !PyCFunction_Check(callback) || PyCFunction_GetFunction(callback) != tell) return;
  Ref hold = Ref::borrow(callback), reference = Ref::borrow(weakref);
  PyObject* watch = PyCFunction_GetSelf(callback);
  Ref::steal(tell(watch, weakref));
  auto* itself = static_cast<std::shared_ptr<DeathWatch*>*>(PyCapsule_GetPointer(watch, nullptr));
  if (!*itself || !**itself) return;
  std::vector<Ref>& held = (**itself)->references_;
  auto at = std::find_if(held.begin(), held.end(), [&](const Ref& r) { return r.get() == weakref; });
  if (at != held.end()) *at = {};
}

bool DeathWatch::add(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (!PyType_SUPPORTS_WEAKREFS(type)) return false;
  if (PyType_Check(object) && !(reinterpret_cast<PyTypeObject*>(object)->tp_flags & Py_TPFLAGS_HEAPTYPE)) return false;
  if (!callback_) {
    static PyMethodDef method{"tell", tell, METH_O, nullptr};
    auto release = [](PyObject* capsule) {
      delete static_cast<std::shared_ptr<DeathWatch*>*>(PyCapsule_GetPointer(capsule, nullptr));
    };
    Ref capsule = Ref::steal(PyCapsule_New(new std::shared_ptr<DeathWatch*>(itself_), nullptr, release));
    callback_ = Ref::steal(PyCFunction_New(&method, capsule.get()));
  }
  Ref reference = Ref::steal(PyWeakref_NewRef(object, callback_.get()));
  if (!reference) return PyErr_Clear(), false;
  references_.push_back(std::move(reference));
  return true;
}

}  // namespace braze::capture
