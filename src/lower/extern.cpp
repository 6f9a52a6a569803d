// Calls into PyTorch.
#include "base/check.h"
#include "lower/rules.h"

namespace braze::lower {

using graph::Op;

namespace {

// Operators with a true out-variant, which take operands of any strides.
bool writes_in_place(Op op) {
  switch (op) {
    case Op::mm:
    case Op::addmm:
    case Op::bmm:
    case Op::baddbmm: return true;
    default: return false;
  }
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

}  // namespace

void lower_extern(Lowering& low, graph::NodeId n) {
  const graph::Node& node = low.source.node(n);
  loop::ExternCall call;
  call.name = call_name(node);
  call.op = call.name == graph::op_name(node.op) ? node.op : Op::Extern;
  call.preallocated = writes_in_place(node.op);
  call.list_sizes = node.list_sizes;
  if (node.loc.valid()) call.locs.push_back(node.loc);
  auto tensor = [&](graph::ValueId v) {
    if (!v.valid()) return loop::ViewRef{};
    call.views.push_back(call.preallocated ? low.realise(v) : low.realise_exact(v));
    return loop::ViewRef(call.views.size() - 1);
  };
  for (const graph::Arg& arg : node.args) {
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
  for (graph::ValueId v : node.outputs) call.outputs.push_back(v.valid() && (call.preallocated || !low.unused(v)) ? low.allocate(v, !call.preallocated) : loop::View{});
  low.program.items.emplace_back(std::move(call));
}

}  // namespace braze::lower
