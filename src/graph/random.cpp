#include "graph/random.h"

namespace braze::graph {

bool is_seeded(const Node& n) {
  return op_class(n.op) == OpClass::Random && !n.args.empty() && std::holds_alternative<ValueId>(n.args.back());
}

uint8_t traits_of(const Node& n) {
  uint8_t traits = op_traits(n.op);
  // A launch of a kernel has no effect but on what it writes.
  if (n.op == Op::Extern && n.extern_name == "braze::launch_kernel" && !n.outputs.empty()) return traits & ~kEffect;
  return is_seeded(n) ? traits & ~(kEffect | kNondeterministic) : traits;
}

}  // namespace braze::graph
