#include "capture/vars/host.h"

#include "capture/cpython/imported.h"
#include "capture/eval/open_sizes.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"

namespace braze::capture {

std::string HostVariable::describe() const {
  return std::string("an object of class ") + Py_TYPE(object.get())->tp_name + " that PyTorch made for the capture";
}

Variable* HostVariable::getattr(Translator& tr, PyObject* name) {
  for (auto& [key, value] : attributes)
    if (PyUnicode_Compare(key, name) == 0) return value;
  if (PyUnicode_CompareWithASCIIString(name, "set_materialize_grads") == 0) ++tr.host.undefined_gradients;
  Ref v = Ref::steal(native::attr(Ground::made(), object.get(), name));
  if (!v) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) tr.raise_current();
    PyErr_Clear();
    return nullptr;
  }
  // Of Tensor.ndim.__get__ and the like, which PyTorch names what it asks for by.
  if (Py_TYPE(object.get()) == method_wrapper_type() && PyUnicode_CompareWithASCIIString(name, "__self__") == 0)
    return tr.global_object(v.get(), Ground::fixed());
  // Methods of what PyTorch made: called for real.
  if (PyCFunction_Check(v.get()) && PyCFunction_GET_SELF(v.get()) == object.get())
    return tr.host.host_object(std::move(v));
  return tr.host.from_host(std::move(v));
}

void HostVariable::setattr(Translator& tr, PyObject* name, Variable* value) {
  tr.mutate();
  tr.effects.modified(this);
  for (size_t i = 0; i < attributes.size(); ++i)
    if (PyUnicode_Compare(attributes[i].first, name) == 0) {
      attributes.erase(attributes.begin() + static_cast<long>(i));
      break;
    }
  if (!value) {
    if (PyObject_DelAttr(object.get(), name) < 0) PyErr_Clear();
    return;
  }
  value = tr.force(value);
  // What PyTorch itself reads from the object must be real; the rest keeps what is known of it.
  if (tr.real.is_python_constant(value) || value->is(Kind::Host) || value->is(Kind::Tensor)) {
    Ref real = [&] {
      OpenSizes open(true);
      return tr.real.to_python(value);
    }();
    if (PyObject_SetAttr(object.get(), name, real.get()) < 0) tr.raise_current();
    if (!value->is(Kind::List) && !value->is(Kind::Dict) && !value->is(Kind::Set)) return;
  }
  tr.keep(Ref::borrow(name));
  attributes.emplace_back(name, value);
}

Variable* HostVariable::call(Translator& tr, Args& args) {
  if (Py_TYPE(object.get()) == method_wrapper_type())
    return tr.real.call_torch(object.get(), args);  // Tensor.shape.__get__ and the like
  // On a node of autograd's graph.
  if (PyCFunction_Check(object.get()) && !tr.host.hook) {
    const std::string_view name = reinterpret_cast<PyCFunctionObject*>(object.get())->m_ml->ml_name;
    if (name == "register_hook" || name == "register_prehook") tr.host.hook = tr.ordinal();
  }
  return tr.host.call(object.get(), args);
}

Variable* HostVariable::getitem(Translator& tr, Variable* key) {
  Ref k = tr.real.to_python(key);
  Ref v = Ref::steal(PyObject_GetItem(object.get(), k.get()));
  if (!v) tr.raise_current();
  return tr.host.from_host(std::move(v));
}

}  // namespace braze::capture
