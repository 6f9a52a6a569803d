// CPython 3.13 and 3.14: a frame points at the instruction that it carries out, and once it has left, at the next one.
// What its slots hold is in frame_values_*.cpp.
#include <Python.h>

#if PY_VERSION_HEX >= 0x030D0000 && PY_VERSION_HEX < 0x030F0000
#define Py_BUILD_CORE
#include <internal/pycore_code.h>
#include <internal/pycore_frame.h>
#if PY_VERSION_HEX >= 0x030E0000
#include <internal/pycore_interpframe_structs.h>
#endif

#include "capture/cpython/frame.h"
#include "capture/cpython/ref.h"

namespace braze::capture::cpython {
namespace {

constexpr int kUnit = static_cast<int>(sizeof(_Py_CODEUNIT));

int offset(Frame* f) { return static_cast<int>(f->instr_ptr - _PyCode_CODE(code(f))) * kUnit; }
void set_offset(Frame* f, int offset) { f->instr_ptr = _PyCode_CODE(code(f)) + offset / kUnit; }

// The entry that the interpreter has made for the frame of an exception that left it: of the unit behind the
// instruction that raised it, which may be another line's.
void correct_traceback(PyCodeObject* code, int at) {
  Ref exception = Ref::steal(PyErr_GetRaisedException());
  Ref trace = Ref::steal(PyException_GetTraceback(exception.get()));
  auto* entry = reinterpret_cast<PyTracebackObject*>(trace.get());
  if (entry && entry->tb_lasti == at + kUnit &&
      Ref::steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(entry->tb_frame))).get() ==
          reinterpret_cast<PyObject*>(code)) {
    entry->tb_lasti = at;
    entry->tb_lineno = PyCode_Addr2Line(code, at);
  }
  PyErr_SetRaisedException(exception.release());
}

}  // namespace

PyObject* globals(Frame* f) { return f->f_globals; }
PyObject* builtins(Frame* f) { return f->f_builtins; }
Frame* frame_of(PyFrameObject* o) { return o->f_frame; }
Frame* suspended(PyObject* generator) {
  auto* g = reinterpret_cast<PyGenObject*>(generator);
  return FRAME_STATE_SUSPENDED(g->gi_frame_state) ? reinterpret_cast<Frame*>(&g->gi_iframe) : nullptr;
}
int left_at(Frame* f) { return offset(f) - kUnit; }
void set_left_at(Frame* f, int at) { set_offset(f, at + kUnit); }
void set_position(Frame* f, int at) { set_offset(f, at); }
void set_next(Frame* f, int at) { set_offset(f, at); }

void link(PyThreadState* ts, Frame* f) {
  f->previous = ts->current_frame;
  ts->current_frame = f;
}
void unlink(PyThreadState* ts, Frame* f) { ts->current_frame = f->previous; }

PyObject* go_on(PyThreadState* ts, Frame* f, bool raise) {
  if (!raise) return _PyEval_EvalFrameDefault(ts, f, false);
  // The interpreter takes the handler of the unit before the one that the frame points at.
  int at = offset(f);
  Ref hold = Ref::borrow(reinterpret_cast<PyObject*>(code(f)));
  set_offset(f, at + kUnit);
  PyObject* result = _PyEval_EvalFrameDefault(ts, f, true);
  if (!result) correct_traceback(reinterpret_cast<PyCodeObject*>(hold.get()), at);
  return result;
}

}  // namespace braze::capture::cpython
#endif
