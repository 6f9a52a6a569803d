// What functions keep in their structure, by the name of the attribute that reads it.
#pragma once
#include <Python.h>

#include <cstddef>

namespace braze::capture::cpython {

struct FunctionField {
  const char* name;
  size_t offset;  // in PyFunctionObject
};

// The attribute is None where there is nothing.
inline constexpr FunctionField kFunctionFields[] = {
    {"__name__", offsetof(PyFunctionObject, func_name)},
    {"__qualname__", offsetof(PyFunctionObject, func_qualname)},
    {"__module__", offsetof(PyFunctionObject, func_module)},
    {"__doc__", offsetof(PyFunctionObject, func_doc)},
#if PY_VERSION_HEX >= 0x030E0000
    {"__annotate__", offsetof(PyFunctionObject, func_annotate)},
#endif
};

// The attribute makes it where there is nothing, or a tuple, when it is first asked for.
inline constexpr FunctionField kFunctionFieldsMadeLate[] = {
    {"__annotations__", offsetof(PyFunctionObject, func_annotations)},
    {"__builtins__", offsetof(PyFunctionObject, func_builtins)},
#if PY_VERSION_HEX >= 0x030C0000
    {"__type_params__", offsetof(PyFunctionObject, func_typeparams)},
#endif
};

// Making annotations runs code of the program.
inline constexpr bool kAnnotationsRunCode = PY_VERSION_HEX >= 0x030E0000;

// The text that a function made from this code has for its __doc__, borrowed; nullptr: none.
inline PyObject* docstring(PyCodeObject* code) {
#if PY_VERSION_HEX >= 0x030E0000
  if (!(code->co_flags & CO_HAS_DOCSTRING)) return nullptr;
#endif
  PyObject* first = PyTuple_GET_SIZE(code->co_consts) ? PyTuple_GET_ITEM(code->co_consts, 0) : nullptr;
  return first && PyUnicode_Check(first) ? first : nullptr;
}

}  // namespace braze::capture::cpython
