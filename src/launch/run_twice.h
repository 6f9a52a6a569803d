// Whether a region may be run once more than the program asks for, as PyTorch's calls or compiled, so that nobody can
// tell but by a clock. No torch header.
#pragma once
#include <Python.h>

#include <cstdint>
#include <memory>
#include <string>

#include "graph/graph.h"
#include "trace/trace.h"

namespace braze::launch {

// What a captured graph without a backward says of it.
class RunTwice {
 public:
  explicit RunTwice(const graph::Graph& captured);
  ~RunTwice();
  RunTwice(const RunTwice&) = delete;

  // Empty: it writes to nothing, draws nothing, calls no operator but PyTorch's own, and its sizes are known before it
  // runs.
  const std::string& why_not() const { return why_not_; }
  // Bytes that the operators' results take at most at one time when they are computed one by one. `symbols`: values of
  // the graph's size symbols. Only if there is no why_not().
  int64_t peak_bytes(const int64_t* symbols) const;
  bool on_gpu() const { return on_gpu_; }

  // Whether this moment suits, on this thread: nobody profiles or sees each operator, no CUDA Graph is recorded, and no
  // history would be made of these inputs (tensors).
  bool now(PyObject* const* inputs, size_t n) const;
  // Seconds since some fixed moment, when all that this thread put on the GPU is done.
  double clock() const;

 private:
  std::string why_not_;
  bool on_gpu_ = false;
  struct Values;
  std::unique_ptr<Values> values_;
};

}  // namespace braze::launch
