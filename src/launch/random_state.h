// What PyTorch's default generators are at one moment, so that a run can be made as if another had not been.
#pragma once
#include <memory>

namespace braze::launch {

class RandomState {
 public:
  RandomState();  // of the CPU, and of the current CUDA device if CUDA is in use
  ~RandomState();
  RandomState(const RandomState&) = delete;
  void restore() const;

 private:
  struct Generators;
  std::unique_ptr<Generators> generators_;
};

}  // namespace braze::launch
