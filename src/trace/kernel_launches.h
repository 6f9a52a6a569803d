// Launches of the program's own Triton kernels (python/braze/_user_kernels.py). A graph names one by its number, the
// last argument of braze::launch_kernel; what is captured holds the object.
#pragma once
#include <Python.h>

#include <cstdint>
#include <vector>

#include "graph/graph.h"
#include "graph/user_kernel.h"

namespace braze::trace {

// (Tensor(a!)[] written, Tensor[] read, SymInt[] integers, int[] same, int launch) -> (). `same`: nothing, or for each
// tensor the place of the first one on the same memory, which a graph's values do not say.
using graph::kLaunchKernel;

// A new reference; nullptr, without an exception: it is gone. Needs the GIL.
PyObject* find_launch(int64_t number);
// Adds new references to the launches of the graph's nodes from `first` on.
void hold_launches(const graph::Graph& graph, size_t first, std::vector<PyObject*>& held);

}  // namespace braze::trace
