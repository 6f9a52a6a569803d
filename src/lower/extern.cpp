// Calls into PyTorch.
#include <algorithm>

#include "base/check.h"
#include "graph/written.h"
#include "lower/rules.h"

namespace braze::lower {

using graph::Op;

namespace {

// The arguments that PyTorch knows: losses mark their gathers by one more, and products that are done again.
size_t formals(const graph::Node& node) {
  if (node.op == Op::gather) return 4;
  if (node.op == Op::mm) return 2;
  if (node.op == Op::addmm) return 5;
  return node.op == Op::index_Tensor ? 2 : node.args.size();
}

// Views that lowering has no window for run as copies, so that no result shares storage that the plan may reuse.
std::string call_name(const graph::Node& node) {
  switch (node.op) {
    case Op::Extern: return node.extern_name;
    case Op::view_as_real: return "aten::view_as_real_copy";
    case Op::view_as_complex: return "aten::view_as_complex_copy";
    default: return std::string(graph::op_name(node.op));
  }
}

// Where products of half types are several times slower with rows of other than a multiple of 16 bytes, large results
// get longer rows, and their readers see a window.
std::optional<TensorType> padded_rows(Lowering& low, graph::ValueId v) {
  constexpr int64_t kElements = 8, kWorth = 1 << 20;
  TensorType t = low.source.type(v);
  if (!low.targets.of(t.device).slow_odd_rows || size_of(t.dtype) != 2 || t.dim() != 2) return std::nullopt;
  auto rows = low.arena.as_const(t.sizes[0]), columns = low.arena.as_const(t.sizes[1]);
  if (!rows || !columns || *columns % kElements == 0 || *rows * *columns < kWorth) return std::nullopt;
  t.strides = {low.arena.constant((*columns + kElements - 1) / kElements * kElements), low.arena.constant(1)};
  return t;
}

// Memory that nobody wrote to yet.
bool is_uninitialised(const graph::Graph& g, graph::ValueId v) {
  if (!g.value(v).node.valid()) return false;
  switch (g.node(g.value(v).node).op) {
    case Op::empty_memory_format:
    case Op::empty_like:
    case Op::empty_strided:
    case Op::new_empty:
    case Op::new_empty_strided: return true;
    default: return false;
  }
}

}  // namespace

std::optional<size_t> filled_result(const graph::Graph& g, const graph::Node& node, size_t place, graph::ValueId v) {
  if (!is_uninitialised(g, v)) return std::nullopt;
  const std::vector<int32_t> copied = graph::written_operands(node.list_sizes);
  auto at = static_cast<size_t>(std::find(copied.begin(), copied.end(), static_cast<int32_t>(place)) - copied.begin());
  if (at >= node.outputs.size() || !node.outputs[at].valid()) return std::nullopt;
  return g.type(v).strides == g.type(node.outputs[at]).strides ? std::optional(at) : std::nullopt;
}

void lower_extern(Lowering& low, graph::NodeId n) {
  const graph::Node& node = low.source.node(n);
  loop::ExternCall call;
  call.name = call_name(node);
  call.op = call.name == graph::op_name(node.op) ? node.op : Op::Extern;
  call.preallocated = graph::op_traits(node.op) & graph::kOutVariant;
  call.list_sizes = node.list_sizes;
  if (node.loc.valid()) call.locs.push_back(node.loc);
  std::vector<loop::View> made(node.outputs.size());  // results that are operands, on their memory from the start
  auto tensor = [&](graph::ValueId v) {
    if (!v.valid()) return loop::ViewRef{};
    if (auto at = filled_result(low.source, node, call.views.size(), v)) {
      call.views.push_back(made[*at] = low.allocate(node.outputs[*at], true));
      return loop::ViewRef(call.views.size() - 1);
    }
    call.views.push_back(low.operand(v, !call.preallocated));
    return loop::ViewRef(call.views.size() - 1);
  };
  for (size_t i = 0; i < std::min(formals(node), node.args.size()); ++i) {
    const graph::Arg& arg = node.args[i];
    call.args.push_back(std::visit(
        [&](const auto& a) -> loop::ExternArg {
          using T = std::decay_t<decltype(a)>;
          if constexpr (std::is_same_v<T, graph::ValueId>) {
            return tensor(a);
          } else if constexpr (std::is_same_v<T, graph::TensorList>) {
            std::vector<loop::ViewRef> refs;
            for (graph::ValueId v : a) refs.push_back(tensor(v));
            return refs;
          } else {
            return a;
          }
        },
        arg));
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    graph::ValueId v = node.outputs[i];
    if (made[i].buffer.valid()) {
      call.outputs.push_back(made[i]);
    } else if (!v.valid() || (!call.preallocated && low.unused(v) && !low.binds_symbol(v))) {
      call.outputs.push_back({});
    } else if (auto padded = call.preallocated ? padded_rows(low, v) : std::nullopt) {
      call.outputs.push_back(low.fresh_buffer(*padded, true));
      low.set_view(v, call.outputs.back());
    } else {
      call.outputs.push_back(low.allocate(v, !call.preallocated));
    }
  }
  low.program.items.emplace_back(std::move(call));
}

}  // namespace braze::lower
