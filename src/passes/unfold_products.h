// Where the library is slow at it the product of one row with a matrix is a sum of products, on x86 that of a vector or
// a column, too, and of batches of them. There is nothing that such a product could use twice: it is as fast as the
// matrix can be read, which the libraries' kernels for matrices do at half of the bandwidth; and as a sum it takes what
// comes before (a norm's scale, the matrix's own dtype) and after it (bias, activation, residual) into its kernel. As
// the decomposition of Inductor for vectors. The product of columns with rows, an outer one, is a product of elements
// on every device: of the frequencies with the positions of rotary embeddings, of one row's gradient with its input.
#pragma once
#include "graph/graph.h"
#include "graph/targets.h"

namespace braze::passes {

// Before fuse_activation: a product that is a sum needs no call to apply its activation.
graph::Graph unfold_products(const graph::Graph& g, const Targets& targets);

}  // namespace braze::passes
