// CPython 3.11 and 3.12, whose frames differ in a name.
#include <Python.h>

#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030D0000
#define Py_BUILD_CORE
#include <internal/pycore_code.h>
#include <internal/pycore_frame.h>

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
PyObject** slots(Frame* f) { return f->localsplus; }
int depth(Frame* f) { return f->stacktop - f->f_code->co_nlocalsplus; }
Frame* frame_of(PyFrameObject* o) { return o->f_frame; }
Frame* suspended(PyObject* generator) {
  auto* g = reinterpret_cast<PyGenObject*>(generator);
  return g->gi_frame_state == FRAME_SUSPENDED ? reinterpret_cast<Frame*>(g->gi_iframe) : nullptr;
}
int position(Frame* f) { return static_cast<int>(f->prev_instr - _PyCode_CODE(f->f_code)) * 2; }
int recursion_left() {
#if PY_VERSION_HEX < 0x030C0000
  return PyThreadState_Get()->recursion_remaining;
#else
  return PyThreadState_Get()->py_recursion_remaining;
#endif
}
bool enter_call() {
  if (Py_EnterRecursiveCall("")) return false;
#if PY_VERSION_HEX >= 0x030C0000
  // That counted what takes of C's stack; calls of Python's are counted apart.
  int& left = PyThreadState_Get()->py_recursion_remaining;
  if (left <= 0) {
    Py_LeaveRecursiveCall();
    PyErr_SetString(PyExc_RecursionError, "maximum recursion depth exceeded");
    return false;
  }
  --left;
#endif
  return true;
}
void leave_call() {
#if PY_VERSION_HEX >= 0x030C0000
  ++PyThreadState_Get()->py_recursion_remaining;
#endif
  Py_LeaveRecursiveCall();
}
void set_depth(Frame* f, int n) { f->stacktop = f->f_code->co_nlocalsplus + n; }
// prev_instr is the unit before the next one. Within an instruction it points at the instruction itself.
void set_position(Frame* f, int offset) { f->prev_instr = _PyCode_CODE(f->f_code) + offset / 2; }
void set_next(Frame* f, int offset) { f->prev_instr = _PyCode_CODE(f->f_code) + offset / 2 - 1; }

void link(PyThreadState* ts, Frame* f) {
  f->previous = ts->cframe->current_frame;
  ts->cframe->current_frame = f;
}
void unlink(PyThreadState* ts, Frame* f) { ts->cframe->current_frame = f->previous; }

PyObject* go_on(PyThreadState* ts, Frame* f, bool raise) { return _PyEval_EvalFrameDefault(ts, f, raise); }

namespace {

Take g_take = nullptr;
_PyFrameEvalFunction g_before = nullptr;
int g_installed = 0;  // by threads that await a frame

PyObject* hook(PyThreadState* ts, Frame* f, int throwflag) {
  _PyFrameEvalFunction before = g_before;
  PyObject* result = nullptr;
  if (!throwflag && g_take && g_take(ts, f, &result)) return result;
  return (before ? before : _PyEval_EvalFrameDefault)(ts, f, throwflag);
}

}  // namespace

void install_hook(Take take) {
  PyInterpreterState* interp = PyInterpreterState_Get();
  _PyFrameEvalFunction now = _PyInterpreterState_GetEvalFrameFunc(interp);
  g_take = take;
  ++g_installed;
  if (now == hook) return;
  g_before = now;
  _PyInterpreterState_SetEvalFrameFunc(interp, hook);
}

void remove_hook() {
  if (--g_installed > 0) return;
  PyInterpreterState* interp = PyInterpreterState_Get();
  if (_PyInterpreterState_GetEvalFrameFunc(interp) == hook) _PyInterpreterState_SetEvalFrameFunc(interp, g_before);
}

}  // namespace braze::capture::cpython
#endif
