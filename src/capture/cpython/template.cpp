#include "capture/cpython/template.h"

#if PY_VERSION_HEX >= 0x030E0000
#define Py_BUILD_CORE
#include <internal/pycore_interpolation.h>
#include <internal/pycore_template.h>
#endif

namespace braze::capture::cpython {

#if PY_VERSION_HEX >= 0x030E0000

Ref build_interpolation(const Ref& value, const Ref& text, int conversion, const Ref& spec) {
  Ref none = spec ? Ref() : Ref::steal(PyUnicode_FromStringAndSize(nullptr, 0));
  return Ref::steal(_PyInterpolation_Build(value.get(), text.get(), conversion, (spec ? spec : none).get()));
}
Ref build_template(const Ref& strings, const Ref& interpolations) {
  return Ref::steal(_PyTemplate_Build(strings.get(), interpolations.get()));
}

#else

// No code of these versions has the instructions.
static Ref unknown() {
  PyErr_SetString(PyExc_SystemError, "braze: this CPython has no template strings");
  return Ref();
}
Ref build_interpolation(const Ref&, const Ref&, int, const Ref&) { return unknown(); }
Ref build_template(const Ref&, const Ref&) { return unknown(); }

#endif

}  // namespace braze::capture::cpython
