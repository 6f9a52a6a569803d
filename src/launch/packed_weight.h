// Weights of oneDNN's operators (graph/packed_weight.h) in the layout that its kernels choose, made at the first call.
#pragma once
#include <ATen/core/ivalue.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "launch/extern.h"

namespace braze::launch {

class PackedWeight {
 public:
  // nullptr: the operator takes none, or its weight is no view of an input that is `frozen`.
  static std::unique_ptr<PackedWeight> make(const runtime::Program& program, const plan::Extern& step,
                                            const std::vector<bool>& frozen);
  // Puts it in the place of the weight among the arguments of a call. Calls may overlap.
  void replace(std::vector<c10::IValue>& arguments);
  // The weight's values have changed.
  void forget();
  // What is packed stays, though the weight no longer lies anywhere.
  void keep();

 private:
  explicit PackedWeight(bool convolution) : convolution_(convolution) {}
  at::Tensor pack(const std::vector<c10::IValue>& arguments) const;

  bool convolution_;
  std::mutex mutex_;
  at::Tensor packed_;
  const void* from_ = nullptr;  // the memory of what was packed
  bool kept_ = false;
};

}  // namespace braze::launch
