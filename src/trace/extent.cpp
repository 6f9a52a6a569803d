// How far as_strided reads.
#include "base/check.h"
#include "trace/recorder.h"

namespace braze::trace {

using graph::Arg;
using graph::ValueId;

// Later calls have other sizes, and are not to read behind the memory: what is read lies within the elements of the
// tensor that the memory belongs to, which is guarded.
void Recorder::check_extent(const std::vector<Arg>& args) {
  ValueId root = std::get<ValueId>(args[0]);
  const TensorType base = graph_.type(root);
  while (graph_.value(root).node.valid()) {
    const graph::Node& node = graph_.node(graph_.value(root).node);
    auto* operand = node.args.empty() ? nullptr : std::get_if<ValueId>(&node.args[0]);
    if (graph::op_class(node.op) != graph::OpClass::View || !operand) break;
    root = *operand;
  }
  const TensorType own = graph_.type(root);
  auto& a = arena();
  auto last = [&](sym::Expr at, const auto& sizes, const auto& strides) {
    for (size_t d = 0; d < sizes.size(); ++d) at = a.add(at, a.mul(a.sub(sizes[d], a.constant(1)), strides[d]));
    return at;
  };
  const auto& sizes = std::get<graph::IntList>(args[1]).v;
  const auto& strides = std::get<graph::IntList>(args[2]).v;
  auto* offset = std::get_if<sym::Expr>(&args[3]);
  auto empty = [&](const auto& of) { return sizes_->decide(a.eq(a.product(of), a.constant(0))); };
  if (empty(sizes)) return;
  if (empty(own.sizes) || !sizes_->decide(a.le(last(offset ? *offset : base.offset, sizes, strides),
                                               last(own.offset, own.sizes, own.strides))))
    throw Unsupported(Reason::UnsupportedOp, "as_strided beyond the elements of the tensor");
}

}  // namespace braze::trace
