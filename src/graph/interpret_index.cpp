// Gathers, scatters and joins. Of a place that is written several times without a sum the last one counts.
#include <algorithm>

#include "base/check.h"
#include "graph/interpret_rules.h"

namespace braze::graph::host {
namespace {

int64_t in_range(double index, int64_t size) {
  auto i = static_cast<int64_t>(index);
  if (i < 0) i += size;
  BRAZE_CHECK(i >= 0 && i < size, "an index within its dimension");
  return i;
}

void embedding(HostCall& c) {
  const HostTensor &w = c.tensor(0), &rows = c.tensor(1);
  c.each([&](const Dims& index) {
    double row = at(rows, Dims(index.begin(), index.end() - 1));
    return at(w, {in_range(row, w.sizes[0]), index.back()});
  });
}

// (weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset, padding row):
// of sums and means the bags alone.
void embedding_bag(HostCall& c) {
  const HostTensor &w = c.tensor(0), &rows = c.tensor(1), &offsets = c.tensor(2);
  const bool mean = c.number(4) == 1;
  c.each([&](const Dims& index) {
    const int64_t bag = index[0], bags = offsets.sizes[0];
    const auto from = static_cast<int64_t>(at(offsets, {bag}));
    const int64_t to = bag + 1 < bags ? static_cast<int64_t>(at(offsets, {bag + 1})) : rows.sizes[0];
    double sum = 0;
    int64_t counted = 0;
    for (int64_t i = from; i < to; ++i) {
      const double row = at(rows, {i});
      if (row == c.number(8)) continue;
      ++counted;
      sum += at(w, {in_range(row, w.sizes[0]), index[1]}) * (c.has(6) ? at(c.tensor(6), {i}) : 1.0);
    }
    return mean ? sum / static_cast<double>(std::max<int64_t>(counted, 1)) : sum;
  });
  for (size_t k = 1; k < 4; ++k) c.leave_undefined(k);
}

// (grad, indices, rows, padding row, scaled by how often a row is read)
void embedding_backward(HostCall& c) {
  const HostTensor &grad = c.tensor(0), &rows = c.tensor(1);
  Dims sizes = c.sizes();
  Numbers out(static_cast<size_t>(count(sizes))), read(static_cast<size_t>(sizes[0]));
  for (double r : rows.data) read[static_cast<size_t>(r)] += 1;
  for_each_index(grad.sizes, [&](const Dims& index) {
    double row = at(rows, Dims(index.begin(), index.end() - 1));
    if (static_cast<int64_t>(row) == c.integer(3)) return;
    double share = c.flag(4) ? 1 / read[static_cast<size_t>(row)] : 1;
    out[flat_index(sizes, {in_range(row, sizes[0]), index.back()})] += share * at(grad, index);
  });
  c.give(std::move(out));
}

// (self, [before, after] of the last dimension, then of those before it, value)
void pad(HostCall& c) {
  const HostTensor& x = c.tensor(0);
  Dims around = c.integers(1);
  double value = c.number(2, 0);
  c.each([&](Dims index) {
    for (size_t i = 0; 2 * i < around.size(); ++i) {
      size_t d = x.sizes.size() - 1 - i;
      index[d] -= around[2 * i];
      if (index[d] < 0 || index[d] >= x.sizes[d]) return value;
    }
    return at(x, index);
  });
}

void gather(HostCall& c) {
  const HostTensor &x = c.tensor(0), &index = c.tensor(2);
  size_t d = c.dim(1, x.sizes.size());
  c.each([&](Dims i) {
    i[d] = in_range(at(index, i), x.sizes[d]);
    return at(x, i);
  });
}

// (self, dim, index, source), of index's sizes
template <bool kAdds>
void scatter(HostCall& c) {
  const HostTensor &x = c.tensor(0), &index = c.tensor(2), &source = c.tensor(3);
  size_t d = c.dim(1, x.sizes.size());
  Numbers out = x.data;
  for_each_index(index.sizes, [&](const Dims& i) {
    Dims to = i;
    to[d] = in_range(at(index, i), x.sizes[d]);
    double& element = out[flat_index(x.sizes, to)];
    const double given = source.data[flat_index(source.sizes, i)];
    element = kAdds ? element + given : given;
  });
  c.give(std::move(out));
}

// (self, dim, index, source, reduce, include_self): of sums.
void scatter_reduce(HostCall& c) {
  BRAZE_CHECK(c.text(4) == "sum" && c.flag(5), "sums that begin with self alone are scattered here");
  scatter<true>(c);
}

// (self, dim, index of one dimension, source, alpha)
void index_add(HostCall& c) {
  const HostTensor &x = c.tensor(0), &index = c.tensor(2), &source = c.tensor(3);
  size_t d = c.dim(1, x.sizes.size());
  Numbers out = x.data;
  for_each_index(source.sizes, [&](const Dims& i) {
    Dims to = i;
    to[d] = in_range(index.data[static_cast<size_t>(i[d])], x.sizes[d]);
    out[flat_index(x.sizes, to)] += c.number(4, 1) * at(source, i);
  });
  c.give(std::move(out));
}

HostTensor ones_of(const HostTensor& mask, size_t d) {
  HostTensor out{DType::I64, {0}, {}};
  for_each_index(mask.sizes, [&](const Dims& i) {
    if (at(mask, i) != 0) out.data.push_back(static_cast<double>(i[d]));
  });
  out.sizes[0] = static_cast<int64_t>(out.data.size());
  return out;
}

// How x[indices] is made: the sizes of the result, and the element of x that each of its elements is.
struct Indexing {
  std::vector<const HostTensor*> by;  // per dimension of x
  std::vector<HostTensor> masks;      // a mask stands for the indices of its true elements
  Dims sizes, common;                 // of the result; of the broadcast indices
  size_t first = 0;                   // where these stand in it

