// The kernels of flex_attention as text, for tests.
#pragma once
#include <pybind11/pybind11.h>

namespace braze::bind {

void add_attention_hooks(pybind11::module_& module);

}  // namespace braze::bind
