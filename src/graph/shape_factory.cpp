// Tensors made from nothing, and random ones.
#include <cmath>

#include "graph/shape_rules.h"

namespace braze::graph {
namespace {

std::optional<Device> device_at(const Call& c, size_t i, Device otherwise) {
  auto* d = c.get<Device>(i);
  if (!d) return otherwise;
  if (d->type == DeviceType::CPU) return Device{DeviceType::CPU, -1};
  return d->index < 0 ? std::nullopt : std::optional(*d);  // "cuda" means the current device, which the caller knows
}

DType of_scalar(const Call& c, size_t i) {
  if (c.get<bool>(i)) return DType::Bool;
  if (c.get<Expr>(i)) return DType::I64;
  return c.context.default_dtype;
}

Types made(const Call& c, const Sizes& sizes, DType dtype, size_t options, Device base = {}) {
  if (auto* l = c.get<LayoutArg>(options); l && l->value != 0) return std::nullopt;
  if (!c.none_negative(sizes)) return c.refuse();
  auto device = device_at(c, options + 1, base);
  if (!device) return std::nullopt;
  TensorType t{dtype, *device, sizes, contiguous_strides(c.arena(), sizes), c.arena().constant(0)};
  return one(std::move(t));
}

// *_like: options start with dtype at `options`, the memory format is the fifth of them.
Types like(const Call& c, size_t options) {
  const TensorType* x = c.tensor(0);
  if (!x) return std::nullopt;
  if (auto* l = c.get<LayoutArg>(options + 1); l && l->value != 0) return std::nullopt;
  auto device = device_at(c, options + 2, x->device);
  if (!device) return std::nullopt;
  TensorType t{c.dtype(options, x->dtype), *device, x->sizes, {}, c.arena().constant(0)};
  auto* format = c.get<MemoryFormatArg>(options + 4);
  if (format && !c.has_rank_of(*format, t.dim())) return c.refuse();
  auto strides = format && format->value != 1 ? format_strides(c.arena(), t.sizes, format->value)
                                              : preserved_strides(c.arena(), *x, c.context.decide);
  return with_strides(std::move(t), std::move(strides));
}

Types arange(const Call& c, const Arg& start, const Arg& end, const Arg& step, size_t options) {
  auto is_int = [](const Arg& a) { return std::holds_alternative<Expr>(a); };
  sym::ExprArena& arena = c.arena();
  if (!is_int(start) || !is_int(end) || !is_int(step)) return std::nullopt;
  DType dtype = c.dtype(options, DType::I64);
  auto by = arena.as_const(std::get<Expr>(step));
  if (!by || *by == 0) return std::nullopt;
  Expr span = arena.sub(std::get<Expr>(end), std::get<Expr>(start));
  if (*by < 0) span = arena.neg(span);
  Expr n = std::abs(*by) == 1 ? span : arena.ceildiv(span, arena.constant(std::abs(*by)));
  if (arena.range(n).lo < 0 && !(arena.depends_on_data(n) && c.at_least(n, 0))) return std::nullopt;
  return made(c, {n}, dtype, options + 1);
}

}  // namespace

Types factory_types(const Call& c) {
  const DType standard = c.context.default_dtype;
  const TensorType* x = c.tensor(0);
  auto* sizes = c.get<IntList>(x ? 1 : 0);
  sym::ExprArena& arena = c.arena();
  Arg zero = arena.constant(0), unit = arena.constant(1);
  auto copy_of = [&](bool contiguous) -> Types {
    if (!x) return std::nullopt;
    TensorType t = c.fresh(*x, x->dtype, x->sizes);
    return with_strides(t, contiguous ? t.strides : preserved_strides(arena, *x, c.context.decide));
  };
  // clang-format off: a table, with as many rows of a kind as fit on a line
  switch (c.op) {
    case Op::full: return sizes ? made(c, sizes->v, c.dtype(2, of_scalar(c, 1)), 3) : std::nullopt;
    case Op::zeros: case Op::ones: case Op::rand: case Op::randn: return sizes ? made(c, sizes->v, c.dtype(1, standard), 2) : std::nullopt;
    case Op::empty_memory_format: {
      auto* format = c.get<MemoryFormatArg>(5);
      if (!sizes) return std::nullopt;
      if (format && !c.has_rank_of(*format, sizes->v.size())) return c.refuse();
      auto t = made(c, sizes->v, c.dtype(1, standard), 2);
      if (t && format) (*t)[0].strides = format_strides(arena, sizes->v, format->value);
      return t;
    }
    case Op::empty_strided: {
      auto* strides = c.get<IntList>(1);
      if (!sizes || !strides) return std::nullopt;
      auto t = made(c, sizes->v, c.dtype(2, standard), 3);
      if (t) (*t)[0].strides = strides->v;
      return t;
    }
    case Op::zeros_like: case Op::ones_like: case Op::empty_like: case Op::rand_like: case Op::randn_like: return like(c, 1);
    case Op::full_like: return like(c, 2);
    case Op::new_empty: case Op::new_zeros: case Op::new_ones:
      return x && sizes ? made(c, sizes->v, c.dtype(2, x->dtype), 3, x->device) : std::nullopt;
    case Op::new_full: return x && sizes ? made(c, sizes->v, c.dtype(3, x->dtype), 4, x->device) : std::nullopt;
    case Op::new_empty_strided: {
      auto* strides = c.get<IntList>(2);
      if (!x || !sizes || !strides) return std::nullopt;
      auto t = made(c, sizes->v, c.dtype(3, x->dtype), 4, x->device);
      if (t) (*t)[0].strides = strides->v;
      return t;
    }
    case Op::arange: return c.size() > 0 ? arange(c, zero, c.args[0], unit, 1) : std::nullopt;
    case Op::arange_start: return c.size() > 1 ? arange(c, c.args[0], c.args[1], unit, 2) : std::nullopt;
    case Op::arange_start_step: return c.size() > 2 ? arange(c, c.args[0], c.args[1], c.args[2], 3) : std::nullopt;
    case Op::scalar_tensor: return made(c, {}, c.dtype(1, standard), 2);
    case Op::eye: {
      auto* n = c.get<Expr>(0);
      return n ? made(c, {*n, *n}, c.dtype(1, standard), 2) : std::nullopt;
    }
    case Op::eye_m: {
      auto *n = c.get<Expr>(0), *m = c.get<Expr>(1);
      return n && m ? made(c, {*n, *m}, c.dtype(2, standard), 3) : std::nullopt;
    }
    case Op::linspace: {
      auto* n = c.get<Expr>(2);
      return n ? made(c, {*n}, c.dtype(3, standard), 4) : std::nullopt;
    }
    case Op::native_dropout: {
      auto t = x && is_floating(x->dtype) ? copy_of(false) : std::nullopt;
      if (!t) return t;
      TensorType mask = (*t)[0];
      mask.dtype = DType::Bool;
      t->push_back(std::move(mask));
      return t;
    }
    case Op::rrelu_with_noise_functional: {
      const auto* noise = c.tensor(1);
      if (!x || !noise || !is_floating(x->dtype)) return std::nullopt;
      return std::vector{c.fresh(*x, x->dtype, x->sizes), c.fresh(*noise, noise->dtype, noise->sizes)};
    }
    case Op::bernoulli: case Op::bernoulli_p: return copy_of(true);
    default: return std::nullopt;
  }
  // clang-format on
}

}  // namespace braze::graph