  Indexing(const HostTensor& x, const std::vector<const HostTensor*>& given) {
    size_t expanded = 0;
    for (const HostTensor* t : given) expanded += t ? t->sizes.size() : 0;
    masks.reserve(expanded);
    for (const HostTensor* t : given) {
      bool mask = t && (t->dtype == DType::Bool || t->dtype == DType::U8);
      for (size_t d = 0; mask && d < t->sizes.size(); ++d) by.push_back(&masks.emplace_back(ones_of(*t, d)));
      if (!mask) by.push_back(t);
    }
    by.resize(x.sizes.size(), nullptr);
    size_t last = 0, used = 0;
    for (size_t d = 0; d < by.size(); ++d) {
      if (!by[d]) continue;
      if (used++ == 0) first = d;
      last = d;
      Dims more = by[d]->sizes;
      if (more.size() > common.size()) common.insert(common.begin(), more.size() - common.size(), 1);
      for (size_t k = 0; k < more.size(); ++k) {
        int64_t& size = common[common.size() - more.size() + k];
        if (size == 1) size = more[k];
      }
    }
    if (used && last - first + 1 != used) first = 0;  // apart: the indexed dimensions come first
    for (size_t d = 0; d < by.size(); ++d)
      if (!by[d]) sizes.push_back(x.sizes[d]);
    sizes.insert(sizes.begin() + static_cast<ptrdiff_t>(first), common.begin(), common.end());
  }

