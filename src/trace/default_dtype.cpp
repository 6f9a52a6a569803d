#include "trace/default_dtype.h"

#include <algorithm>
#include <variant>

namespace braze::trace {

void name_dtype(const OpInfo& info, std::vector<graph::Arg>& args, const TensorType& result) {
  using enum ArgKind;
  for (ArgKind k : info.args)
    if (k == Tensor || k == TensorList) return;
  const size_t n = std::min(args.size(), info.args.size());  // some nodes are not of the operator's own form
  for (size_t i = 0; i < n; ++i)
    if (info.args[i] == ScalarType && std::holds_alternative<graph::NoneArg>(args[i])) args[i] = result.dtype;
}

}  // namespace braze::trace
