// Tracing without capture, for the tests: `braze._C._Tracer`.
#pragma once
#include <pybind11/pybind11.h>

namespace braze::bind {

// Adds class _Tracer (lift, call, recording as a context, finish, graph_module) and the functions _graph_break_of,
// _guard_mismatch, _global_state_key and _pytorch_lacks to the module.
void add_trace_hooks(pybind11::module_& module);

}  // namespace braze::bind
