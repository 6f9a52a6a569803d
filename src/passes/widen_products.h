// Products, convolutions and attention of half types on a CPU whose library has no instructions for them: by the
// float32 ones. Such a library multiplies element by element there, at a tenth of its speed in float32 and less.
#pragma once
#include "graph/graph.h"
#include "graph/targets.h"

namespace braze::passes {

// Layers that a kernel of ours makes of the halves as they are stay. Else op(a, b) of a half type becomes
// cast(op(cast(a), cast(b))): what the library does within, too, which adds up in float32 and rounds the sum once.
graph::Graph widen_products(const graph::Graph& g, const Targets& targets);

// The same before frozen weights are computed once: not of layers that read less where the weight stays as it is.
graph::Graph widen_weights(const graph::Graph& g, const Targets& targets);

}  // namespace braze::passes
