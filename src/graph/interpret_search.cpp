// Values that are looked for in tensors.
#include <algorithm>
#include <cmath>

#include "graph/interpret_rules.h"

namespace braze::graph::host {
namespace {

// (elements, test elements, assume unique, invert), either of them a number
void is_in(HostCall& c) {
  HostTensor elements = c.operand(0), tests = c.operand(1);
  c.each([&](const Dims& i) {
    bool found = std::find(tests.data.begin(), tests.data.end(), at(elements, i)) != tests.data.end();
    return found != c.flag(3);
  });
}

// How many of the sorted bounds are below v, or with `right` not above it. NaN comes last.
double place(const Numbers& bounds, double v, bool right) {
  double n = 0;
  for (double b : bounds) n += right ? !(b > v) : !(b >= v);
  return n;
}

// (values, boundaries, int32 results, right)
void bucketize(HostCall& c) {
  HostTensor values = c.operand(0);
  c.each([&](const Dims& i) { return place(c.tensor(1).data, at(values, i), c.flag(3)); });
}

// (sorted rows, or one; values; int32 results; right; side; the order in which the rows are sorted)
void searchsorted(HostCall& c) {
  const HostTensor& sorted = c.tensor(0);
  HostTensor values = c.operand(1);
  bool right = c.none(4) ? c.flag(3) : c.text(4) == "right";
  c.each([&](const Dims& i) {
    Dims row = sorted.sizes.size() == 1 ? Dims{0} : i;
    Numbers bounds;
    for (row.back() = 0; row.back() < sorted.sizes.back(); ++row.back()) {
      Dims from = row;
      if (c.has(5)) from.back() = static_cast<int64_t>(at(c.tensor(5), row));
      bounds.push_back(at(sorted, from));
    }
    return place(bounds, at(values, i), right);
  });
}

// (values, parts, least, greatest): rounded to the values' type at each step
void histc(HostCall& c) {
  const HostTensor& values = c.tensor(0);
  auto rounded = [&](double v) { return values.dtype == DType::F32 ? static_cast<double>(static_cast<float>(v)) : v; };
  const double parts = c.number(1, 100), low = rounded(c.number(2, 0)), high = rounded(c.number(3, 0));
  Numbers counts(static_cast<size_t>(parts));
  for (double v : values.data) {
    if (!(v >= low && v <= high)) continue;
    const double part = rounded(rounded(rounded(v - low) * parts) / rounded(high - low));
    ++counts[static_cast<size_t>(std::min(part, parts - 1))];
  }
  c.give(std::move(counts));
}

}  // namespace

Rule search_rule(Op op) { return op == Op::isin_Tensor_Tensor || op == Op::isin_Tensor_Scalar ? is_in : nullptr; }

Rule search_rule(std::string_view name) {
  if (name.starts_with("aten::isin.")) return is_in;
  if (name.starts_with("aten::bucketize.")) return bucketize;
  if (name == "aten::searchsorted.Tensor" || name == "aten::searchsorted.Scalar") return searchsorted;
  if (name == "aten::histc") return histc;
  return nullptr;
}

}  // namespace braze::graph::host
