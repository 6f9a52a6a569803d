// The system's C++ compiler: what CXX names, else c++, g++ or clang++ on PATH.
#pragma once
#include <string>

#include "base/target.h"

namespace braze::codegen::cpp {

// Its path; empty: there is none.
std::string compiler_path();
// What is asked of it beside the shape of a kernel; part of what cached objects depend on.
std::string compiler_flags(const Target& target);
// A relocatable object of `text`. Throws Unsupported where there is no compiler, InternalError with its words where it
// refuses the text.
std::string compile_text(const std::string& text, const std::string& flags);

}  // namespace braze::codegen::cpp
