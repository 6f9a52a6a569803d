// What a kernel's text says about where it comes from.
#pragma once
#include <string>
#include <string_view>

#include "loop/loop.h"

namespace braze::codegen {

// Comment lines: the nest's name and `facts`, then the user's lines that it computes. `comment`: how the language
// begins one.
std::string head_comment(const loop::Program& program, const loop::Nest& nest, std::string_view comment,
                         std::string_view facts = {});

}  // namespace braze::codegen
