// Texts of exceptions that differ between versions of CPython.
#pragma once
#include <Python.h>

namespace braze::capture::cpython {

inline constexpr bool kTextsOf314 = PY_VERSION_HEX >= 0x030E0000;
// Whether sum() adds floats, or complex numbers as well, with their errors of rounding (Neumaier).
inline constexpr bool kSumsFloats = PY_VERSION_HEX >= 0x030C0000, kSumsComplex = PY_VERSION_HEX >= 0x030E0000;

// Behind "argument of type '...", of `in`.
inline constexpr const char* kNoContainer = kTextsOf314 ? "' is not a container or iterable" : "' is not iterable";
inline constexpr const char* kFloatDivision = kTextsOf314 ? "division by zero" : "float division by zero";
// Whether unpacking a list, tuple or dict that is too long says how long it is.
inline constexpr bool kTellsLength = kTextsOf314;
// Whether list.index() says nothing of the item.
inline constexpr bool kTellsNoItem = kTextsOf314;
// Whether sets and dicts say what they wanted to do with a key that has no hash: in words of each method's own.
inline constexpr bool kTellsUseOfKey = kTextsOf314;
// Whether dict.update() tells the number of an element that is no sequence in a note.
inline constexpr bool kNotesElement = kTextsOf314;
// Whether add_note() says of an argument what functions in C do.
inline constexpr bool kNoteIsArgument = kTextsOf314;

}  // namespace braze::capture::cpython
