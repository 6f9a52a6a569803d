// How far as_strided reads, and where what is resized lies.
#include "base/check.h"
#include "graph/copied_view.h"
#include "graph/shape.h"
#include "trace/tracer_impl.h"

namespace braze::trace {

using graph::Arg;
using graph::ValueId;

// Later calls have other sizes, and are not to read behind the memory: what is read lies within the elements of the
// tensor that the memory belongs to, which is guarded. Counted in bytes, since a view may be of another dtype.
void Recorder::check_extent(const std::vector<Arg>& args) {
  check_resized(args);
  const ValueId view = std::get<ValueId>(args[0]), root = graph::memory_root(graph_, view);
  const TensorType base = graph_.type(view), own = graph_.type(root);
  auto& a = arena();
  // What lies between the elements of an argument is its caller's; between those of what it holds once it was written
  // to there is nothing.
  if (graph_.value(root).node.valid() && !graph::is_non_overlapping_and_dense(a, own))
    throw Unsupported(Reason::UnsupportedOp, "as_strided of a tensor with gaps that was written to");
  auto end = [&](sym::Expr at, const auto& sizes, const auto& strides, DType dtype) {
    for (size_t d = 0; d < sizes.size(); ++d) at = a.add(at, a.mul(a.sub(sizes[d], a.constant(1)), strides[d]));
    return a.mul(a.add(at, a.constant(1)), a.constant(size_of(dtype)));
  };
  const auto& sizes = std::get<graph::IntList>(args[1]).v;
  const auto& strides = std::get<graph::IntList>(args[2]).v;
  if (sizes.size() != strides.size()) return;  // an error, which its Meta kernel raises
  auto* offset = std::get_if<sym::Expr>(&args[3]);
  auto empty = [&](const auto& of) { return sizes_->decide(a.eq(a.product(of), a.constant(0))); };
  if (empty(sizes)) return;
  if (empty(own.sizes) || !sizes_->decide(a.le(end(offset ? *offset : base.offset, sizes, strides, base.dtype),
                                               end(own.offset, own.sizes, own.strides, own.dtype))))
    throw Unsupported(Reason::UnsupportedOp, "as_strided beyond the elements of the tensor");
}

// Functionalisation makes of resize_ a resize, and as_strided of the same memory where that is large enough.
void Recorder::check_resized(const std::vector<Arg>& args) {
  if (graph_.nodes().empty()) return;
  const graph::Node& last = graph_.node(graph::NodeId(static_cast<uint32_t>(graph_.nodes().size() - 1)));
  if (last.extern_name != "aten::resize" || !(last.args[0] == args[0]) || !(last.args[1] == args[1])) return;
  constexpr int kContiguous = static_cast<int>(c10::MemoryFormat::Contiguous);
  if (auto* format = std::get_if<graph::MemoryFormatArg>(&last.args[2]); format && format->value != kContiguous)
    throw Unsupported(Reason::UnsupportedOp, "resize_ with a memory format");
  // Of the sizes that it has already, a tensor stays as it is.
  const TensorType type = graph_.type(std::get<ValueId>(args[0]));
  if (std::get<graph::IntList>(args[1]).v.size() == type.sizes.size() && !is_contiguous(arena(), type))
    throw Unsupported(Reason::UnsupportedOp, "resize_ of a tensor that is not contiguous");
}

}  // namespace braze::trace
