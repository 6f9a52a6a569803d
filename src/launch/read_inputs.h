// Which of a plan's inputs its calls read in memory.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "runtime/program.h"

namespace braze::launch {

// The buffer that the input is; none: nothing reads it.
std::optional<uint32_t> buffer_of(const plan::Plan& plan, size_t input);

// Per input, `inputs` of them. `reads(step, k)`: whether the extern call at this step of the plan reads its argument k
// where it lies. Everything else that names a buffer reads it: launches, kernels of templates, results and writebacks.
std::vector<bool> reads_in_memory(const plan::Plan& plan, size_t inputs,
                                  const std::function<bool(size_t step, size_t k)>& reads);

}  // namespace braze::launch
