// Products of a few rows with a matrix of dense columns, which a target may make from small matrices that its hardware
// multiplies at once: in a kernel of ours, then, and not by the library.
#pragma once
#include "graph/graph.h"
#include "graph/targets.h"

namespace braze::graph {

// mm(rows, matrix), or addmm(bias, rows, matrix) without factors: half types, sizes known, 2 rows at least
// (one of a matrix of bytes that are widened) and the target's most at most, columns of whole vectors of 16 bytes.
bool is_narrow_product(const Graph& g, const Node& n, const Targets& targets);

// mm(row, matrix), or addmm(bias, row, matrix) without factors, of floats of at most four bytes and columns that lie
// dense, which sums compute faster on a GPU than its library, on a CPU than making the matrix first: of a matrix that
// is computed from fewer bytes than it takes. Not what is_narrow_product is.
bool is_thin_product(const Graph& g, const Node& n, const Targets& targets);

}  // namespace braze::graph
