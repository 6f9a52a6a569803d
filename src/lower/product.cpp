// Products of few rows as nests of sums (loop/product.h): the rows from a buffer, the matrix by its formula, so that
// what makes it (a cast, a scale) is done where it is read.
#include "graph/narrow_product.h"
#include "lower/rules.h"

namespace braze::lower {

bool lower_product(Lowering& low, graph::NodeId n) {
  const graph::Node& node = low.source.node(n);
  const size_t first = node.op == graph::Op::addmm;
  const graph::ValueId result = node.outputs[0], rows = tensor(node, first), matrix = tensor(node, first + 1);
  const TensorType& out = low.source.type(result);
  View x = low.realise(rows);
  if (low.is_realised(matrix) && !low.indexing.is_one(low.realise(matrix).strides[0])) return false;
  View target = low.allocate(result);
  std::vector<Expr> at;
  std::vector<loop::Axis> outer = low.axes(target.sizes, target.strides, at);
  Expr length = sizes(low, matrix)[0], k = low.symbols.loop_var('r', 0, length);
  Body body = low.body();
  body.begin_stage({{k, length}});
  // Rounded to the type that is multiplied, also where no buffer holds it.
  auto factor = [&](ValId v) { return Val{&body, v}.rounded(out.dtype).to(DType::F32); };
  const Expr row_index[] = {at[0], k}, column_index[] = {k, at[1]};
  Val product = factor(low.emit(body, rows, row_index)) * factor(low.emit(body, matrix, column_index));
  Val sum{&body, body.reduce(ReduceKind::Sum, DType::F32, product.id)};
  body.begin_stage({});
  if (first) sum = sum + Val{&body, low.emit_broadcast(body, tensor(node, 0), at, out.sizes)};
  body.store(target.buffer, low.indexing.dot(at, target.strides, target.offset), sum.id);
  std::vector<graph::LocId> locs = low.locs_of(matrix);
  if (node.loc.valid()) locs.push_back(node.loc);
  low.add(body.finish(low.nest_name(node), std::move(outer)), std::move(locs));
  return true;
}

}  // namespace braze::lower
