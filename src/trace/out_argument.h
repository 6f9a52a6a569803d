// The out= argument of one torch call: what recording it as a write of the result cannot say.
#pragma once
#include <ATen/core/Tensor.h>
#include <Python.h>

#include <vector>

#include "graph/graph.h"

namespace braze::trace {

class OutArgument {
 public:
  // Before the call. All of it is empty without out=.
  OutArgument(PyObject* fn, PyObject* const* args, size_t nargs, PyObject* kwargs);

  // Eager's kernels read their operands while they write out=: where these share memory, it raises, or gives what its
  // kernel happens to do. Operators by element may write to an operand itself, which has the result's dtype.
  bool is_shared() const { return shared_; }
  // After the call, whose nodes begin with `first`: the result is of another size. Eager then resizes what it is to
  // write to, with a warning where that had elements; views of the same memory stay as they were.
  bool was_resized(const graph::Graph& graph, size_t first) const;
  // Whether a node from `first` on casts what goes to it, where eager may refuse its dtype.
  bool may_be_refused(const graph::Graph& graph, size_t first) const;

 private:
  std::vector<at::Tensor> tensors_;
  std::vector<std::vector<c10::SymInt>> sizes_;  // before the call
  bool shared_ = false;
};

}  // namespace braze::trace
