// A generator holds its frame, and a word that says what it is about.
#include "capture/cpython/generator.h"

#define Py_BUILD_CORE
#include <internal/pycore_code.h>
#include <internal/pycore_frame.h>
#if PY_VERSION_HEX >= 0x030E0000
#include <internal/pycore_interpframe_structs.h>
#endif

#include <algorithm>
#include <vector>

#include "capture/cpython/any_arguments.h"
#include "capture/cpython/fast_function.h"
#include "capture/cpython/frame.h"
#include "capture/cpython/ref.h"

namespace braze::capture::cpython {
namespace {

constexpr Py_ssize_t kBeforeSlots = 2;  // the function and the offset

PyGenObject* as_generator(PyObject* o) { return reinterpret_cast<PyGenObject*>(o); }
Frame* frame_in(PyGenObject* g) { return reinterpret_cast<Frame*>(&g->gi_iframe); }
bool waits(PyGenObject* g) { return g->gi_frame_state == FRAME_CREATED || suspended(reinterpret_cast<PyObject*>(g)); }

// What a generator's word says where it left with this instruction.
int8_t state_at([[maybe_unused]] Frame* f, [[maybe_unused]] int at) {
#if PY_VERSION_HEX >= 0x030D0000
  // The argument says whether it is the yield of a `yield from`.
  if (_PyCode_CODE(code(f))[at / 2].op.arg) return FRAME_SUSPENDED_YIELD_FROM;
#endif
  return FRAME_SUSPENDED;
}

// What was there ends when all of the frame is as it is to be: that may run code.
void fill(Frame* f, PyObject* const* values, Py_ssize_t n) {
  std::vector<Ref> before;
  for (int i = 0; i < num_slots(f); ++i) before.push_back(take_slot(f, i));
  set_depth(f, std::max(static_cast<int>(n) - code(f)->co_nlocalsplus, 0));
  for (int i = 0; i < num_slots(f); ++i)
    put_slot(f, i, i < n && values[i] != empty_slot() ? Ref::borrow(values[i]) : Ref());
}

// nullptr: an exception is set.
Frame* waiting_frame(PyObject* generator) {
  if (waits(as_generator(generator))) return frame_in(as_generator(generator));
  PyErr_SetString(PyExc_ValueError, "generator already executing");
  return nullptr;
}

PyObject* go_to(PyObject*, PyObject* const* args, Py_ssize_t n) {
  Frame* f = waiting_frame(args[0]);
  if (!f) return nullptr;
  Ref alive = Ref::borrow(args[0]);
  int at = static_cast<int>(PyLong_AsLong(args[1]));
  // One that has not begun waits at the instruction that made it.
  if (at != left_at(f)) as_generator(args[0])->gi_frame_state = state_at(f, at);
  set_left_at(f, at);
  fill(f, args + kBeforeSlots, n - kBeforeSlots);
  Py_RETURN_NONE;
}

// Closed where no instruction of the program's has begun, it runs none.
PyObject* end(PyObject*, PyObject* const* args, Py_ssize_t) {
  Frame* f = waiting_frame(args[0]);
  if (!f) return nullptr;
  Ref alive = Ref::borrow(args[0]);
  set_left_at(f, static_cast<int>(PyLong_AsLong(args[1])));
  fill(f, nullptr, 0);
  as_generator(args[0])->gi_frame_state = FRAME_SUSPENDED;
  return PyObject_CallMethod(args[0], "close", nullptr);
}

// The function does no more than to make the generator.
PyObject* made(PyObject*, PyObject* const* args, Py_ssize_t) {
  AnyArguments given(reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(args[0])));
  return PyObject_Vectorcall(args[0], given.values.data(), given.positional, given.names.get());
}

}  // namespace

size_t generator_name_offset() { return offsetof(PyGenObject, gi_name); }
size_t generator_qualname_offset() { return offsetof(PyGenObject, gi_qualname); }

PyObject* empty_slot() {
  static PyObject* const stands = PyObject_CallNoArgs(reinterpret_cast<PyObject*>(&PyBaseObject_Type));
  return stands;
}

PyObject* generator_content(PyObject* generator) {
  PyGenObject* g = as_generator(generator);
  if (g->gi_frame_state >= FRAME_COMPLETED) return PyTuple_New(0);
  Frame* f = frame_in(g);
  PyObject* handled = g->gi_exc_state.exc_value;
  if (!waits(g) || (handled && handled != Py_None) || !function(f) || !PyFunction_Check(function(f)) ||
      PyFunction_GET_CODE(function(f)) != reinterpret_cast<PyObject*>(code(f)))
    return nullptr;
  Ref at = Ref::steal(PyLong_FromLong(left_at(f)));
  Ref out = Ref::steal(at ? PyTuple_New(kBeforeSlots + num_slots(f)) : nullptr);
  if (!out) return PyErr_Clear(), nullptr;
  PyTuple_SET_ITEM(out.get(), 0, Py_NewRef(function(f)));
  PyTuple_SET_ITEM(out.get(), 1, at.release());
  for (int i = 0; i < num_slots(f); ++i) {
    PyObject* value = slot(f, i);
    PyTuple_SET_ITEM(out.get(), kBeforeSlots + i, Py_NewRef(value ? value : empty_slot()));
  }
  return out.release();
}

PyObject* generator_go_to() {
  static PyObject* const function = fast_function("go_to", go_to);
  return function;
}

PyObject* generator_made() {
  static PyObject* const function = fast_function("made", made);
  return function;
}

PyObject* generator_ended() {
  static PyObject* const function = fast_function("end", end);
  return function;
}

}  // namespace braze::capture::cpython
