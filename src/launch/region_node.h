// The nodes of PyTorch's autograd graph that stand for one call of a compiled region.
#pragma once
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "launch/training_program.h"

namespace braze::launch {

// What one call of a region keeps for its backward.
class RegionCall {
 public:
  explicit RegionCall(std::shared_ptr<TrainingProgram> program);

  // ---- once, after the forward ----
  // Kept for the backward, in the order of TrainingProgram::saved.
  void save(const at::Tensor& t) { saved_.emplace_back(t, false); }
  // The program's own backward reads this memory: it is an error if it is not as it is now.
  void watch(const at::Tensor& t);
  // Input number i of the region; for one of which there is a snapshot, that.
  void hold_input(uint32_t i, const at::Tensor& t);
  void finish() { used_.assign(saved_.size(), false), dropped_ = used_; }

  bool replayed = false;          // the forward was: what it saved lies where the backward's recording expects it
  std::vector<int64_t> symbols;   // values of the backward's size symbols
  at::Tensor random_state;        // of the generator when the region was called
  std::vector<at::Tensor> drawn;  // see TrainingProgram::drawn

  // ---- its backward ----
  const std::shared_ptr<TrainingProgram>& program() const { return program_; }
  // Per input of the region with a gradient: where it goes, if the caller is to have it.
  using Edges = std::function<torch::autograd::edge_list()>;
  // The gradients of all inputs from those of the outputs, undefined where there is none. `releasing`: what is read is
  // freed.
  torch::autograd::variable_list backward(torch::autograd::variable_list&& tangents, const Edges& edges,
                                          bool releasing);
  void release();

 private:
  struct Version {
    c10::VariableVersion counter;
    uint32_t expected;
    const c10::StorageImpl* storage;
    std::string what;
    bool changed() const { return counter.current_version() != expected; }
    std::string text() const;
  };
  struct HeldInput {
    at::Tensor tensor;
    std::optional<c10::weak_intrusive_ptr<c10::TensorImpl>> weak;  // of one that is not needed
    uint32_t version = 0;
  };

  torch::autograd::variable_list uncompiled_backward(const torch::autograd::variable_list& tangents, const Edges& edges,
                                                     const std::vector<bool>& given);
  torch::autograd::variable_list region_inputs(bool needed);
  void check_kept(uint32_t i) const;
  // Before a backward from `given`: that none of what it reads was freed by an earlier one, where the program's own
  // nodes would have been.
  void check_not_freed(const std::vector<bool>& given) const;
  // Per saved value: whether a result whose history no backward has freed needs it.
  std::vector<bool> still_needed() const;
  // `read`: what a backward from some of the results reads; of the others' memory it is none of its concern what they
  // became. nullptr: it is from all.
  void check_versions(const std::vector<at::Tensor>* read = nullptr) const;
  void drop(size_t i) {
    saved_[i].reset_data();
    dropped_[i] = true;
  }

  std::shared_ptr<TrainingProgram> program_;
  std::mutex mutex_;
  std::vector<torch::autograd::SavedVariable> saved_;
  std::vector<Version> watched_;
  std::vector<HeldInput> held_;       // per input of the region
  std::vector<bool> used_, dropped_;  // per saved value
  std::vector<bool> spent_;  // per tangent: there was a gradient for it in a backward that released what it read
  bool held_dropped_ = false;
};

// Stands for some of a call's results, with edges to the inputs that these have gradients for: autograd's engine visits
// (and releases, and calls the hooks of) whatever a node has edges to, so that results with separate histories have
// nodes of their own.
class CompiledFunctionBackward : public torch::autograd::Node {
 public:
  // `tangents`: of the program's, in the order of set_history(); `gradients`: of the program's, an edge each.
  CompiledFunctionBackward(std::shared_ptr<RegionCall> call, std::vector<uint32_t> tangents,
                           std::vector<uint32_t> gradients, torch::autograd::edge_list&& edges);

  std::string name() const override { return "CompiledFunctionBackward"; }
  void will_release_variables() override { releasing_ = true; }
  void release_variables() override;
  torch::autograd::variable_list apply(torch::autograd::variable_list&& tangents) override;

 private:
  std::shared_ptr<RegionCall> call_;
  std::vector<uint32_t> tangents_, gradients_;
  bool releasing_ = false;
};

}  // namespace braze::launch
