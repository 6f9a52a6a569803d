#include "capture/frames/bind_args.h"

namespace braze::capture {

namespace {

// The parameter with this name among localsplus[first, last), or -1.
int find_parameter(PyCodeObject* code, PyObject* name, int first, int last) {
  PyObject* names = code->co_localsplusnames;
  for (int i = first; i < last; ++i)
    if (PyTuple_GET_ITEM(names, i) == name) return i;
  for (int i = first; i < last; ++i)
    if (PyUnicode_Compare(PyTuple_GET_ITEM(names, i), name) == 0) return i;
  return -1;
}

}  // namespace

bool bind_arguments(PyFunctionObject* function, PyObject* const* args, size_t nargs, PyObject* kwnames,
                    PyObject** slots, std::vector<Ref>& owned) {
  auto* code = reinterpret_cast<PyCodeObject*>(function->func_code);
  int npos = code->co_argcount, nkw = code->co_kwonlyargcount, next = npos + nkw;
  PyObject* varargs = nullptr;
  size_t given = nargs < static_cast<size_t>(npos) ? nargs : static_cast<size_t>(npos);
  for (size_t i = 0; i < given; ++i) slots[i] = args[i];
  if (code->co_flags & CO_VARARGS) {
    owned.push_back(Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(nargs - given))));
    varargs = owned.back().get();
    for (size_t i = given; i < nargs; ++i) PyTuple_SET_ITEM(varargs, i - given, Py_NewRef(args[i]));
    slots[next++] = varargs;
  } else if (nargs > given) {
    return false;
  }
  PyObject* kwargs = nullptr;
  if (code->co_flags & CO_VARKEYWORDS) {
    owned.push_back(Ref::steal(PyDict_New()));
    kwargs = owned.back().get();
    slots[next] = kwargs;
  }
  Py_ssize_t n = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  for (Py_ssize_t i = 0; i < n; ++i) {
    PyObject* name = PyTuple_GET_ITEM(kwnames, i);
    PyObject* value = args[nargs + i];
    if (!PyUnicode_Check(name)) return false;
    int at = find_parameter(code, name, code->co_posonlyargcount, npos + nkw);
    if (at >= 0) {
      if (slots[at]) return false;
      slots[at] = value;
    } else if (kwargs) {
      if (PyDict_SetItem(kwargs, name, value) < 0) {
        PyErr_Clear();
        return false;
      }
    } else {
      return false;
    }
  }
  if (given < static_cast<size_t>(npos)) {
    PyObject* defaults = function->func_defaults;
    int ndefaults = defaults ? static_cast<int>(PyTuple_GET_SIZE(defaults)) : 0;
    for (int i = static_cast<int>(given); i < npos; ++i) {
      if (slots[i]) continue;
      if (i < npos - ndefaults) return false;
      slots[i] = PyTuple_GET_ITEM(defaults, i - (npos - ndefaults));
    }
  }
  for (int i = npos; i < npos + nkw; ++i) {
    if (slots[i]) continue;
    PyObject* v = function->func_kwdefaults ? PyDict_GetItemWithError(function->func_kwdefaults,
                                                                      PyTuple_GET_ITEM(code->co_localsplusnames, i))
                                            : nullptr;
    if (!v) {
      PyErr_Clear();
      return false;
    }
    slots[i] = v;
  }
  int first_free = code->co_nlocalsplus - code->co_nfreevars;
  for (int i = 0; i < code->co_nfreevars; ++i) slots[first_free + i] = PyTuple_GET_ITEM(function->func_closure, i);
  return true;
}

}  // namespace braze::capture