  Dims source(const HostTensor& x, const Dims& index) const {
    auto middle = index.begin() + static_cast<ptrdiff_t>(first);
    Dims chosen(middle, middle + static_cast<ptrdiff_t>(common.size()));
    Dims rest(index.begin(), middle), out;
    rest.insert(rest.end(), middle + static_cast<ptrdiff_t>(common.size()), index.end());
    size_t next = 0;
    for (size_t d = 0; d < by.size(); ++d)
      out.push_back(by[d] ? in_range(at(*by[d], chosen), x.sizes[d]) : rest[next++]);
    return out;
  }
};

void index(HostCall& c) {
  const HostTensor& x = c.tensor(0);
  Indexing how(x, c.tensors(1));
  Dims sizes = c.sizes();
  BRAZE_CHECK(sizes == how.sizes, "the sizes of an indexed tensor");
  c.each([&](const Dims& i) { return at(x, how.source(x, i)); });
}

// (self, indices, values, accumulate)
void index_put(HostCall& c) {
  const HostTensor &x = c.tensor(0), &values = c.tensor(2);
  Indexing how(x, c.tensors(1));
  Numbers out = x.data;
  for_each_index(how.sizes, [&](const Dims& i) {
    double& to = out[flat_index(x.sizes, how.source(x, i))];
    to = at(values, i) + (c.flag(3) ? to : 0);
  });
  c.give(std::move(out));
}

// (self, mask, indices, fill): where the mask is false nothing is read.
void masked_index(HostCall& c) {
  const HostTensor &x = c.tensor(0), &mask = c.tensor(1);
  Indexing how(x, c.tensors(2));
  c.each([&](const Dims& i) { return at(mask, i) != 0 ? at(x, how.source(x, i)) : c.number(3); });
}

// (self, mask, indices, values): adds those of true elements.
void masked_put(HostCall& c) {
  const HostTensor &x = c.tensor(0), &mask = c.tensor(1), &values = c.tensor(3);
  Indexing how(x, c.tensors(2));
  Numbers out = x.data;
  for_each_index(how.sizes, [&](const Dims& i) {
    if (at(mask, i) != 0) out[flat_index(x.sizes, how.source(x, i))] += at(values, i);
  });
  c.give(std::move(out));
}

// (self, index, source, accumulate): elements of the flattened tensor.
void put(HostCall& c) {
  const HostTensor &index = c.tensor(1), &source = c.tensor(2);
  Numbers out = c.tensor(0).data;
  for (size_t k = 0; k < index.data.size(); ++k) {
    double& to = out[static_cast<size_t>(in_range(index.data[k], static_cast<int64_t>(out.size())))];
    to = source.data.at(k) + (c.flag(3) ? to : 0);
  }
  c.give(std::move(out));
}

void nonzero(HostCall& c) {
  const HostTensor& x = c.tensor(0);
  Numbers out;
  for_each_index(x.sizes, [&](const Dims& index) {
    if (at(x, index) != 0) out.insert(out.end(), index.begin(), index.end());
  });
  size_t rank = x.sizes.size();
  c.bind(c.size_of_result(0, 0), static_cast<int64_t>(rank ? out.size() / rank : static_cast<size_t>(x.data[0] != 0)));
  c.give(std::move(out));
}

void cat(HostCall& c) {
  std::vector<const HostTensor*> parts = c.tensors(0);
  Dims sizes = c.sizes();
  size_t d = c.dim(1, sizes.size());
  c.each([&](Dims i) {
    for (const HostTensor* part : parts) {
      if (part->sizes.size() != sizes.size()) continue;  // sizes [0] beside others of more dimensions
      if (i[d] < part->sizes[d]) return at(*part, i);
      i[d] -= part->sizes[d];
    }
    throw InternalError("a concatenation longer than its parts");
  });
}

void stack(HostCall& c) {
  std::vector<const HostTensor*> parts = c.tensors(0);
  size_t d = c.dim(1, c.sizes().size());
  c.each([&](Dims i) {
    const HostTensor& part = *parts.at(static_cast<size_t>(i[d]));
    i.erase(i.begin() + static_cast<ptrdiff_t>(d));
    return at(part, i);
  });
}

// (self, diagonal)
void triangle(HostCall& c) {
  const HostTensor& x = c.tensor(0);
  c.each([&](const Dims& i) {
    const int64_t right = i.back() - i[i.size() - 2] - c.integer(1);
    return (c.op() == Op::tril ? right <= 0 : right >= 0) ? at(x, i) : 0;
  });
}

}  // namespace

Rule index_rule(std::string_view name) {
  if (name == "aten::_unsafe_masked_index") return masked_index;
  if (name == "aten::_unsafe_masked_index_put_accumulate") return masked_put;
  if (name == "aten::put") return put;
  return nullptr;
}

Rule index_rule(Op op) {
  switch (op) {
    case Op::embedding: return embedding;
    case Op::_embedding_bag:
    case Op::_embedding_bag_forward_only: return embedding_bag;
    case Op::embedding_dense_backward: return embedding_backward;
    case Op::constant_pad_nd: return pad;
    case Op::gather: return gather;
    case Op::scatter_add: return scatter<true>;
    case Op::scatter_src: return scatter<false>;
    case Op::scatter_reduce_two: return scatter_reduce;
    case Op::index_add: return index_add;
    case Op::index_Tensor: return index;
    case Op::index_put:
    case Op::_unsafe_index_put: return index_put;
    case Op::nonzero: return nonzero;
    case Op::cat: return cat;
    case Op::tril:
    case Op::triu: return triangle;
    case Op::stack: return stack;
    default: return nullptr;
  }
}

}  // namespace braze::graph::host
