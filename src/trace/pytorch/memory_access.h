// Reads of a tensor's memory where there is none: what happens to kernels that know no fakes.
#pragma once
#include <string_view>

namespace braze::pytorch {

// Whether an error of PyTorch's says that. Its words are not known here: they are those of reading such a tensor, which
// is tried once. Needs the GIL.
bool is_memory_access(std::string_view message);

}  // namespace braze::pytorch
