// What a generator of CPython's own waits with, looked at without resuming it, and giving generators another state.
#pragma once
#include <Python.h>

namespace braze::capture::cpython {

// Whether close() gives what the generator returned as it was closed; None otherwise.
inline constexpr bool kCloseGivesResult = PY_VERSION_HEX >= 0x030D0000;

// Whether throw() with more than an exception is deprecated, which a warning says.
inline constexpr bool kThrowWarns = PY_VERSION_HEX >= 0x030C0000;

// Where a generator has its __name__ and __qualname__, in bytes.
size_t generator_name_offset();
size_t generator_qualname_offset();

// Stands for a slot of a frame that has no value (borrowed).
PyObject* empty_slot();

// A new reference: nothing of a generator that has ended; else its function, the byte offset of the instruction that it
// left with (RETURN_GENERATOR: it has not begun), its localsplus and its value stack, empty_slot() where there is no
// value. nullptr, without an exception: it runs, or handles an exception. Runs no code.
PyObject* generator_content(PyObject* generator);

// A callable (borrowed) of a generator that waits, an offset and the values of localsplus and of the stack: it becomes
// what generator_content() would tell of with these.
PyObject* generator_go_to();

// A callable (borrowed) of a generator function: a new generator, with None for each argument.
PyObject* generator_made();

// A callable (borrowed) of a generator that waits and the offset of its RETURN_GENERATOR: it ends without running.
PyObject* generator_ended();

}  // namespace braze::capture::cpython
