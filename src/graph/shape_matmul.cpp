// Matrix products: contiguous results of the common dtype.
#include "graph/shape_rules.h"

namespace braze::graph {
namespace {

// The factors of a product, and what is added to it, are of one dtype: Meta kernels do not look. An outer product is a
// multiplication by element.
bool mixes_dtypes(const Call& c) {
  if (c.op == Op::outer) return false;
  const bool adds = c.op == Op::addmm || c.op == Op::addbmm || c.op == Op::addmv || c.op == Op::baddbmm;
  const TensorType* first = c.tensor(0);
  for (size_t i = 1; first && i < (adds ? 3 : 2); ++i)
    if (const TensorType* t = c.tensor(i); t && t->dtype != first->dtype) return true;
  return false;
}

}  // namespace

Types matmul_types(const Call& c) {
  if (mixes_dtypes(c)) return c.refuse();
  auto fits = [&](const TensorType& a, const TensorType& b, Expr x, Expr y) {
    return a.dtype == b.dtype && a.device == b.device && c.surely_equal(x, y) && a.dtype != DType::Bool;
  };
  auto rank = [](const TensorType* t, size_t n) { return t && t->dim() == n; };
  // The addend of addmm and baddbmm: broadcast to the product, of its dtype.
  auto adds = [&](const TensorType* bias, const Sizes& sizes, DType dtype) {
    if (!bias || bias->dtype != dtype) return false;
    auto b = broadcast_sizes(c.arena(), bias->sizes, sizes, c.context.decide);
    return b && c.same_sizes(*b, sizes);
  };
  switch (c.op) {
    case Op::mm: {
      const TensorType *a = c.tensor(0), *b = c.tensor(1);
      if (!rank(a, 2) || !rank(b, 2) || !fits(*a, *b, a->sizes[1], b->sizes[0])) return std::nullopt;
      return one(c.fresh(*a, a->dtype, {a->sizes[0], b->sizes[1]}));
    }
    case Op::addmm: {
      const TensorType *a = c.tensor(1), *b = c.tensor(2);
      if (!rank(a, 2) || !rank(b, 2) || !fits(*a, *b, a->sizes[1], b->sizes[0])) return std::nullopt;
      Sizes sizes{a->sizes[0], b->sizes[1]};
      if (!adds(c.tensor(0), sizes, a->dtype)) return std::nullopt;
      return one(c.fresh(*a, a->dtype, std::move(sizes)));
    }
    case Op::bmm:
    case Op::baddbmm: {
      size_t k = c.op == Op::bmm ? 0 : 1;
      const TensorType *a = c.tensor(k), *b = c.tensor(k + 1);
      if (!rank(a, 3) || !rank(b, 3) || !fits(*a, *b, a->sizes[2], b->sizes[1])) return std::nullopt;
      if (!c.surely_equal(a->sizes[0], b->sizes[0])) return std::nullopt;
      Sizes sizes{a->sizes[0], a->sizes[1], b->sizes[2]};
      if (k && !adds(c.tensor(0), sizes, a->dtype)) return std::nullopt;
      return one(c.fresh(*a, a->dtype, std::move(sizes)));
    }
    case Op::mv: {
      const TensorType *a = c.tensor(0), *b = c.tensor(1);
      if (!rank(a, 2) || !rank(b, 1) || !fits(*a, *b, a->sizes[1], b->sizes[0])) return std::nullopt;
      return one(c.fresh(*a, a->dtype, {a->sizes[0]}));
    }
    case Op::dot: {
      const TensorType *a = c.tensor(0), *b = c.tensor(1);
      if (!rank(a, 1) || !rank(b, 1) || !fits(*a, *b, a->sizes[0], b->sizes[0])) return std::nullopt;
      return one(c.fresh(*a, a->dtype, {}));
    }
    case Op::linear: {
      const TensorType *x = c.tensor(0), *w = c.tensor(1);
      if (!x || x->dim() < 2 || !rank(w, 2) || !fits(*x, *w, x->sizes.back(), w->sizes[1])) return std::nullopt;
      if (!is_contiguous(c.arena(), *x)) return std::nullopt;
      Sizes sizes = x->sizes;
      sizes.back() = w->sizes[0];
      return one(c.fresh(*x, x->dtype, std::move(sizes)));
    }
    default: return std::nullopt;
  }
}

}  // namespace braze::graph
