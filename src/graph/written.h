// Results of a call that are copies of operands which its operator writes to. The call's `list_sizes` say so: after the
// operator's own returns -2 - n for each, n being the operand's place among the tensors that are handed in.
#pragma once
#include <cstdint>
#include <vector>

namespace braze::graph {

// Per result: the operand that it is a copy of, or -1.
inline std::vector<int32_t> written_operands(const std::vector<int32_t>& list_sizes) {
  std::vector<int32_t> out;
  for (int32_t s : list_sizes)
    if (s >= 0)
      out.insert(out.end(), static_cast<size_t>(s), -1);
    else
      out.push_back(s <= -2 ? -2 - s : -1);
  return out;
}

}  // namespace braze::graph
