#include "trace/shared_histories.h"

#include <pybind11/pybind11.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/python_cpp_function.h>
#include <torch/csrc/autograd/python_variable.h>

#include <bit>
#include <string_view>
#include <unordered_map>

namespace braze::trace {
namespace {

using torch::autograd::Node;

constexpr size_t kMost = 8;  // tensors

bool holds_tensor(PyObject* value) {
  if (THPVariable_Check(value)) return true;
  if (!PyTuple_Check(value)) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value); ++i)
    if (holds_tensor(PyTuple_GET_ITEM(value, i))) return true;
  return false;
}

// PyTorch shows what a node keeps by getters, https://docs.pytorch.org/docs/stable/notes/autograd.html#saved-tensors.
bool keeps_tensors(const decltype(torch::autograd::Edge::function)& node) {
  static constexpr std::string_view kPrefix = "_saved_", kOfPython = "saved_tensors";
  PyObject* object = torch::autograd::functionToPyObject(node);
  if (!object) {
    PyErr_Clear();
    return true;
  }
  bool found = false;
  for (PyTypeObject* type = Py_TYPE(object); type && !found; type = type->tp_base)
    for (PyGetSetDef* g = type->tp_getset; g && g->name && !found; ++g) {
      const std::string_view name = g->name;
      if (!name.starts_with(kPrefix) && name != kOfPython) continue;
      PyObject* value = g->get(object, g->closure);
      if (!value) PyErr_Clear();
      found = !value || holds_tensor(value);
      Py_XDECREF(value);
    }
  Py_DECREF(object);
  return found;
}

}  // namespace

std::vector<std::vector<bool>> shared_histories(const std::vector<at::Tensor>& tensors) {
  const size_t n = tensors.size();
  if (n < 2 || n > kMost) return {};
  using Pointer = decltype(torch::autograd::Edge::function);
  struct Met {
    Pointer node;
    uint32_t by = 0;  // bits: tensors
  };
  std::unordered_map<Node*, Met> met;
  for (size_t i = 0; i < n; ++i) {
    std::vector<Pointer> todo{tensors[i].grad_fn()};
    while (!todo.empty()) {
      Pointer node = std::move(todo.back());
      todo.pop_back();
      if (!node) continue;
      Met& m = met[&*node];
      const uint32_t bit = 1u << i;
      if (m.by & bit) continue;
      m.by |= bit;
      for (const torch::autograd::Edge& e : node->next_edges()) todo.push_back(e.function);
      if (!m.node) m.node = std::move(node);
    }
  }
  std::vector<uint32_t> with(n);
  for (const auto& [pointer, m] : met) {
    bool known = true;
    for (uint32_t left = m.by; left; left &= left - 1)
      known = known && (with[static_cast<size_t>(std::countr_zero(left))] & m.by) == m.by;
    if (known || !keeps_tensors(m.node)) continue;
    for (uint32_t left = m.by; left; left &= left - 1) with[static_cast<size_t>(std::countr_zero(left))] |= m.by;
  }
  std::vector<std::vector<bool>> out(n, std::vector<bool>(n));
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < n; ++j) out[i][j] = with[i] >> j & 1;
  return out;
}

}  // namespace braze::trace
