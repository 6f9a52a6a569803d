#include <array>
#include <unordered_map>

#include "graph/graph.h"

namespace braze::graph {
namespace {

struct Row {
  std::string_view aten;
  OpClass cls;
  uint8_t traits;
};
constexpr Row kTable[] = {
#define BRAZE_OP(name, aten, cls, traits) {aten, OpClass::cls, static_cast<uint8_t>(traits)},
#include "graph/ops.def"
#undef BRAZE_OP
};
constexpr size_t kRows = std::size(kTable);
static_assert(kRows == static_cast<size_t>(Op::Extern));

}  // namespace

// A call without a row may do anything, so that it is neither moved nor dropped unless the recorder knows better.
OpClass op_class(Op op) { return op == Op::Extern ? OpClass::Extern : kTable[static_cast<size_t>(op)].cls; }
uint8_t op_traits(Op op) { return op == Op::Extern ? uint8_t{kEffect} : kTable[static_cast<size_t>(op)].traits; }
std::string_view op_name(Op op) { return op == Op::Extern ? "extern" : kTable[static_cast<size_t>(op)].aten; }

Op op_from_name(std::string_view aten_name) {
  static const auto* names = [] {
    auto* m = new std::unordered_map<std::string_view, Op>;
    for (size_t i = 0; i < kRows; ++i) m->emplace(kTable[i].aten, static_cast<Op>(i));
    return m;
  }();
  auto it = names->find(aten_name);
  return it == names->end() ? Op::Extern : it->second;
}

}  // namespace braze::graph
