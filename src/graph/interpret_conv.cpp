// Convolutions and windows, by the pairs of elements that meet in them.
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "graph/interpret_rules.h"
#include "graph/packed_weight.h"

namespace braze::graph::host {
namespace {

// stride, padding, dilation, transposed, output_padding, groups, from this argument on
struct Convolution {
  Dims stride, padding, dilation;
  bool transposed;
  int64_t groups;

  Convolution(Dims stride, Dims padding, Dims dilation, int64_t groups)
      : stride(std::move(stride)),
        padding(std::move(padding)),
        dilation(std::move(dilation)),
        transposed(false),
        groups(groups) {}

  Convolution(const HostCall& c, size_t first, size_t spatial)
      : stride(c.integers(first)),
        padding(c.integers(first + 1)),
        dilation(c.integers(first + 2)),
        transposed(c.flag(first + 3)),
        groups(c.integer(first + 5)) {
    for (Dims* d : {&stride, &padding, &dilation}) d->resize(spatial, d->at(0));
  }

  // f(index of x, index of w, index of y) for each product of a sum. A transposed one is the gradient of another, in
  // which x and y have changed places.
  template <class F>
  void for_each_product(const Dims& x, const Dims& w, const Dims& y, F&& f) const {
    const Dims &wide = transposed ? y : x, &narrow = transposed ? x : y;
    int64_t rows = w[0] / groups, columns = w[1];  // channels of `narrow` and of `wide` in a group
    for_each_index(w, [&](const Dims& tap) {
      for_each_index(narrow, [&](const Dims& at_narrow) {
        if (at_narrow[1] != tap[0]) return;
        Dims at_wide = at_narrow;
        at_wide[1] = tap[0] / rows * columns + tap[1];
        for (size_t d = 2; d < w.size(); ++d) {
          at_wide[d] = at_narrow[d] * stride[d - 2] - padding[d - 2] + tap[d] * dilation[d - 2];
          if (at_wide[d] < 0 || at_wide[d] >= wide[d]) return;
        }
        f(transposed ? at_narrow : at_wide, tap, transposed ? at_wide : at_narrow);
      });
    });
  }
};

void convolve(HostCall& c, const Convolution& how) {
  const HostTensor &x = c.tensor(0), &w = c.tensor(1);
  Dims sizes = c.sizes();
  Numbers out;
  for_each_index(sizes, [&](const Dims& i) { out.push_back(c.has(2) ? at(c.tensor(2), {i[1]}) : 0); });
  how.for_each_product(x.sizes, w.sizes, sizes, [&](const Dims& ix, const Dims& iw, const Dims& iy) {
    out[flat_index(sizes, iy)] += at(x, ix) * at(w, iw);
  });
  c.give(std::move(out));
}

void convolution(HostCall& c) { convolve(c, Convolution(c, 3, c.sizes().size() - 2)); }

// (x, weight, bias, padding, stride, dilation, groups, then an activation, which is none)
void packed_convolution(HostCall& c) {
  BRAZE_CHECK(c.text(7) == "none", "a packed convolution with an activation");
  convolve(c, Convolution(c.integers(4), c.integers(3), c.integers(5), c.integer(6)));
}

// (grad, input, weight, bias sizes, stride...): of input, weight and bias
void convolution_backward(HostCall& c) {
  const HostTensor &grad = c.tensor(0), &x = c.tensor(1), &w = c.tensor(2);
  Convolution how(c, 4, grad.sizes.size() - 2);
  Numbers dx(x.data.size()), dw(w.data.size()), db(static_cast<size_t>(grad.sizes[1]));
  how.for_each_product(x.sizes, w.sizes, grad.sizes, [&](const Dims& ix, const Dims& iw, const Dims& iy) {
    dx[flat_index(x.sizes, ix)] += at(w, iw) * at(grad, iy);
    dw[flat_index(w.sizes, iw)] += at(x, ix) * at(grad, iy);
  });
  for_each_index(grad.sizes, [&](const Dims& i) { db[static_cast<size_t>(i[1])] += at(grad, i); });
  c.give(0, std::move(dx));
  c.give(1, std::move(dw));
  c.give(2, std::move(db));
}

// (self, kernel, stride, padding, dilation, ceil mode): maxima, and their positions in a plane
void max_pool2d(HostCall& c) {
  const HostTensor& x = c.tensor(0);
  Dims sizes = c.sizes();
  size_t rank = sizes.size();
  auto pair = [&](size_t i, Dims otherwise) {
    Dims d = c.none(i) || c.integers(i).empty() ? std::move(otherwise) : c.integers(i);
    d.resize(2, d.at(0));
    return d;
  };
  Dims kernel = pair(1, {}), stride = pair(2, kernel), padding = pair(3, {0}), dilation = pair(4, {1});
  Numbers best, where;
  for_each_index(sizes, [&](const Dims& i) {
    double most = 0, place = -1;
    for_each_index(kernel, [&](const Dims& tap) {
      Dims from = i;
      for (size_t d = 0; d < 2; ++d) {
        int64_t& p = from[rank - 2 + d];
        p = p * stride[d] - padding[d] + tap[d] * dilation[d];
        if (p < 0 || p >= x.sizes[rank - 2 + d]) return;
      }
      double v = at(x, from);
      if (place >= 0 && !(v > most) && !std::isnan(v)) return;
      most = v;
      place = static_cast<double>(from[rank - 2] * x.sizes[rank - 1] + from[rank - 1]);
    });
    BRAZE_CHECK(place >= 0, "a window that covers an element");
    best.push_back(most);
    where.push_back(place);
  });
  c.give(0, std::move(best));
  c.give(1, std::move(where));
}

// Whether element i of `in` is in the window of element o of `out`, in one dimension.
bool covers(int64_t o, int64_t out, int64_t i, int64_t in) {
  return i >= o * in / out && i < ((o + 1) * in + out - 1) / out;
}

// The pairs of an element and of a window that covers it, over the last n dimensions, with the window's size.
template <class F>
void for_each_covered(const Dims& in, const Dims& out, size_t n, F&& f) {
  size_t lead = in.size() - n;
  for_each_index(out, [&](const Dims& o) {
    std::vector<Dims> inside;
    for_each_index(in, [&](const Dims& i) {
      for (size_t d = 0; d < in.size(); ++d)
        if (d < lead ? i[d] != o[d] : !covers(o[d], out[d], i[d], in[d])) return;
      inside.push_back(i);
    });
    for (const Dims& i : inside) f(i, o, static_cast<double>(inside.size()));
  });
}

template <size_t n>
void adaptive_avg_pool(HostCall& c) {
  const HostTensor& x = c.tensor(0);
  Dims sizes = c.sizes();
  Numbers out(static_cast<size_t>(count(sizes)));
  for_each_covered(x.sizes, sizes, n,
                   [&](const Dims& i, const Dims& o, double area) { out[flat_index(sizes, o)] += at(x, i) / area; });
  c.give(std::move(out));
}

template <size_t n>
void adaptive_avg_pool_backward(HostCall& c) {
  const HostTensor& grad = c.tensor(0);
  Dims sizes = c.sizes();
  Numbers out(static_cast<size_t>(count(sizes)));
  for_each_covered(sizes, grad.sizes, n,
                   [&](const Dims& i, const Dims& o, double area) { out[flat_index(sizes, i)] += at(grad, o) / area; });
  c.give(std::move(out));
}

// (self, output size, align_corners, scale of rows, of columns): between the four neighbours of each place
void upsample_bilinear2d(HostCall& c) {
  const HostTensor& x = c.tensor(0);
  const bool corners = c.flag(2);
  c.each([&](const Dims& index) {
    Dims lower = index, upper = index;
    double weight[2];  // of the upper neighbour
    for (size_t k = 0; k < 2; ++k) {
      const size_t d = k + 2;
      const auto from = static_cast<double>(x.sizes[d]), to = static_cast<double>(c.sizes()[d]);
      const auto i = static_cast<double>(index[d]);
      double place = i;
      if (from != to && corners)
        place = to > 1 ? i * (from - 1) / (to - 1) : 0;
      else if (from != to)
        place = std::max((i + 0.5) * (c.none(3 + k) ? from / to : 1 / c.number(3 + k)) - 0.5, 0.0);
      lower[d] = std::min(static_cast<int64_t>(place), x.sizes[d] - 1);
      upper[d] = std::min(lower[d] + 1, x.sizes[d] - 1);
      weight[k] = std::min(place - static_cast<double>(lower[d]), 1.0);
    }
    double sum = 0;
    for (int rows = 0; rows < 2; ++rows)
      for (int columns = 0; columns < 2; ++columns) {
        Dims at_tap = lower;
        if (rows) at_tap[2] = upper[2];
        if (columns) at_tap[3] = upper[3];
        sum += at(x, at_tap) * (rows ? weight[0] : 1 - weight[0]) * (columns ? weight[1] : 1 - weight[1]);
      }
    return sum;
  });
}

// (self, kernel, dilation, padding, stride): [C, H, W] -> [C * taps, places]
void im2col(HostCall& c) {
  const HostTensor& x = c.tensor(0);
  Dims kernel = c.integers(1), dilation = c.integers(2), padding = c.integers(3), stride = c.integers(4);
  size_t lead = x.sizes.size() - 3;
  int64_t width = (x.sizes[lead + 2] + 2 * padding[1] - dilation[1] * (kernel[1] - 1) - 1) / stride[1] + 1;
  c.each([&](const Dims& i) {
    int64_t tap = i[lead], place = i[lead + 1];
    Dims from(i.begin(), i.begin() + static_cast<ptrdiff_t>(lead));
    from.push_back(tap / (kernel[0] * kernel[1]));
    from.push_back(place / width * stride[0] - padding[0] + tap / kernel[1] % kernel[0] * dilation[0]);
    from.push_back(place % width * stride[1] - padding[1] + tap % kernel[1] * dilation[1]);
    for (size_t d = lead + 1; d < from.size(); ++d)
      if (from[d] < 0 || from[d] >= x.sizes[d]) return 0.0;
    return at(x, from);
  });
}

}  // namespace

Rule conv_rule(Op op) {
  switch (op) {
    case Op::convolution: return convolution;
    case Op::convolution_backward: return convolution_backward;
    case Op::im2col: return im2col;
    case Op::max_pool2d_with_indices: return max_pool2d;
    case Op::_adaptive_avg_pool2d: return adaptive_avg_pool<2>;
    case Op::_adaptive_avg_pool3d: return adaptive_avg_pool<3>;
    case Op::_adaptive_avg_pool2d_backward: return adaptive_avg_pool_backward<2>;
    case Op::upsample_bilinear2d: return upsample_bilinear2d;
    case Op::_adaptive_avg_pool3d_backward: return adaptive_avg_pool_backward<3>;
    default: return nullptr;
  }
}

Rule conv_rule(std::string_view name) { return name == graph::packed_convolution() ? packed_convolution : nullptr; }

}  // namespace braze::graph::host
