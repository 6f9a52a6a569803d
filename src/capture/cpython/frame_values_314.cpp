// CPython 3.14: a frame's slots hold tagged words: an object that the frame owns, one that somebody else keeps alive,
// nothing, or a number.
#include <Python.h>

#if PY_VERSION_HEX >= 0x030E0000 && PY_VERSION_HEX < 0x030F0000
#define Py_BUILD_CORE
#include <internal/pycore_code.h>
#include <internal/pycore_frame.h>
#include <internal/pycore_interpframe.h>

#include <utility>
#include <vector>

#include "capture/cpython/frame.h"

namespace braze::capture::cpython {
namespace {

// The interpreter has the mark of an instruction on its stack as a tagged number, which is no object. Here one object
// stands for each; it is known by its address, and a number that no program has.
constexpr long long kMark = 1LL << 62;

std::vector<PyObject*>& marks() {
  static auto* all = new std::vector<PyObject*>;
  return *all;
}

PyObject* mark(size_t unit) {
  for (size_t next = marks().size(); next <= unit; ++next)
    marks().push_back(PyLong_FromLongLong(kMark + static_cast<long long>(next)));
  return marks()[unit];
}

// -1: it is none.
Py_ssize_t marked(PyObject* o) {
  if (!PyLong_CheckExact(o) || PyUnstable_Long_IsCompact(reinterpret_cast<PyLongObject*>(o))) return -1;
  int overflow = 0;
  long long unit = PyLong_AsLongLongAndOverflow(o, &overflow) - kMark;
  bool known = !overflow && unit >= 0 && unit < static_cast<long long>(marks().size());
  return known && marks()[static_cast<size_t>(unit)] == o ? static_cast<Py_ssize_t>(unit) : -1;
}

}  // namespace

PyCodeObject* code(Frame* f) { return reinterpret_cast<PyCodeObject*>(PyStackRef_AsPyObjectBorrow(f->f_executable)); }
PyObject* function(Frame* f) {
  return PyStackRef_IsNull(f->f_funcobj) ? nullptr : PyStackRef_AsPyObjectBorrow(f->f_funcobj);
}
PyObject* slot(Frame* f, int i) {
  _PyStackRef s = f->localsplus[i];
  if (PyStackRef_IsTaggedInt(s)) return mark(static_cast<size_t>(PyStackRef_UntagInt(s)));
  return PyStackRef_IsNull(s) ? nullptr : PyStackRef_AsPyObjectBorrow(s);
}
// The word may borrow from another frame what it holds, as it does of objects that never end.
Ref take_slot(Frame* f, int i) {
  _PyStackRef s = std::exchange(f->localsplus[i], PyStackRef_NULL);
  if (PyStackRef_IsTaggedInt(s)) return Ref::borrow(mark(static_cast<size_t>(PyStackRef_UntagInt(s))));
  return PyStackRef_IsNull(s) ? Ref() : Ref::steal(PyStackRef_AsPyObjectSteal(s));
}
void put_slot(Frame* f, int i, Ref value) {
  Py_ssize_t unit = value ? marked(value.get()) : -1;
  f->localsplus[i] = !value      ? PyStackRef_NULL
                     : unit >= 0 ? PyStackRef_TagInt(unit)
                                 : PyStackRef_FromPyObjectSteal(value.release());
}
Ref instruction_mark(int unit) { return Ref::borrow(mark(static_cast<size_t>(unit))); }
int depth(Frame* f) { return static_cast<int>(f->stackpointer - f->localsplus) - code(f)->co_nlocalsplus; }
void set_depth(Frame* f, int n) { f->stackpointer = f->localsplus + code(f)->co_nlocalsplus + n; }

}  // namespace braze::capture::cpython
#endif
