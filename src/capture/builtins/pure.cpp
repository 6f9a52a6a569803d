// Functions in C without effects, whose results depend on nothing but their arguments.
#include "capture/builtins/builtins.h"
#include "capture/cpython/ref.h"
#include "capture/eval/native.h"

namespace braze::capture {

void register_pure_builtins() {
  for (const char* n : {"chr", "ord", "hex", "oct", "bin", "ascii", "complex", "bytes"}) register_pure("builtins", n);
  for (const char* n : {"index", "length_hint"}) register_pure("_operator", n);
  register_pure("posix", "fspath");
  register_pure("sys", "intern");
  register_pure("builtins", "str.maketrans");
  for (const char* n : {"pack", "unpack", "calcsize"}) register_pure("_struct", n);
  for (const char* n :
       {"acos",  "acosh", "asin",  "asinh", "atan",  "atanh", "cos", "cosh", "exp",  "isclose", "isfinite", "isinf",
        "isnan", "log",   "log10", "phase", "polar", "rect",  "sin", "sinh", "sqrt", "tan",     "tanh"})
    register_pure("cmath", n);
  for (const char* n : {"dumps", "loads"}) register_pure("json", n);
  for (const char* n : {"finfo", "iinfo"}) register_pure("numpy", n);
  Ref math = Ref::steal(PyImport_ImportModule("math"));
  Ref names = Ref::steal(PyObject_Dir(math.get()));
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(names.get()); ++i) {
    const char* n = PyUnicode_AsUTF8(PyList_GET_ITEM(names.get(), i));
    Ref f = Ref::steal(native::attr(Ground::fixed(), math.get(), n));
    if (PyCFunction_Check(f.get())) register_pure("math", n);
  }
}

}  // namespace braze::capture
