// Triton, as far as codegen/ needs it, through Python; and hooks by which tests see what it is given.
#pragma once
#include <pybind11/pybind11.h>

namespace braze::bind {

void install_triton();
void add_triton_hooks(pybind11::module_& module);

}  // namespace braze::bind
