// Complex numbers as pairs of real ones: rotary embeddings as view_as_real(view_as_complex(x) * angles), spectra that
// are scaled. What would be a call of PyTorch's for each operator becomes real arithmetic, which fuses with casts
// around it.
#pragma once
#include "graph/graph.h"

namespace braze::passes {

// Products, sums, differences and views of complex64 and complex128 between view_as_complex, complex, polar
// or inputs on the one side and view_as_real on the other, where no other operator and no result needs one of them as
// it is. Results differ by rounding.
graph::Graph unfold_complex(const graph::Graph& g);

}  // namespace braze::passes
