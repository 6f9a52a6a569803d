#include "trace/kernel_launches.h"

#include "base/check.h"

namespace braze::trace {

PyObject* find_launch(int64_t number) {
  PyObject* module = PyImport_ImportModule("braze._user_kernels");
  PyObject* found = module ? PyObject_CallMethod(module, "find_launch", "L", static_cast<long long>(number)) : nullptr;
  Py_XDECREF(module);
  if (!found) PyErr_Clear();
  if (found != Py_None) return found;
  Py_DECREF(found);
  return nullptr;
}

void hold_launches(const graph::Graph& graph, size_t first, std::vector<PyObject*>& held) {
  for (size_t i = first; i < graph.nodes().size(); ++i) {
    const graph::Node& n = graph.node(graph::NodeId(i));
    if (n.extern_name != kLaunchKernel) continue;
    auto number = graph.arena().as_const(std::get<sym::Expr>(n.args.back()));
    PyObject* launch = number ? find_launch(*number) : nullptr;
    BRAZE_CHECK(launch, "a kernel is launched that nobody holds");
    held.push_back(launch);
  }
}

}  // namespace braze::trace
