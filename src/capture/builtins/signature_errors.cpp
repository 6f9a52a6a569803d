#include "capture/builtins/signature_errors.h"

#include <algorithm>

#include "capture/cpython/imported.h"
#include "capture/eval/library_objects.h"
#include "capture/eval/translator.h"

namespace braze::capture {

void raise_if_miscalled(Translator& tr, PyObject* callable, PyTypeObject* owner, const Args& args) {
  static PyObject* signature = imported("inspect", "signature");
  // Of a method, an instance without content stands for self.
  static PyTypeObject* const containers[] = {&PyList_Type,      &PyDict_Type,    &PySet_Type,
                                             &PyFrozenSet_Type, &PyTuple_Type,   &PyUnicode_Type,
                                             &PyBytes_Type,     library().deque, library().ordered_dict};
  Ref self;
  if (owner) {
    if (std::find(std::begin(containers), std::end(containers), owner) == std::end(containers)) return;
    self = Ref::steal(PyObject_CallNoArgs(reinterpret_cast<PyObject*>(owner)));
  }
  auto given = static_cast<Py_ssize_t>(args.size()) + (owner ? 1 : 0);
  Ref pos = Ref::steal(PyTuple_New(given)), kw = Ref::steal(PyDict_New());
  for (Py_ssize_t i = 0; i < given; ++i)
    PyTuple_SET_ITEM(pos.get(), i, Py_NewRef(owner && i == 0 ? self.get() : Py_None));
  for (auto& [name, v] : args.kw) PyDict_SetItem(kw.get(), name, Py_None);
  // Methods without arguments, or with one, say so themselves.
  int flags = PyCFunction_Check(callable) ? PyCFunction_GET_FLAGS(callable)
              : Py_TYPE(callable) == &PyMethodDescr_Type
                  ? reinterpret_cast<PyMethodDescrObject*>(callable)->d_method->ml_flags
                  : 0;
  bool fixed = flags & (METH_NOARGS | METH_O);
  if (fixed && args.size() == (flags & METH_O ? 1u : 0u) && args.kw.empty()) return;
  if (fixed) {
    Ref result = Ref::steal(PyObject_Call(callable, pos.get(), kw.get()));
    if (!result && PyErr_ExceptionMatches(PyExc_TypeError)) tr.raise_current();
    PyErr_Clear();
    return;
  }
  Ref known_signature = Ref::steal(PyObject_CallOneArg(signature, callable));
  Ref bind = known_signature ? Ref::steal(native::attr(Ground::fixed(), known_signature.get(), "bind")) : Ref();
  Ref bound = bind ? Ref::steal(PyObject_Call(bind.get(), pos.get(), kw.get())) : Ref();
  bool miscalled = !bound && bind && PyErr_ExceptionMatches(PyExc_TypeError);
  PyErr_Clear();
  if (!miscalled) return;
  Ref result = Ref::steal(PyObject_Call(callable, pos.get(), kw.get()));
  if (!result && PyErr_ExceptionMatches(PyExc_TypeError)) tr.raise_current();
  PyErr_Clear();
}

}  // namespace braze::capture
