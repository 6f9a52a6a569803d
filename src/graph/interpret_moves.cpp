// Operators without rows that move elements, by where an element of the result comes from or goes to.
#include <algorithm>

#include "graph/interpret_rules.h"

namespace braze::graph::host {
namespace {

// aten::NAME_copy is the row aten::NAME with a result of its own.
Rule copied_view(std::string_view name) {
  size_t at = name.find("_copy");
  if (at == std::string_view::npos) return nullptr;
  std::string view(name.substr(0, at));
  view += name.substr(at + std::string_view("_copy").size());
  Op op = op_from_name(view);
  return op == Op::Extern ? nullptr : view_rule(op);
}

// (self, dim, start, length)
void narrow_copy(HostCall& c) {
  const HostTensor& x = c.tensor(0);
  size_t d = c.dim(1, x.sizes.size());
  int64_t start = c.integer(2) < 0 ? c.integer(2) + x.sizes[d] : c.integer(2);
  c.each([&](Dims i) {
    i[d] += start;
    return at(x, i);
  });
}

// (self, turns, dims): a quarter turn takes the first dimension towards the second.
void rot90(HostCall& c) {
  const HostTensor& x = c.tensor(0);
  int64_t turns = (c.integer(1) % 4 + 4) % 4;
  size_t a = HostCall::wrapped(c.integers(2)[0], x.sizes.size()),
         b = HostCall::wrapped(c.integers(2)[1], x.sizes.size());
  c.each([&](Dims i) {
    for (int64_t turn = turns; turn > 0; --turn) {
      int64_t size = x.sizes[turn % 2 ? b : a];  // of the second dimension before this turn
      int64_t row = i[a];
      i[a] = i[b];
      i[b] = size - 1 - row;
    }
    return at(x, i);
  });
}

// (self, offset, dim1, dim2): the last dimension is the diagonal of matrices.
void diag_embed(HostCall& c) {
  const HostTensor& x = c.tensor(0);
  size_t rank = x.sizes.size() + 1, a = c.dim(2, rank), b = c.dim(3, rank);
  c.each([&](const Dims& i) {
    if (i[b] - i[a] != c.integer(1)) return 0.0;
    Dims from;
    for (size_t d = 0; d < rank; ++d)
      if (d != a && d != b) from.push_back(i[d]);
    from.push_back(std::min(i[a], i[b]));
    return at(x, from);
  });
}

// (tensors): matrices, rows or elements along a diagonal.
void block_diag(HostCall& c) {
  Dims sizes = c.sizes();
  Numbers out(static_cast<size_t>(count(sizes)));
  int64_t row = 0, column = 0;
  for (const HostTensor* t : c.tensors(0)) {
    Dims block = t->sizes;
    block.insert(block.begin(), 2 - block.size(), 1);
    size_t next = 0;
    for_each_index(block,
                   [&](const Dims& i) { out[flat_index(sizes, {row + i[0], column + i[1]})] = t->data[next++]; });
    row += block[0];
    column += block[1];
  }
  c.give(std::move(out));
}

// (self, places in a plane of the result, its sizes)
void max_unpool(HostCall& c) {
  const HostTensor &x = c.tensor(0), &places = c.tensor(1);
  size_t n = c.integers(2).size();
  Dims sizes = c.sizes();
  int64_t plane = 1, own = 1;
  for (size_t d = sizes.size() - n; d < sizes.size(); ++d) plane *= sizes[d], own *= x.sizes[d];
  Numbers out(static_cast<size_t>(count(sizes)));
  for (size_t k = 0; k < x.data.size(); ++k)
    out.at(static_cast<size_t>(static_cast<int64_t>(k) / own * plane + static_cast<int64_t>(places.data[k]))) =
        x.data[k];
  c.give(std::move(out));
}

}  // namespace

Rule move_rule(std::string_view name) {
  if (name == "aten::narrow_copy") return narrow_copy;
  if (name == "aten::rot90") return rot90;
  if (name == "aten::diag_embed") return diag_embed;
  if (name == "aten::block_diag") return block_diag;
  if (name == "aten::max_unpool2d" || name == "aten::max_unpool3d") return max_unpool;
  return copied_view(name);
}

}  // namespace braze::graph::host
