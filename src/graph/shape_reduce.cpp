// Reductions: results are contiguous; integers sum and multiply in i64.
#include <algorithm>
#include <cmath>
#include <string>

#include "graph/shape_rules.h"

namespace braze::graph {
namespace {

std::optional<Sizes> reduce(const Call& c, const TensorType& x, std::optional<std::vector<size_t>> dims, bool keep) {
  if (!dims) return std::nullopt;
  std::vector<bool> gone(x.dim(), dims->empty());
  for (size_t d : *dims)
    if (d < gone.size()) gone[d] = true;
  Sizes out;
  for (size_t d = 0; d < x.dim(); ++d) {
    if (!gone[d])
      out.push_back(x.sizes[d]);
    else if (keep)
      out.push_back(c.arena().constant(1));
  }
  return out;
}

// Optional dims: none and [] mean all.
std::optional<std::vector<size_t>> optional_dims(const Call& c, size_t i, size_t rank) {
  if (c.none(i)) return std::vector<size_t>{};
  return c.dims(i, rank);
}

// Reductions without an identity raise on empty input. `dims`: the argument that says what is reduced; 0: everything.
// Where a size depends on data, the run checks those that are reduced.
bool surely_not_empty(const Call& c, const TensorType& x, size_t dims = 0) {
  auto reduced = dims ? optional_dims(c, dims, x.dim()) : std::optional<std::vector<size_t>>(std::vector<size_t>{});
  bool is_arg = c.op == Op::argmax || c.op == Op::argmin;
  std::string name(op_name(c.op));
  name = name.substr(6, name.find('.') == std::string::npos ? std::string::npos : name.find('.') - 6);
  for (size_t d = 0; d < x.dim(); ++d) {
    Expr s = x.sizes[d];
    if (c.arena().range(s).lo >= 1) continue;
    if (!c.arena().depends_on_data(s) || !c.context.decide || !reduced) return false;
    bool all = reduced->empty();
    if (!all && std::find(reduced->begin(), reduced->end(), d) == reduced->end()) continue;
    sym::Failure failure{all && !is_arg ? "RuntimeError" : "IndexError",
                         name + "(): Expected reduction dim " + std::to_string(d) + " to have non-zero size.",
                         {}};
    if (all)
      failure.message = name + "(): Expected reduction dim to be specified for input.numel() == 0." +
                        (is_arg ? "" : " Specify the reduction dim with the 'dim' argument.");
    if (!c.require(c.arena().lt(c.arena().constant(0), s), failure)) return false;
  }
  return true;
}

// A norm of a positive finite order, of something whose size depends on data: 0 where that is empty.
bool has_identity(const Call& c) {
  auto* order = c.get<double>(1);
  auto constant = c.integer(1);
  bool data = std::any_of(c.tensor(0)->sizes.begin(), c.tensor(0)->sizes.end(),
                          [&](Expr e) { return c.arena().depends_on_data(e); });
  return data && ((order && *order > 0 && std::isfinite(*order)) || (constant && *constant > 0));
}

DType accumulated(DType d) { return is_integral(d) || d == DType::Bool ? DType::I64 : d; }

}  // namespace

Types reduce_types(const Call& c) {
  const TensorType* x = c.tensor(0);
  if (!x || is_complex(x->dtype) || x->dtype == DType::Opaque) return std::nullopt;
  DType in = x->dtype, dtype = in;
  auto result = [&](std::optional<Sizes> sizes, DType d) -> Types {
    if (!sizes) return std::nullopt;
    return one(c.fresh(*x, d, std::move(*sizes)));
  };
  auto pair = [&](std::optional<Sizes> sizes, DType a, DType b) -> Types {
    if (!sizes) return std::nullopt;
    return std::vector<TensorType>{c.fresh(*x, a, *sizes), c.fresh(*x, b, *sizes)};
  };
  bool floats = is_floating(in);
  // clang-format off: a table, with as many rows of a kind as fit on a line
  switch (c.op) {
    case Op::sum: case Op::prod: return result(Sizes{}, c.dtype(1, accumulated(in)));
    case Op::sum_dim_IntList: return result(reduce(c, *x, optional_dims(c, 1, x->dim()), c.flag(2)), c.dtype(3, accumulated(in)));
    case Op::prod_dim_int: return result(reduce(c, *x, c.dims(1, x->dim()), c.flag(2)), c.dtype(3, accumulated(in)));
    case Op::mean: dtype = c.dtype(1, in); if (!is_floating(dtype)) return std::nullopt; return result(Sizes{}, dtype);
    case Op::mean_dim:
      dtype = c.dtype(3, in);
      if (!is_floating(dtype)) return std::nullopt;
      return result(reduce(c, *x, optional_dims(c, 1, x->dim()), c.flag(2)), dtype);
    case Op::amax: case Op::amin:
      if (!surely_not_empty(c, *x, 1)) return std::nullopt;
      return result(reduce(c, *x, optional_dims(c, 1, x->dim()), c.flag(2)), in);
    case Op::max: case Op::min: if (!surely_not_empty(c, *x)) return std::nullopt; return result(Sizes{}, in);
    case Op::max_dim: case Op::min_dim:
      if (!surely_not_empty(c, *x, 1)) return std::nullopt;
      return pair(reduce(c, *x, c.dims(1, x->dim()), c.flag(2)), in, DType::I64);
    case Op::argmax: case Op::argmin:
      if (!surely_not_empty(c, *x, 1) || in == DType::Bool) return std::nullopt;
      return result(reduce(c, *x, optional_dims(c, 1, x->dim()), c.flag(2)), DType::I64);
    case Op::any: case Op::all: return result(Sizes{}, in == DType::U8 ? DType::U8 : DType::Bool);
    case Op::any_dim: case Op::all_dim:
      return result(reduce(c, *x, c.dims(1, x->dim()), c.flag(2)), in == DType::U8 ? DType::U8 : DType::Bool);
    case Op::any_dims: case Op::all_dims:
      // An empty list of dims is not "all" in every version.
      if (auto* l = c.get<IntList>(1); l && l->v.empty()) return std::nullopt;
      return result(reduce(c, *x, optional_dims(c, 1, x->dim()), c.flag(2)), in == DType::U8 ? DType::U8 : DType::Bool);
    case Op::var_correction: case Op::std_correction:
      if (!floats) return std::nullopt;
      return result(reduce(c, *x, optional_dims(c, 1, x->dim()), c.flag(3)), in);
    case Op::var_mean_correction: case Op::std_mean_correction:
      if (!floats) return std::nullopt;
      return pair(reduce(c, *x, optional_dims(c, 1, x->dim()), c.flag(3)), in, in);
    case Op::logsumexp:
      return result(reduce(c, *x, c.dims(1, x->dim()), c.flag(2)), floats ? in : c.context.default_dtype);
    case Op::linalg_vector_norm:
      if (!floats || !c.none(4) || !(has_identity(c) || surely_not_empty(c, *x))) return std::nullopt;
      return result(reduce(c, *x, optional_dims(c, 2, x->dim()), c.flag(3)), in);
    case Op::cumsum: case Op::cumprod:
      if (!c.dim(1, x->dim())) return std::nullopt;
      return result(x->sizes, c.dtype(2, accumulated(in)));
    default: return std::nullopt;
  }
  // clang-format on
}

}  // namespace braze::graph
