// The torch-level calls of one capture, and the torch.fx.GraphModule that is built from them when a user asks.
#pragma once
#include <Python.h>

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "symbolic/expr.h"
#include "trace/ambient.h"
#include "trace/torch_calls.h"

namespace braze::trace {

// The module enters and leaves the modes that its calls ran under where they change.
class CallList {
 public:
  CallList() = default;
  ~CallList();
  CallList(const CallList&) = delete;
  CallList& operator=(const CallList&) = delete;

  // Notes a call that returned `result`. Containers are copied: what the program does to them later is not seen.
  // False with a Python exception set on failure.
  bool add(PyObject* fn, PyObject* const* args, size_t nargs, PyObject* kwargs, PyObject* result,
           const Ambient& ambient);

  // Appends the addresses of all fakes that calls read (`is_fake` decides), in order, with repetitions.
  template <class IsFake>
  void operands(IsFake&& is_fake, std::vector<PyObject*>& into) const {
    for (const Call& call : calls_) {
      walk(call.args, is_fake, into);
      walk(call.kwargs, is_fake, into);
    }
  }

  struct Input {
    PyObject* fake;  // nullptr: one that only the ATen graph has
    std::string name;
    std::vector<sym::Expr> sizes, strides;  // elements, over `symbols`
  };
  // `inputs`: the placeholders; their meta holds `braze_layout`, texts of their sizes and strides. `outside`: the modes
  // that the module will be called under. New reference, or nullptr with a Python exception set.
  // `symbols`: further placeholders, before the inputs: the values of these size symbols, in terms of which `size` says
  // what a torch.SymInt is (false: it is none).
  using Size = std::function<bool(PyObject* sym, sym::Expr* out)>;
  PyObject* graph_module(const std::vector<Input>& inputs, const std::vector<PyObject*>& outputs,
                         const Ambient& outside, const sym::ExprArena& arena, const std::vector<sym::Expr>& symbols,
                         const Size& size) const;

  // The same as data. `is_fake`: of the tensors of the graph.
  TorchLevel describe(const std::vector<Input>& inputs, const std::vector<PyObject*>& outputs, const Ambient& outside,
                      const std::vector<sym::Expr>& symbols, const std::function<bool(PyObject*)>& is_fake,
                      const Size& size) const;

 private:
  struct Call {
    PyObject *fn, *args, *kwargs, *result;  // owned; kwargs may be nullptr
    Ambient ambient;
  };
  template <class IsFake>
  static void walk(PyObject* obj, IsFake&& is_fake, std::vector<PyObject*>& into) {
    if (!obj) return;
    if (PyTuple_Check(obj)) {
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(obj); ++i) walk(PyTuple_GET_ITEM(obj, i), is_fake, into);
    } else if (PyList_Check(obj)) {
      for (Py_ssize_t i = 0; i < PyList_GET_SIZE(obj); ++i) walk(PyList_GET_ITEM(obj, i), is_fake, into);
    } else if (PyDict_Check(obj)) {
      PyObject *key, *value;
      Py_ssize_t at = 0;
      while (PyDict_Next(obj, &at, &key, &value)) walk(value, is_fake, into);
    } else if (PySlice_Check(obj)) {
      auto* slice = reinterpret_cast<PySliceObject*>(obj);
      walk(slice->start, is_fake, into);
      walk(slice->stop, is_fake, into);
      walk(slice->step, is_fake, into);
    } else if (is_fake(obj)) {
      into.push_back(obj);
    }
  }
  std::vector<Call> calls_;
};

}  // namespace braze::trace
