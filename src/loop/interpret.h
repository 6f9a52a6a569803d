// Runs a loop program slowly and obviously on host memory: the reference that transformations and code generators are
// tested against.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "loop/loop.h"

namespace braze::loop {

struct HostTensor {
  DType dtype = DType::F32;
  std::vector<int64_t> sizes, strides;  // elements
  int64_t offset = 0;                   // elements
  std::vector<uint8_t> storage;         // bytes
};

// A packed tensor of zeros.
HostTensor host_tensor(DType dtype, std::vector<int64_t> sizes);
// One element as double or integer (by dtype), at an element index of the storage.
double get_number(const HostTensor& t, int64_t element);
void set_number(HostTensor& t, int64_t element, double value);

// Carries out an extern call: gets its views as packed tensors, returns its results (packed, one per entry of
// `outputs`).
using ExternFn = std::function<std::vector<HostTensor>(const ExternCall&, const std::vector<HostTensor>& views)>;

// Inputs are indexed as the graph's inputs; writebacks change them. Sizes are read from them by Program::size_symbols.
// Throws InternalError for an access out of a buffer's bounds, a read of what nobody wrote, or an extern call without
// `call`.
//
// `arena`: buffers with a byte offset share one allocation at these offsets (checks a memory plan); all others have
// memory of their own.
struct Arena {
  std::vector<std::optional<Expr>> offsets;  // per buffer
  Expr bytes;
  bool reverse = false;  // run outer points from last to first: shows whether they are independent
};
std::vector<HostTensor> run(const Program& program, std::vector<HostTensor>& inputs, const ExternFn& call = {},
                            const Arena* arena = nullptr);

}  // namespace braze::loop
