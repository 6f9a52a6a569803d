// A tensor without storage: the true device, dtype, sizes and strides, and the value of the graph that is its memory.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/TensorImpl.h>

#include <memory>

#include "graph/graph.h"

namespace braze::trace {

class Recorder;

// The dispatch key of fake tensors, named here alone: below autograd, functionalisation and Python, above the backends.
// PyTorch keeps it for a fake-tensor mode of its own; install_recorder() fails where that has been registered.
inline constexpr c10::DispatchKey kFakeKey = c10::DispatchKey::Fake;

class FakeTensor final : public c10::TensorImpl {
 public:
  // An input of the recorder, with no value of the graph until it is read.
  static constexpr uint32_t kNoSlot = UINT32_MAX;

  FakeTensor(std::shared_ptr<Recorder> recorder, graph::ValueId value, uint32_t slot, c10::DispatchKeySet keys,
             caffe2::TypeMeta dtype, c10::Device device);

  c10::intrusive_ptr<c10::TensorImpl> shallow_copy_and_detach(const c10::VariableVersion& version,
                                                              bool allow_change) const override;
  c10::intrusive_ptr<c10::TensorImpl> shallow_copy_and_detach(c10::VariableVersion&& version,
                                                              bool allow_change) const override;
  void shallow_copy_from(const c10::intrusive_ptr<c10::TensorImpl>& impl) override;

  const std::shared_ptr<Recorder>& recorder() const { return recorder_; }
  // Its memory; see LazyBits.
  graph::ValueId value() const { return value_; }
  uint32_t slot() const { return slot_; }

 private:
  template <class Version>
  c10::intrusive_ptr<c10::TensorImpl> copy(Version&& version, bool allow_change) const;
  const char* tensorimpl_type_name() const override { return "braze::trace::FakeTensor"; }

  std::shared_ptr<Recorder> recorder_;
  graph::ValueId value_;
  uint32_t slot_;
};

// The fake behind a tensor that is one (not a functional wrapper around one); nullptr for others.
FakeTensor* as_fake(const at::Tensor& tensor);
// As above, seen through functional wrappers (as the wrapper stands: not synchronised).
FakeTensor* unwrap_fake(const at::Tensor& tensor);

at::Tensor make_fake(const std::shared_ptr<Recorder>& recorder, graph::ValueId value, uint32_t slot,
                     const TensorType& type);

}  // namespace braze::trace
