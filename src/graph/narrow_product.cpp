#include "graph/narrow_product.h"

namespace braze::graph {
namespace {

// Fewer columns of the result than these leave most of the device without work, where a library splits the sums.
constexpr int64_t kFewestColumns = 256;
constexpr int64_t kVector = 8, kStep = 32;  // elements of 16 bytes; that threads hold at once of a column

bool is_one(const Graph& g, const Arg& a) {
  if (auto* d = std::get_if<double>(&a)) return *d == 1;
  auto* e = std::get_if<sym::Expr>(&a);
  return e && g.arena().is_const(*e, 1);
}

// Whether the values are bytes that were made numbers of another type.
bool is_widened(const Graph& g, ValueId v) {
  while (g.type(v).dtype != DType::I8) {
    NodeId made = g.value(v).node;
    if (!made.valid()) return false;
    const Node& n = g.node(made);
    if (n.op != Op::_to_copy && op_class(n.op) != OpClass::View) return false;
    v = std::get<ValueId>(n.args[0]);
  }
  return true;
}

}  // namespace

bool is_narrow_product(const Graph& g, const Node& n, const Targets& targets) {
  const size_t first = n.op == Op::addmm;
  if ((n.op != Op::mm && !first) || n.outputs.size() != 1 || !n.outputs[0].valid()) return false;
  if (n.args.size() != (first ? 5 : 2) || (first && (!is_one(g, n.args[3]) || !is_one(g, n.args[4])))) return false;
  const TensorType& out = g.type(n.outputs[0]);
  for (size_t i = 0; i < first + 2; ++i) {
    auto* v = std::get_if<ValueId>(&n.args[i]);
    if (!v || !v->valid() || g.type(*v).dtype != out.dtype || g.type(*v).device != out.device) return false;
  }
  if ((out.dtype != DType::BF16 && out.dtype != DType::F16) || out.dim() != 2) return false;
  const TensorType& matrix = g.type(std::get<ValueId>(n.args[first + 1]));
  const sym::ExprArena& a = g.arena();
  auto rows = a.as_const(out.sizes[0]), columns = a.as_const(out.sizes[1]), length = a.as_const(matrix.sizes[0]),
       step = a.as_const(matrix.strides[1]);
  return rows && *rows >= (is_widened(g, std::get<ValueId>(n.args[first + 1])) ? 1 : 2) &&
         *rows <= targets.of(out.device).most_product_columns() && columns && *columns >= kFewestColumns && length &&
         *length > 0 && *length % kStep == 0 && step && *step % kVector == 0 && a.is_const(matrix.strides[0], 1);
}

}  // namespace braze::graph
