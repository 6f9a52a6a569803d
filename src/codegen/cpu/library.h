// Elementary functions of whole vectors from SLEEF, which libtorch_cpu exports and ATen computes with. A process
// without that library has none; single lanes then go to the C library.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace braze::codegen::cpu {

// The symbol of `name`, as in C for double ("sin"), on vectors of f32 or (`wide`) f64 of so many lanes; empty: none.
std::string library_symbol(std::string_view name, bool wide, unsigned lanes);

// Symbol and address of every vector function found.
const std::vector<std::pair<std::string, void*>>& library_symbols();

}  // namespace braze::codegen::cpu
