// CPython 3.13: a frame's slots hold objects.
#include <Python.h>

#if PY_VERSION_HEX >= 0x030D0000 && PY_VERSION_HEX < 0x030E0000
#define Py_BUILD_CORE
#include <internal/pycore_code.h>
#include <internal/pycore_frame.h>

#include <utility>

#include "capture/cpython/frame.h"

namespace braze::capture::cpython {

PyCodeObject* code(Frame* f) { return reinterpret_cast<PyCodeObject*>(f->f_executable); }
PyObject* function(Frame* f) { return f->f_funcobj; }
PyObject* slot(Frame* f, int i) { return f->localsplus[i]; }
Ref take_slot(Frame* f, int i) { return Ref::steal(std::exchange(f->localsplus[i], nullptr)); }
void put_slot(Frame* f, int i, Ref value) { f->localsplus[i] = value.release(); }
Ref instruction_mark(int unit) { return Ref::steal(PyLong_FromLong(unit)); }
int depth(Frame* f) { return f->stacktop - code(f)->co_nlocalsplus; }
void set_depth(Frame* f, int n) { f->stacktop = code(f)->co_nlocalsplus + n; }

}  // namespace braze::capture::cpython
#endif
