#include "graph/raises.h"

#include <algorithm>

#include "graph/user_kernel.h"

namespace braze::graph {
namespace {

size_t dim_of(const Graph& g, const Arg& a, size_t rank) {
  int64_t d = g.arena().as_const(std::get<Expr>(a)).value();
  return static_cast<size_t>(d < 0 ? d + static_cast<int64_t>(std::max<size_t>(rank, 1)) : d);
}

bool is_one(const Graph& g, const Node& n, size_t i) {
  auto* e = i < n.args.size() ? std::get_if<Expr>(&n.args[i]) : nullptr;
  return i >= n.args.size() || (e && g.arena().is_const(*e, 1));
}

// Eager's index_add is scatter_add along the first and the last dimension, if it may be.
std::string_view index_add_fault(const Graph& g, const Node& n, size_t d, size_t rank) {
  bool scatters = rank > 1 && (d == 0 || d + 1 == rank) && is_one(g, n, 4) &&
                  g.type(std::get<ValueId>(n.args[2])).dtype == DType::I64;
  return scatters ? "Gather" : "Self";
}

// (self, dim, index, ...)
std::vector<IndexCheck> along_a_dimension(const Graph& g, const Node& n) {
  const TensorType& self = g.type(std::get<ValueId>(n.args[0]));
  const size_t d = dim_of(g, n.args[1], self.dim());
  IndexCheck c{std::get<ValueId>(n.args[2]), self.dim() ? self.sizes[d] : g.arena().constant(1), "Gather", false,
               static_cast<uint8_t>(d)};
  switch (n.op) {
    case Op::gather:
      if (n.args.size() > 4) c.fault = "Target";
      break;
    case Op::index_select: c.fault = d == 1 ? "Select" : "Self"; break;
    case Op::index_add: c.fault = index_add_fault(g, n, d, self.dim()); break;
    case Op::index_copy: c.fault = "Copy"; break;
    case Op::index_fill_int_Tensor:
    case Op::index_fill_int_Scalar: c.fault = "Index", c.wrap = true; break;
    default: break;
  }
  return {c};
}

// (self, indices, ...): eager counts the indexed dimensions only.
std::vector<IndexCheck> of_lists(const Graph& g, const Node& n) {
  const TensorType& self = g.type(std::get<ValueId>(n.args[0]));
  const auto& list = std::get<TensorList>(n.args[1]);
  const bool target = n.op == Op::index_Tensor && n.args.size() > 2;
  std::vector<IndexCheck> out;
  for (size_t d = 0; d < list.size() && d < self.dim(); ++d) {
    if (!list[d].valid()) continue;
    if (DType t = g.type(list[d]).dtype; t == DType::Bool || t == DType::U8) return {};
    out.push_back(
        {list[d], self.sizes[d], target ? "Target" : "Index", !target, static_cast<uint8_t>(target ? 0 : out.size())});
  }
  return out;
}

}  // namespace

std::vector<IndexCheck> index_checks(const Graph& g, const Node& n) {
  switch (n.op) {
    case Op::embedding: {
      const TensorType& table = g.type(std::get<ValueId>(n.args[0]));
      return {{std::get<ValueId>(n.args[1]), table.sizes[0], "Self"}};
    }
    case Op::embedding_dense_backward: return {{std::get<ValueId>(n.args[1]), std::get<Expr>(n.args[2]), "Self"}};
    case Op::take: {
      const TensorType& from = g.type(std::get<ValueId>(n.args[0]));
      return {{std::get<ValueId>(n.args[1]), g.arena().product(from.sizes), "Take", true}};
    }
    case Op::index_select:
    case Op::gather:
    case Op::scatter_src:
    case Op::scatter_value:
    case Op::scatter_add:
    case Op::scatter_reduce_two:
    case Op::index_add:
    case Op::index_copy:
    case Op::index_fill_int_Tensor:
    case Op::index_fill_int_Scalar: return along_a_dimension(g, n);
    case Op::index_Tensor:
    case Op::_unsafe_index_Tensor:
    case Op::index_put:
    case Op::_unsafe_index_put: return of_lists(g, n);
    default: return {};
  }
}

bool asks_by_element(const Node& n) {
  switch (n.op) {
    case Op::embedding:
    case Op::index_select:
    case Op::gather:
    case Op::take:
    case Op::index_Tensor:
    case Op::_unsafe_index_Tensor: return true;
    default: return op_class(n.op) == OpClass::Pointwise;
  }
}

bool asks_of_empty(const Node& n) {
  switch (n.op) {
    case Op::gather:
    case Op::take:
    case Op::scatter_src:
    case Op::scatter_value:
    case Op::scatter_add:
    case Op::scatter_reduce_two: return true;
    default: return false;
  }
}

bool shows_all(const Graph& g, const Node& view) {
  if (view.op == Op::as_strided || view.outputs.empty()) return false;
  if (view.outputs.size() > 1) return true;  // the parts are all of it
  if (!view.outputs[0].valid()) return false;
  const auto& to = g.type(view.outputs[0]).sizes;
  if (view.op == Op::expand)
    return std::none_of(to.begin(), to.end(), [&](Expr s) { return g.arena().range(s).lo < 1; });
  return g.arena().product(to) == g.arena().product(g.type(std::get<ValueId>(view.args[0])).sizes);
}

bool lends_type_alone(const Node& n, size_t i) {
  const bool like = op_class(n.op) == OpClass::Factory && n.op != Op::scalar_tensor;
  return op_traits(n.op) & kTypesAlone || (i == 0 && (like || n.op == Op::copy));
}

Arg possible_zero(const Graph& g, const Node& n) {
  if (op_row(n.op).raises != Raises::ZeroDivisor || !n.outputs[0].valid()) return NoneArg{};
  if (!is_integral(g.type(n.outputs[0]).dtype)) return NoneArg{};
  const Arg& divisor = n.args[1];
  if (auto* b = std::get_if<bool>(&divisor); b && *b) return NoneArg{};
  auto* e = std::get_if<Expr>(&divisor);
  if (e && (g.arena().range(*e).lo > 0 || g.arena().range(*e).hi < 0)) return NoneArg{};
  return divisor;
}

bool may_raise(const Graph& g, const Node& n) {
  const Raises raises = op_row(n.op).raises;
  if (raises == Raises::Never || op_class(n.op) == OpClass::Random) return false;
  if (n.op == Op::Extern && n.extern_name == kLaunchKernel) return false;  // it asks nothing of values
  if (n.op == Op::nonzero || n.op == Op::masked_select) return false;  // what depends on values is how many there are
  bool on_cpu = true;
  auto look = [&](ValueId v) { on_cpu = on_cpu && (!v.valid() || g.type(v).device.type == DeviceType::CPU); };
  for (ValueId v : n.outputs) look(v);
  Graph::for_each_operand(n, look);
  if (!on_cpu) return false;
  return raises == Raises::Values || !std::holds_alternative<NoneArg>(possible_zero(g, n));
}

}  // namespace braze::graph
