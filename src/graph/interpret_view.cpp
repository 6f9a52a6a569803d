// Views, by where an element of the result comes from.
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "graph/interpret_rules.h"

namespace braze::graph::host {
namespace {

// Result k, whose element at an index is the operand's at source(index).
template <class F>
void from(HostCall& c, size_t k, F&& source) {
  const HostTensor& x = c.tensor(0);
  c.each(k, [&](const Dims& index) { return at(x, source(index)); });
}

size_t rank(const HostCall& c) { return c.tensor(0).sizes.size(); }

void same_elements(HostCall& c) { c.give(c.tensor(0).data); }

void expand(HostCall& c) {
  from(c, 0, [](const Dims& i) { return i; });
}

void swap_dims(HostCall& c, size_t a, size_t b) {
  from(c, 0, [&](Dims i) {
    std::swap(i[a], i[b]);
    return i;
  });
}

void transpose(HostCall& c) {
  if (rank(c) == 0) return expand(c);
  swap_dims(c, c.dim(1, rank(c)), c.dim(2, rank(c)));
}

void t(HostCall& c) {
  if (rank(c) < 2) return expand(c);
  swap_dims(c, 0, 1);
}

void permute(HostCall& c) {
  Dims order = c.integers(1);
  from(c, 0, [&](const Dims& i) {
    Dims out(i.size());
    for (size_t d = 0; d < i.size(); ++d) out[HostCall::wrapped(order[d], i.size())] = i[d];
    return out;
  });
}

void slice(HostCall& c) {
  size_t d = c.dim(1, rank(c));
  int64_t start = c.none(2) ? 0 : c.integer(2), step = c.integer(4);
  if (start < 0) start = std::max<int64_t>(0, start + c.tensor(0).sizes[d]);
  from(c, 0, [&](Dims i) {
    i[d] = start + i[d] * step;
    return i;
  });
}

void select(HostCall& c) {
  size_t d = c.dim(1, rank(c));
  int64_t which = c.integer(2);
  if (which < 0) which += c.tensor(0).sizes[d];
  from(c, 0, [&](Dims i) {
    i.insert(i.begin() + static_cast<ptrdiff_t>(d), which);
    return i;
  });
}

// (self, offset, dim1, dim2): the diagonal is the last dimension.
void diagonal(HostCall& c) {
  int64_t offset = c.integer(1);
  size_t a = c.dim(2, rank(c)), b = c.dim(3, rank(c));
  from(c, 0, [&](const Dims& i) {
    Dims out;
    size_t next = 0;
    for (size_t d = 0; d < rank(c); ++d)
      out.push_back(d == a   ? i.back() + std::max<int64_t>(0, -offset)
                    : d == b ? i.back() + std::max<int64_t>(0, offset)
                             : i[next++]);
    return out;
  });
}

// (self, size or sizes, dim)
void split(HostCall& c) {
  size_t d = c.dim(2, rank(c));
  auto* size = std::get_if<Expr>(&c.node.args[1]);
  Dims parts = size ? Dims(c.node.outputs.size(), c.eval(*size)) : c.integers(1);
  int64_t start = 0;
  for (size_t k = 0; k < parts.size(); start += parts[k++])
    from(c, k, [&](Dims i) {
      i[d] += start;
      return i;
    });
}

// (self, sizes, strides, offset): of an operand whose elements lie in order.
void as_strided(HostCall& c) {
  Dims strides = c.integers(2);
  int64_t offset = c.none(3) ? 0 : c.integer(3);
  c.each([&](const Dims& i) {
    int64_t at = offset;
    for (size_t d = 0; d < i.size(); ++d) at += i[d] * strides[d];
    return c.tensor(0).data.at(static_cast<size_t>(at));
  });
}

// (self, source, sizes, strides, offset): the same, written.
void as_strided_scatter(HostCall& c) {
  const HostTensor& source = c.tensor(1);
  Dims strides = c.integers(3);
  const int64_t offset = c.none(4) ? 0 : c.integer(4);
  Numbers out = c.tensor(0).data;
  for_each_index(source.sizes, [&](const Dims& i) {
    int64_t at = offset;
    for (size_t d = 0; d < i.size(); ++d) at += i[d] * strides[d];
    out.at(static_cast<size_t>(at)) = source.data[flat_index(source.sizes, i)];
  });
  c.give(std::move(out));
}

void unbind(HostCall& c) {
  size_t d = c.dim(1, rank(c));
  for (size_t k = 0; k < c.node.outputs.size(); ++k)
    from(c, k, [&](Dims i) {
      i.insert(i.begin() + static_cast<ptrdiff_t>(d), static_cast<int64_t>(k));
      return i;
    });
}

// (self, dim, size, step): the elements of a window are the last dimension.
void unfold(HostCall& c) {
  if (rank(c) == 0) return same_elements(c);
  size_t d = c.dim(1, rank(c));
  from(c, 0, [&](Dims i) {
    i[d] = i[d] * c.integer(3) + i.back();
    i.pop_back();
    return i;
  });
}

void flip(HostCall& c) {
  Dims dims = c.integers(1);
  from(c, 0, [&](Dims i) {
    for (int64_t n : dims) {
      size_t d = HostCall::wrapped(n, rank(c));
      i[d] = c.tensor(0).sizes[d] - 1 - i[d];
    }
    return i;
  });
}

// (self, shifts, dims): of the flattened tensor where there are no dimensions.
void roll(HostCall& c) {
  Dims shifts = c.integers(1), dims = c.integers(2);
  const HostTensor& x = c.tensor(0);
  auto source = [](int64_t i, int64_t shift, int64_t size) { return ((i - shift) % size + size) % size; };
  if (dims.empty()) {
    Numbers out;
    for (size_t k = 0; k < x.data.size(); ++k)
      out.push_back(x.data[static_cast<size_t>(
          source(static_cast<int64_t>(k), shifts.at(0), static_cast<int64_t>(x.data.size())))]);
    return c.give(std::move(out));
  }
  from(c, 0, [&](Dims i) {
    for (size_t k = 0; k < dims.size(); ++k) {
      size_t d = HostCall::wrapped(dims[k], rank(c));
      i[d] = source(i[d], shifts[k], x.sizes[d]);
    }
    return i;
  });
}

template <class F>
void with_type(DType d, F&& f) {
  switch (d) {
    case DType::F32: return f(float{});
    case DType::F64: return f(double{});
    case DType::I64: return f(int64_t{});
    case DType::I32: return f(int32_t{});
    case DType::I16: return f(int16_t{});
    case DType::I8: return f(int8_t{});
    case DType::U8:
    case DType::Bool: return f(uint8_t{});
    default: throw InternalError("the bits of these elements are not known");
  }
}

// (self, dtype): the same bits.
void view_dtype(HostCall& c) {
  std::vector<char> bits;
  with_type(c.tensor(0).dtype, [&](auto as) {
    for (double v : c.tensor(0).data) {
      as = static_cast<decltype(as)>(v);
      bits.insert(bits.end(), reinterpret_cast<const char*>(&as), reinterpret_cast<const char*>(&as + 1));
    }
  });
  Numbers out;
  with_type(c.dtype(), [&](auto as) {
    for (size_t at = 0; at < bits.size(); at += sizeof as) {
      std::memcpy(&as, bits.data() + at, sizeof as);
      out.push_back(static_cast<double>(as));
    }
  });
  c.give(std::move(out));
}

}  // namespace

Rule view_rule(Op op) {
  switch (op) {
    case Op::view:
    case Op::_unsafe_view:
    case Op::reshape:
    case Op::unsqueeze:
    case Op::squeeze:
    case Op::squeeze_dim:
    case Op::squeeze_dims:
    case Op::alias:
    case Op::detach:
    case Op::_reshape_alias:
    case Op::lift_fresh: return same_elements;
    case Op::as_strided: return as_strided;
    case Op::as_strided_scatter: return as_strided_scatter;
    case Op::expand: return expand;
    case Op::t: return t;
    case Op::transpose_int: return transpose;
    case Op::permute: return permute;
    case Op::slice_Tensor: return slice;
    case Op::select_int: return select;
    case Op::diagonal: return diagonal;
    case Op::unbind_int: return unbind;
    case Op::unfold: return unfold;
    case Op::flip: return flip;
    case Op::roll: return roll;
    case Op::view_dtype: return view_dtype;
    case Op::split_Tensor:
    case Op::split_with_sizes:
    case Op::unsafe_split_Tensor:
    case Op::unsafe_split_with_sizes: return split;
    default: return nullptr;
  }
}

}  // namespace braze::graph::host
