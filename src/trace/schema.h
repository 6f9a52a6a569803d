// Questions about operators' schemas.
#pragma once
#include <ATen/core/function_schema.h>

namespace braze::trace {

// Whether the operator writes to this argument.
inline bool is_written(const c10::Argument& a) { return a.alias_info() && a.alias_info()->isWrite(); }

}  // namespace braze::trace
