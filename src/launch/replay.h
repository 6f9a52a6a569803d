// What a compiled region drew, once more: where it is differentiated again, it runs uncompiled on the same random
// values.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "base/options.h"
#include "graph/graph.h"

namespace braze::launch {

class CompiledGraph;
class RandomReplay;

// The results of `graph`'s random operators in order, of a dropout its mask, of an RReLU its slopes: what RandomReplay
// would have to draw, but can't. Empty where it can, where there are none, where they are on a GPU, which a forward
// would only keep at a cost, and for operators of several results that are not known here.
std::vector<graph::ValueId> draws_to_keep(const graph::Graph& graph, const RandomReplay& replay);

class RandomReplay {
 public:
  // `captured`: the region's graph before any pass.
  RandomReplay(const graph::Graph& captured, const Options& options);
  ~RandomReplay();
  // False: a draw depends on more than its type, or is not made on the CPU.
  bool possible() const { return possible_; }
  // Of the generator that the region is about to draw from.
  static at::Tensor state();

  // While it lives, the generator is as it was when the region was called.
  class Rewound {
   public:
    explicit Rewound(const at::Tensor& state);
    ~Rewound();
    Rewound(const Rewound&) = delete;

   private:
    at::Tensor now_;
  };
  // The values that the region's random operators gave, in order; of a dropout its mask. `symbols`: of that call.
  std::vector<at::Tensor> draw(const at::Tensor& state, const std::vector<int64_t>& symbols);

 private:
  graph::Graph graph_;  // the random operators alone
  Options options_;
  bool possible_ = true;
  std::unique_ptr<CompiledGraph> compiled_;
};

}  // namespace braze::launch
