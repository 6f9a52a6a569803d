// A compiled graph on at::Tensor: the plan, its extern calls, and what makes tensors of the memory that it leaves.
#pragma once
#include <Python.h>

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "driver/driver.h"
#include "graph/graph.h"

namespace braze::launch {

// Objects that a capture met and its graphs refer to by position (tensors are inputs of kind Constant, in order).
class Constants {
 public:
  explicit Constants(std::vector<PyObject*> owned);
  ~Constants();
  Constants(const Constants&) = delete;
  Constants& operator=(const Constants&) = delete;
  const std::vector<PyObject*>& objects() const { return objects_; }
  const std::vector<at::Tensor>& tensors() const { return tensors_; }

 private:
  std::vector<PyObject*> objects_;
  std::vector<at::Tensor> tensors_;
};

// What an output on memory that the caller knows is.
enum class Aliases : uint8_t {
  Fresh,   // a tensor of its own on that memory, with the version counter of the other
  Shared,  // the very input, or a copy where only a part of the memory is the same: nothing downstream may take it over
};

// What recording a compiled graph as a CUDA Graph has to know.
struct ReplayFacts {
  size_t outputs = 0;
  std::vector<uint32_t> written;     // inputs that the graph changes
  std::vector<int32_t> handed_back;  // per output: the input that it is, or -1
  std::string why_not;               // empty: it may be recorded
};

class CompiledGraph {
 public:
  // `graph`: as it was compiled; its constants are the first ones of `constants`.
  // `write_counts`: as in Captured; for others 1. `told`: unbacked symbols whose values a call tells.
  // `frozen`: inputs that are the same in every call until forget_packed(); none where it is shorter.
  CompiledGraph(const graph::Graph& graph, driver::Artefact& made, std::shared_ptr<const Constants> constants,
                Aliases aliases, std::vector<uint32_t> write_counts = {}, const std::vector<sym::Expr>& told = {},
                const std::vector<bool>& frozen = {});
  ~CompiledGraph();
  CompiledGraph(const CompiledGraph&) = delete;
  CompiledGraph& operator=(const CompiledGraph&) = delete;

  struct Call {
    // One per graph input; those of constants are filled in when they are nullptr. Dtypes and sizes are those of the
    // graph. Inputs of kind Argument with other strides than recorded are copied.
    c10::SmallVector<const at::Tensor*, 16> inputs;
    // Not nullptr: one per graph input, where `inputs` point: they are dropped after their last use, if the graph was
    // compiled so.
    at::Tensor* owned = nullptr;
    // The values of the graph's size symbols, in order; nullptr: read from the inputs.
    const int64_t* symbols = nullptr;
    bool holds_gil = false;  // given up while the kernels run, if that pays
    // After the call: one per graph output; undefined for None.
    c10::SmallVector<at::Tensor, 8> results;
    std::vector<int64_t> told;
  };
  // Calls may overlap. Throws what operators throw.
  void run(Call& call) const;

  // What was packed of frozen inputs is made anew by the next call.
  void forget_packed();
  // What is packed stays until it is forgotten, wherever the inputs are then.
  void keep_packed();
  // Per input: whether calls read it in memory, besides what is packed.
  std::vector<bool> reads_in_memory() const;

  size_t inputs() const;
  size_t outputs() const;
  const plan::Plan& plan() const;
  ReplayFacts replay_facts() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace braze::launch
