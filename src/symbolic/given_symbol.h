#pragma once
#include <cstdint>

namespace braze::sym {

// In a table of size symbols, instead of the number of an input: the caller gives the symbol's value (an integer
// argument, or a number that is computed from such and from sizes).
constexpr uint32_t kGivenSymbol = UINT32_MAX;

}  // namespace braze::sym
