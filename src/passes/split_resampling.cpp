#include "passes/split_resampling.h"

#include "passes/builder.h"

namespace braze::passes {
namespace {

// (input, output size, align_corners, scale of rows, of columns)
bool splits(const Graph& g, const Node& n, const Targets& targets) {
  auto* input = n.args.size() == 5 ? std::get_if<ValueId>(n.args.data()) : nullptr;
  if (n.op != Op::upsample_bilinear2d || !input || n.outputs.size() != 1 || !n.outputs[0].valid()) return false;
  const TensorType &from = g.type(*input), &to = g.type(n.outputs[0]);
  if (targets.of(to.device).is_gpu() || from.dim() != 4 || to.dim() != 4) return false;
  if (to.dtype != DType::F32 && to.dtype != DType::F64) return false;
  sym::ExprArena& a = g.arena();
  if (!is_contiguous(a, from) || !is_contiguous(a, to)) return false;
  for (size_t d : {2, 3}) {
    auto size = a.as_const(from.sizes[d]), wanted = a.as_const(to.sizes[d]);
    if (!size || !wanted || *size == *wanted) return false;
  }
  return true;
}

}  // namespace

Graph split_resampling(const Graph& g, const Targets& targets) {
  Rewriter r(g);
  for (const Node& n : g.nodes()) {
    if (!splits(g, n, targets)) {
      r.copy(n);
      continue;
    }
    const TensorType &from = g.type(std::get<ValueId>(n.args[0])), &to = g.type(n.outputs[0]);
    const size_t first = *g.arena().as_const(from.sizes[2]) <= *g.arena().as_const(to.sizes[2]) ? 3 : 2,
                 second = 5 - first;
    TensorType between = to;
    between.sizes[second] = from.sizes[second];
    between.strides = contiguous_strides(g.arena(), between.sizes);
    std::vector<Arg> args = r.map_args(n), last = args;
    args[1] = graph::IntList{{between.sizes[2], between.sizes[3]}};
    args[1 + second] = graph::NoneArg{};
    last[1 + first] = graph::NoneArg{};
    ValueId v = r.out().node(r.copy(n, std::move(args))).outputs[0];
    r.out().value(v).type = between;
    last[0] = v;
    ValueId out = r.out().node(r.copy(n, std::move(last))).outputs[0];
    r.out().value(out).type = to;
    r.replace(n.outputs[0], out);
  }
  return r.finish();
}

}  // namespace braze::passes
