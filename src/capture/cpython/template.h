// Template strings, which CPython has from 3.14 on.
#pragma once
#include "capture/cpython/ref.h"

namespace braze::capture::cpython {

// What the instructions of these names make, by their argument; nothing, with an exception set, where it failed.
// spec: nothing if none is written.
Ref build_interpolation(const Ref& value, const Ref& text, int conversion, const Ref& spec);
Ref build_template(const Ref& strings, const Ref& interpolations);

}  // namespace braze::capture::cpython
