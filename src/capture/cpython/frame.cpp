// What is done with frames whatever their layout: the hook, the count of calls.
#include "capture/cpython/frame.h"

namespace braze::capture::cpython {

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
  PyThreadState* ts = state_if_held();
  if (!ts) return;
#if PY_VERSION_HEX >= 0x030C0000
  ++ts->py_recursion_remaining;
#endif
  Py_LeaveRecursiveCall();
}
PyThreadState* state_if_held() {
#if PY_VERSION_HEX >= 0x030D0000
  return PyThreadState_GetUnchecked();
#else
  // 3.11 has one for all threads: that of the thread which holds the GIL.
  return PyGILState_Check() ? _PyThreadState_UncheckedGet() : nullptr;
#endif
}

int num_slots(Frame* f) { return code(f)->co_nlocalsplus + depth(f); }
void push(Frame* f, Ref value) {
  put_slot(f, num_slots(f), std::move(value));
  set_depth(f, depth(f) + 1);
}
Ref pop(Frame* f) {
  Ref value = take_slot(f, num_slots(f) - 1);
  set_depth(f, depth(f) - 1);
  return value;
}

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
