#include "lower/indexing.h"

#include <algorithm>

namespace braze::lower {

namespace {

// Runs of dimensions on both sides with equal numbers of elements, from the outermost; sizes 1 are left out.
struct Group {
  std::vector<int> from, to;
};

std::optional<std::vector<Group>> group(sym::ExprArena& arena, std::span<const Expr> from, std::span<const Expr> to) {
  std::vector<Group> groups;
  size_t i = 0, j = 0;
  auto skip = [&](std::span<const Expr> s, size_t& k) {
    while (k < s.size() && arena.is_const(s[k], 1)) ++k;
  };
  for (;;) {
    skip(from, i);
    skip(to, j);
    if (i == from.size() || j == to.size()) break;
    Group g;
    Expr a = from[i], b = to[j];
    g.from.push_back(static_cast<int>(i++));
    g.to.push_back(static_cast<int>(j++));
    while (a != b) {
      auto ca = arena.as_const(a), cb = arena.as_const(b);
      skip(from, i);
      skip(to, j);
      // Grow the smaller side; with symbols, a side that the other one is a multiple of is the smaller.
      bool grow_from;
      if (ca && cb)
        grow_from = *ca < *cb;
      else
        grow_from = arena.mul(arena.floordiv(b, a), a) == b;
      if (grow_from && i == from.size()) grow_from = false;
      if (!grow_from && j == to.size()) {
        if (i == from.size()) return std::nullopt;
        grow_from = true;
      }
      if (grow_from) {
        a = arena.mul(a, from[i]);
        g.from.push_back(static_cast<int>(i++));
      } else {
        b = arena.mul(b, to[j]);
        g.to.push_back(static_cast<int>(j++));
      }
    }
    groups.push_back(std::move(g));
  }
  if (i != from.size() || j != to.size()) return std::nullopt;
  return groups;
}

}  // namespace

Expr Indexing::extreme(Expr e, bool upper) {
  std::vector<Expr> symbols;
  arena_.collect_symbols(e, symbols);
  for (Expr s : symbols) {
    const Expr* extent = symbols_.extent_of(s);
    if (!extent) continue;
    auto affine = arena_.affine_in(e, s);
    if (!affine) continue;
    auto r = arena_.range(affine->coefficient);
    if (r.lo < 0 && r.hi > 0) continue;
    Expr at = (r.lo >= 0) == upper ? arena_.sub(*extent, arena_.constant(1)) : arena_.constant(0);
    e = arena_.add(arena_.mul(affine->coefficient, at), affine->rest);
  }
  return e;
}

bool Indexing::below(Expr e, Expr bound) {
  auto r = arena_.range(e);
  auto c = arena_.as_const(bound);
  if (c && r.lo >= 0 && r.hi < *c) return true;
  if (r.lo < 0 && arena_.range(extreme(e, false)).lo < 0) return false;
  return arena_.range(arena_.sub(bound, extreme(e, true))).lo >= 1;
}

Indexing::Split Indexing::split(Expr e, Expr d) {
  Split s{arena_.constant(0), arena_.constant(0)};
  auto take = [&](Expr term) {
    Expr q = arena_.floordiv(term, d);
    if (arena_.mul(q, d) == term)
      s.quotient = arena_.add(s.quotient, q);
    else
      s.rest = arena_.add(s.rest, term);
  };
  if (arena_.kind(e) == sym::Kind::Add) {
    auto span = arena_.operands(e);
    std::vector<Expr> terms(span.begin(), span.end());  // the arena may move its operands as it grows
    for (Expr t : terms) take(t);
  } else {
    take(e);
  }
  return s;
}

Expr Indexing::floordiv(Expr e, Expr d) {
  if (is_one(d)) return e;
  Split s = split(e, d);
  if (below(s.rest, d)) return s.quotient;
  return arena_.floordiv(e, d);
}

Expr Indexing::mod(Expr e, Expr d) {
  if (is_one(d)) return arena_.constant(0);
  Split s = split(e, d);
  if (below(s.rest, d)) return s.rest;
  return arena_.mod(s.rest, d);
}

std::vector<Expr> Indexing::reshape(std::span<const Expr> index, std::span<const Expr> from,
                                    std::span<const Expr> sizes) {
  std::vector<Expr> out(sizes.size(), arena_.constant(0));
  auto unflatten = [&](Expr flat, const std::vector<int>& dims) {
    for (size_t k = dims.size(); k-- > 0;) {
      out[dims[k]] = k == 0 ? flat : mod(flat, sizes[dims[k]]);
      if (k) flat = floordiv(flat, sizes[dims[k]]);
    }
  };
  auto flatten = [&](const std::vector<int>& dims) {
    Expr flat = arena_.constant(0);
    for (int d : dims) flat = arena_.add(arena_.mul(flat, from[d]), index[d]);
    return flat;
  };
  if (auto groups = group(arena_, from, sizes)) {
    for (const Group& g : *groups) unflatten(flatten(g.from), g.to);
  } else {
    std::vector<int> all_from(from.size()), all_to(sizes.size());
    for (size_t i = 0; i < from.size(); ++i) all_from[i] = static_cast<int>(i);
    for (size_t i = 0; i < sizes.size(); ++i) all_to[i] = static_cast<int>(i);
    if (!all_to.empty()) unflatten(flatten(all_from), all_to);
  }
  return out;
}

std::optional<std::vector<Expr>> Indexing::reshape_strides(std::span<const Expr> from, std::span<const Expr> strides,
                                                           std::span<const Expr> sizes) {
  std::vector<Expr> out(sizes.size(), arena_.constant(1));
  auto groups = group(arena_, from, sizes);
  if (!groups) return std::nullopt;
  for (const Group& g : *groups) {
    for (size_t k = g.from.size() - 1; k-- > 0;)
      if (!arena_.known_equal(strides[g.from[k]], arena_.mul(strides[g.from[k + 1]], from[g.from[k + 1]])))
        return std::nullopt;
    Expr s = strides[g.from.back()];
    for (size_t k = g.to.size(); k-- > 0;) {
      out[g.to[k]] = s;
      s = arena_.mul(s, sizes[g.to[k]]);
    }
  }
  // Dimensions of size 1 get the stride that a row-major neighbour would have.
  for (size_t k = sizes.size(); k-- > 0;)
    if (is_one(sizes[k]) && k + 1 < sizes.size()) out[k] = arena_.mul(out[k + 1], sizes[k + 1]);
  return out;
}

Expr Indexing::dot(std::span<const Expr> index, std::span<const Expr> strides, Expr offset) {
  Expr e = offset;
  for (size_t i = 0; i < index.size(); ++i) e = arena_.add(e, arena_.mul(index[i], strides[i]));
  return e;
}

std::vector<int> Indexing::by_stride(std::span<const Expr> sizes, std::span<const Expr> strides) {
  std::vector<int> order(sizes.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  auto larger = [&](int a, int b) {  // stride of a provably greater
    Expr x = strides[a], y = strides[b];
    if (x == y) return false;
    auto cx = arena_.as_const(x), cy = arena_.as_const(y);
    if (cx && cy) return *cx > *cy;
    if (arena_.range(arena_.sub(x, y)).lo > 0) return true;
    // x is y times something that is at least 1 and not the constant 1.
    return !is_zero(y) && arena_.mul(arena_.floordiv(x, y), y) == x && !is_one(x);
  };
  // Insertion sort: `larger` is only a partial order.
  for (size_t i = 1; i < order.size(); ++i)
    for (size_t j = i; j > 0 && larger(order[j], order[j - 1]); --j) std::swap(order[j], order[j - 1]);
  return order;
}

}  // namespace braze::lower
