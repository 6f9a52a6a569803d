// What one torch call writes to: what recording it as a write of the result cannot say.
#pragma once
#include <ATen/core/Tensor.h>
#include <Python.h>

#include <vector>

#include "graph/graph.h"
#include "trace/recorder.h"

namespace braze::trace {

// A tensor that the call writes to, and what it holds before.
class WrittenTensor {
 public:
  WrittenTensor() = default;
  explicit WrittenTensor(const at::Tensor&);  // before the call
  // After the call: it keeps its strides, whatever those of the functional form's result are.
  void keep_strides(Recorder& recorder) const;

 private:
  at::Tensor written_, before_;  // undefined: it is none of functionalisation's
  size_t views_ = 0;             // of its memory, by which it is seen
};

// Its out= argument.
class OutArgument {
 public:
  // Before the call. All of it is empty without out=.
  OutArgument(Recorder& recorder, PyObject* fn, PyObject* const* args, size_t nargs, PyObject* kwargs);

  // Eager's kernels read their operands while they write out=: where these share memory, it raises, or gives what its
  // kernel happens to do. Operators by element may write to an operand itself, which has the result's dtype.
  bool is_shared() const { return shared_; }
  // After the call, whose nodes begin with `first`: the result is of another size. Eager then resizes what it is to
  // write to, with a warning where that had elements; views of the same memory stay as they were.
  bool was_resized(const graph::Graph& graph, size_t first) const;
  // Whether a node from `first` on casts what goes to it, where eager may refuse its dtype.
  bool may_be_refused(const graph::Graph& graph, size_t first) const;
  // After the call, of a result of the same size.
  void keep_strides() const {
    for (const WrittenTensor& t : written_) t.keep_strides(recorder_);
  }

 private:
  Recorder& recorder_;
  std::vector<at::Tensor> tensors_;
  std::vector<WrittenTensor> written_;
  std::vector<std::vector<c10::SymInt>> sizes_;  // before the call
  bool shared_ = false;
};

// Its first argument, by an in-place function: x.add_(y), x += y; of a function written in Python, any.
class WrittenOperand {
 public:
  // Before the call.
  WrittenOperand(Recorder& recorder, PyObject* fn, PyObject* const* args, size_t nargs, PyObject* kwargs);

  // Another argument has some of its memory, and eager's kernels refuse that (or read what they have just written).
  bool is_read() const { return is_read_; }
  // Elements are shown several times, or through windows: what is written is not put back as eager writes it.
  bool is_spread() const { return is_spread_; }
  // After the call, whose nodes begin with `first`: the result's dtype cannot become that of what is written.
  bool is_refused(const graph::Graph& graph, size_t first) const;
  // After the call.
  void keep_strides() const {
    for (const WrittenTensor& t : written_) t.keep_strides(recorder_);
  }

 private:
  bool is_read_by_item(PyObject* written, PyObject* index, PyObject* value) const;

  Recorder& recorder_;
  at::Tensor tensor_;  // undefined: none is written, or takes any dtype
  std::vector<WrittenTensor> written_;
  bool is_read_ = false, is_spread_ = false;
};

}  // namespace braze::trace
