// CPython's frames, for code that fills one in and lets the interpreter go on with it. One frame_<versions>.cpp per
// layout implements this.
#pragma once
#include <Python.h>

#include "capture/cpython/ref.h"

struct _PyInterpreterFrame;

namespace braze::capture::cpython {

using Frame = struct _PyInterpreterFrame;

PyCodeObject* code(Frame*);  // borrowed, all of them
PyObject* function(Frame*);  // nullptr if the frame has none
PyObject* globals(Frame*);
PyObject* builtins(Frame*);
// Slots are numbered: localsplus, then the value stack. What is in one, borrowed; nullptr: nothing.
PyObject* slot(Frame*, int);
Ref take_slot(Frame*, int);       // leaves nothing in it
void put_slot(Frame*, int, Ref);  // over nothing, or above the stack
int depth(Frame*);                // of the value stack
void set_depth(Frame*, int);
int num_slots(Frame*);  // that are in use
void push(Frame*, Ref);
Ref pop(Frame*);
// What a handler finds on the stack that goes on where the exception came from: the code unit of the instruction, which
// push() and put_slot() put there as the interpreter does.
Ref instruction_mark(int unit);
Frame* frame_of(PyFrameObject*);
Frame* suspended(PyObject* generator);  // nullptr: it has not begun, runs, or has ended
// Of a frame whose generator waits: the byte offset of the instruction that it left with.
int left_at(Frame*);
void set_left_at(Frame*, int offset);
// How many more calls of Python functions this thread may be in.
int recursion_left();
// Counts a call of a Python function that the interpreter does not count, as it would; false: it is one too many, and
// RecursionError is set.
bool enter_call();
void leave_call();
// This thread's state, for destructors: nullptr where it no longer holds the GIL. CPython ends a daemon thread that
// wants the GIL after the program's end by unwinding its frames, those in C++ with it.
PyThreadState* state_if_held();
// The instruction at this byte offset is being carried out (lines of tracebacks, exception table).
void set_position(Frame*, int offset);
// The instruction at this byte offset comes next.
void set_next(Frame*, int offset);
// Puts the frame on top of the thread's frames while native code runs on its behalf, and takes it off.
void link(PyThreadState*, Frame*);
void unlink(PyThreadState*, Frame*);
// CPython's interpreter goes on with the frame to its end; raise: with the exception that is set.
// An exception has come from the instruction of set_position().
PyObject* go_on(PyThreadState*, Frame*, bool raise);

// The frame hook of PEP 523. A hook that was there before is called for frames that `take` does not want.
// take: true, with *result set (nullptr: exception), when it dealt with the frame. It is there until it was removed as
// often as installed: threads that await frames may overlap.
using Take = bool (*)(PyThreadState*, Frame*, PyObject** result);
void install_hook(Take take);
void remove_hook();

}  // namespace braze::capture::cpython
