#include "graph/narrow_product.h"

#include <algorithm>

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

// Whether v is computed, element by element, from no more than three quarters of the bytes that it takes itself.
bool is_made_of_less(const Graph& g, ValueId v) {
  constexpr size_t kMost = 64;  // values that are looked at
  auto bytes = [&](ValueId u) -> std::optional<double> {
    double n = size_of(g.type(u).dtype);
    for (sym::Expr s : g.type(u).sizes) {
      auto size = g.arena().as_const(s);
      if (!size) return std::nullopt;
      n *= static_cast<double>(*size);
    }
    return n;
  };
  std::vector<ValueId> seen{v};
  double read = 0;
  bool known = true;
  for (size_t i = 0; i < seen.size() && known; ++i) {
    const NodeId made = g.value(seen[i]).node;
    const OpClass c = made.valid() ? op_class(g.node(made).op) : OpClass::Extern;
    const bool parts = made.valid() && (g.node(made).op == Op::cat || g.node(made).op == Op::stack);
    if (c == OpClass::Factory) continue;
    if (c != OpClass::Pointwise && c != OpClass::View && !parts) {
      auto b = bytes(seen[i]);
      known = b.has_value() && i > 0;
      read += b.value_or(0);
      continue;
    }
    Graph::for_each_operand(g.node(made), [&](ValueId u) {
      if (u.valid() && std::find(seen.begin(), seen.end(), u) == seen.end()) seen.push_back(u);
    });
    known = known && seen.size() <= kMost;
  }
  auto whole = bytes(v);
  return known && whole && 4 * read <= 3 * *whole;
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

bool is_thin_product(const Graph& g, const Node& n, const Targets& targets) {
  const size_t first = n.op == Op::addmm;
  if ((n.op != Op::mm && !first) || n.outputs.size() != 1 || !n.outputs[0].valid()) return false;
  if (n.args.size() < first + 2 || (first && (n.args.size() != 5 || !is_one(g, n.args[3]) || !is_one(g, n.args[4]))))
    return false;
  auto *row = std::get_if<ValueId>(&n.args[first]), *matrix = std::get_if<ValueId>(&n.args[first + 1]);
  if (!row || !matrix || !row->valid() || !matrix->valid()) return false;
  const TensorType &out = g.type(n.outputs[0]), &m = g.type(*matrix), &x = g.type(*row);
  const sym::ExprArena& a = g.arena();
  const Target& target = targets.of(out.device);
  auto is_float = [](DType d) { return d == DType::F32 || d == DType::F16 || d == DType::BF16; };
  // Neighbouring threads, or lanes, read neighbouring elements of one column.
  return is_float(out.dtype) && x.dtype == out.dtype && m.dtype == out.dtype && out.dim() == 2 &&
         a.is_const(out.sizes[0], 1) && a.range(out.sizes[1]).lo >= kFewestColumns && a.is_const(m.strides[0], 1) &&
         !a.is_const(m.strides[1], 1) && (target.is_gpu() ? target.slow_thin_products : is_made_of_less(g, *matrix)) &&
         !is_narrow_product(g, n, targets);
}

}  // namespace braze::graph
