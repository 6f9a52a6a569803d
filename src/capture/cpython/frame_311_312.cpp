// CPython 3.11 and 3.12, whose frames differ in a name.
#include <Python.h>

#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030D0000
#define Py_BUILD_CORE
#include <internal/pycore_code.h>
#include <internal/pycore_frame.h>

#include <utility>

#include "capture/cpython/frame.h"

namespace braze::capture::cpython {

PyCodeObject* code(Frame* f) { return f->f_code; }
#if PY_VERSION_HEX < 0x030C0000
PyObject* function(Frame* f) { return reinterpret_cast<PyObject*>(f->f_func); }
#else
PyObject* function(Frame* f) { return f->f_funcobj; }
#endif
PyObject* globals(Frame* f) { return f->f_globals; }
PyObject* builtins(Frame* f) { return f->f_builtins; }
PyObject* slot(Frame* f, int i) { return f->localsplus[i]; }
Ref take_slot(Frame* f, int i) { return Ref::steal(std::exchange(f->localsplus[i], nullptr)); }
void put_slot(Frame* f, int i, Ref value) { f->localsplus[i] = value.release(); }
Ref instruction_mark(int unit) { return Ref::steal(PyLong_FromLong(unit)); }
int depth(Frame* f) { return f->stacktop - f->f_code->co_nlocalsplus; }
Frame* frame_of(PyFrameObject* o) { return o->f_frame; }
Frame* suspended(PyObject* generator) {
  auto* g = reinterpret_cast<PyGenObject*>(generator);
  return g->gi_frame_state == FRAME_SUSPENDED ? reinterpret_cast<Frame*>(&g->gi_iframe) : nullptr;
}
int left_at(Frame* f) { return static_cast<int>(f->prev_instr - _PyCode_CODE(f->f_code)) * 2; }
void set_depth(Frame* f, int n) { f->stacktop = f->f_code->co_nlocalsplus + n; }
// prev_instr is the unit before the next one. Within an instruction it points at the instruction itself.
void set_position(Frame* f, int offset) { f->prev_instr = _PyCode_CODE(f->f_code) + offset / 2; }
void set_left_at(Frame* f, int offset) { set_position(f, offset); }
void set_next(Frame* f, int offset) { f->prev_instr = _PyCode_CODE(f->f_code) + offset / 2 - 1; }

void link(PyThreadState* ts, Frame* f) {
  f->previous = ts->cframe->current_frame;
  ts->cframe->current_frame = f;
}
void unlink(PyThreadState* ts, Frame* f) { ts->cframe->current_frame = f->previous; }

PyObject* go_on(PyThreadState* ts, Frame* f, bool raise) { return _PyEval_EvalFrameDefault(ts, f, raise); }

}  // namespace braze::capture::cpython
#endif
