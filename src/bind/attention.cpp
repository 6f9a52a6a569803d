#include "bind/attention.h"

#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "launch/flex_attention.h"
#include "launch/operators.h"

namespace braze::bind {
namespace {

namespace py = pybind11;

// As braze::flex_attention takes them; per kernel its text and what a launch needs. `roles` are those of
// codegen/triton/attention.h.
py::list kernels(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, std::vector<at::Tensor> rows,
                 std::vector<at::Tensor> columns, std::vector<at::Tensor> operands, const std::string& functions,
                 int64_t q_block, int64_t kv_block, double scale, bool backward) {
  launch::flex::Call call{query,   key,      value, std::move(rows), std::move(columns), std::move(operands), functions,
                          q_block, kv_block, scale};
  py::list out;
  for (const codegen::triton::AttentionSource& s : launch::flex::kernel_sources(call, backward)) {
    py::dict d;
    d["text"] = s.source.text;
    d["kernel"] = s.source.kernel;
    d["arguments"] = s.source.arguments;
    d["warps"] = s.source.warps;
    d["stages"] = s.source.stages;
    d["aligned"] = s.source.aligned;
    d["roles"] = s.roles;
    d["rows"] = s.rows;
    out.append(d);
  }
  return out;
}

}  // namespace

void add_attention_hooks(py::module_& module) {
  module.def("_attention_kernels", &kernels);
  module.def("_register_operators", &launch::flex::register_operators);
}

}  // namespace braze::bind
