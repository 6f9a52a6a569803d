// Reductions: results are contiguous; integers sum and multiply in i64.
#include <algorithm>
#include <cmath>
#include <string>

#include "graph/shape_rules.h"

namespace braze::graph {
namespace {

// The dimensions that are reduced, all of them where none is said; nullopt where they are not known.
std::optional<std::vector<size_t>> reduced_dims(const Call& c, size_t rank) {
  size_t i = op_row(c.op).result.dims;
  if (i == 0 || c.none(i)) return std::vector<size_t>{};
  return c.dims(i, rank);
}

std::optional<Sizes> reduced_sizes(const Call& c, const TensorType& x) {
  auto dims = reduced_dims(c, x.dim());
  if (!dims) return std::nullopt;
  size_t flag = op_row(c.op).result.keepdim;
  bool keep = flag && c.flag(flag);
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

// Reductions without an identity raise on empty input. Where a size depends on data, the run checks those that are
// reduced.
bool surely_not_empty(const Call& c, const TensorType& x) {
  auto reduced = reduced_dims(c, x.dim());
  bool is_arg = op_row(c.op).result.dtype == ResultDType::Index;
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

// Of a reduction or scan of `in`; Opaque: refused. The dtype argument comes last.
DType result_dtype(const Call& c, DType in) {
  switch (op_row(c.op).result.dtype) {
    case ResultDType::Total: return c.dtype(c.size() - 1, is_integral(in) || in == DType::Bool ? DType::I64 : in);
    case ResultDType::Truth: return in == DType::U8 ? DType::U8 : DType::Bool;
    case ResultDType::Index: return DType::I64;
    case ResultDType::Float: {
      if (c.op == Op::logsumexp) return is_floating(in) ? in : c.context.default_dtype;
      DType made = c.dtype(c.size() - 1, in);  // a mean of integers raises
      return is_floating(made) ? made : DType::Opaque;
    }
    default: return in;
  }
}

}  // namespace

Types reduce_types(const Call& c) {
  const TensorType* x = c.tensor(0);
  if (!x || is_complex(x->dtype) || x->dtype == DType::Opaque || !accepts(c.op, x->dtype)) return std::nullopt;
  switch (c.op) {
    case Op::any_dims:
    case Op::all_dims:  // an empty list is not "all" in every version
      if (auto* l = c.get<IntList>(1); l && l->v.empty()) return std::nullopt;
      break;
    case Op::linalg_vector_norm:
      if (!c.none(4)) return std::nullopt;
      [[fallthrough]];
    case Op::norm_ScalarOpt_dim:
    case Op::norm_Scalar:
      if (!has_identity(c) && !surely_not_empty(c, *x)) return std::nullopt;
      break;
    default:
      if (op_traits(c.op) & kNotEmpty && !surely_not_empty(c, *x)) return std::nullopt;
  }
  if (x->dim() > 64) return c.refuse();  // eager's sets of dimensions are words
  DType dtype = result_dtype(c, x->dtype);
  auto sizes = reduced_sizes(c, *x);
  if (!sizes || dtype == DType::Opaque) return std::nullopt;
  std::vector<TensorType> types{c.fresh(*x, dtype, std::move(*sizes))};
  if (op_traits(c.op) & kMultiOutput) {
    bool index = c.op == Op::max_dim || c.op == Op::min_dim;
    types.push_back(types[0]);
    if (index) types[1].dtype = DType::I64;
  }
  return types;
}

Types scan_types(const Call& c) {
  const TensorType* x = c.tensor(0);
  if (!x || is_complex(x->dtype) || x->dtype == DType::Opaque || !c.dim(1, x->dim())) return std::nullopt;
  return one(c.fresh(*x, result_dtype(c, x->dtype), x->sizes));
}

}  // namespace braze::graph
