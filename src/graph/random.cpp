#include "graph/random.h"

namespace braze::graph {

bool is_seeded(const Node& n) {
  return op_class(n.op) == OpClass::Random && !n.args.empty() && std::holds_alternative<ValueId>(n.args.back());
}

uint8_t traits_of(const Node& n) {
  uint8_t traits = op_traits(n.op);
  return is_seeded(n) ? traits & ~(kEffect | kNondeterministic) : traits;
}

}  // namespace braze::graph
