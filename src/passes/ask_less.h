// Operators of linear algebra that compute vectors beside values, where only the values are used.
//
// `linalg.svdvals` (and what is made of it: `cond`, the nuclear norm, `matrix_rank`), `eigvalsh` and `eigvals` compute
// values alone in eager PyTorch if no gradient is wanted. PyTorch does not decide so for the tensors that are traced:
// it records the operator that computes the vectors, too, by another algorithm with other rounding errors, in up to
// twice the time.
#pragma once
#include "graph/graph.h"

namespace braze::passes {

graph::Graph ask_less(graph::Graph g);

}  // namespace braze::passes
