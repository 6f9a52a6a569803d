// Softmax and normalisations by their definitions. Gradients are those of each element by each other of its group,
// summed.
#include <cmath>
#include <limits>

#include "base/check.h"
#include "graph/interpret_rules.h"

namespace braze::graph::host {
namespace {

// Result 0, each element of which is a function of its row along dimension d: f(rows of the tensors, position).
template <class F>
void along(HostCall& c, size_t d, const std::vector<const HostTensor*>& tensors, F&& f) {
  c.each([&](const Dims& index) {
    std::vector<Numbers> rows;
    for (const HostTensor* t : tensors) {
      Numbers& row = rows.emplace_back();
      Dims i = index;
      for (i[d] = 0; i[d] < t->sizes[d]; ++i[d]) row.push_back(at(*t, i));
    }
    return f(rows, static_cast<size_t>(index[d]));
  });
}

double log_softmax(const Numbers& row, size_t i) {
  double top = extreme(row, true), total = 0;
  for (double v : row) total += std::exp(v - top);
  return row[i] - top - std::log(total);
}

template <class F>
void softmax_by(HostCall& c, F&& f) {
  const HostTensor& x = c.tensor(0);
  along(c, c.dim(1, x.sizes.size()), {&x}, [&](const std::vector<Numbers>& rows, size_t i) { return f(rows[0], i); });
}

void softmax(HostCall& c) {
  softmax_by(c, [](const Numbers& row, size_t i) { return std::exp(log_softmax(row, i)); });
}
void log_softmax(HostCall& c) {
  softmax_by(c, [](const Numbers& row, size_t i) { return log_softmax(row, i); });
}
// A row of nothing but -inf gives zeros.
void safe_softmax(HostCall& c) {
  softmax_by(c, [](const Numbers& row, size_t i) {
    return extreme(row, true) == -std::numeric_limits<double>::infinity() ? 0 : std::exp(log_softmax(row, i));
  });
}

// (grad, result, dim): of y_k by x_i it is y_k * ((k == i) - y_i).
void softmax_backward(HostCall& c) {
  const HostTensor &grad = c.tensor(0), &y = c.tensor(1);
  along(c, c.dim(2, y.sizes.size()), {&grad, &y}, [&](const std::vector<Numbers>& rows, size_t i) {
    double s = 0;
    for (size_t k = 0; k < rows[0].size(); ++k) s += rows[0][k] * rows[1][k] * ((k == i) - rows[1][i]);
    return s;
  });
}
// Of log y_k by x_i it is (k == i) - y_i.
void log_softmax_backward(HostCall& c) {
  const HostTensor &grad = c.tensor(0), &y = c.tensor(1);
  along(c, c.dim(2, y.sizes.size()), {&grad, &y}, [&](const std::vector<Numbers>& rows, size_t i) {
    double s = 0;
    for (size_t k = 0; k < rows[0].size(); ++k) s += rows[0][k] * ((k == i) - std::exp(rows[1][i]));
    return s;
  });
}

// What a normalisation does with the elements of x: those of a group are normalised together, those of a channel have
// one weight.
struct Grouping {
  const HostTensor& x;
  std::vector<size_t> group, channel;  // per element
  size_t groups = 0, channels = 0;

  template <class F>
  Grouping(const HostTensor& t, F&& of) : x(t) {  // of(index): group and channel
    for_each_index(x.sizes, [&](const Dims& index) {
      auto [g, c] = of(index);
      group.push_back(g);
      channel.push_back(c);
      groups = std::max(groups, g + 1);
      channels = std::max(channels, c + 1);
    });
  }

  // Over the last n dimensions.
  static Grouping of_rows(const HostTensor& x, size_t n) {
    auto lead = static_cast<ptrdiff_t>(x.sizes.size() - n);
    auto part = [&](const Dims& d, bool tail) {
      return tail ? Dims(d.begin() + lead, d.end()) : Dims(d.begin(), d.begin() + lead);
    };
    return Grouping(x, [&](const Dims& i) {
      return std::pair(flat_index(part(x.sizes, false), part(i, false)),
                       flat_index(part(x.sizes, true), part(i, true)));
    });
  }
  // Over all but dimension 1.
  static Grouping of_channels(const HostTensor& x) {
    return Grouping(x, [](const Dims& i) { return std::pair(static_cast<size_t>(i[1]), static_cast<size_t>(i[1])); });
  }
  static Grouping of_channel_groups(const HostTensor& x, int64_t groups) {
    return Grouping(x, [&](const Dims& i) {
      return std::pair(static_cast<size_t>(i[0] * groups + i[1] / (x.sizes[1] / groups)), static_cast<size_t>(i[1]));
    });
  }

  std::vector<Numbers> members() const {
    std::vector<Numbers> out(groups);
    for (size_t i = 0; i < group.size(); ++i) out[group[i]].push_back(x.data[i]);
    return out;
  }
  Numbers statistic(double (*f)(const Numbers&)) const {
    Numbers out;
    for (const Numbers& m : members()) out.push_back(f(m));
    return out;
  }
};

double mean_square(const Numbers& v) {
  double s = 0;
  for (double x : v) s += x * x;
  return s / static_cast<double>(v.size());
}
double own_variance(const Numbers& v) { return variance(v, 0); }

Numbers inverse_root(Numbers v, double eps) {
  for (double& x : v) x = 1 / std::sqrt(x + eps);
  return v;
}

// Gives result 0: (x - mean) * rstd * weight + bias.
void normalise(HostCall& c, const Grouping& how, const Numbers& mean, const Numbers& rstd, size_t weight, size_t bias) {
  Numbers out;
  for (size_t i = 0; i < how.x.data.size(); ++i) {
    double v = (how.x.data[i] - mean[how.group[i]]) * rstd[how.group[i]];
    if (c.has(weight)) v *= c.tensor(weight).data[how.channel[i]];
    if (c.has(bias)) v += c.tensor(bias).data[how.channel[i]];
    out.push_back(v);
  }
  c.give(0, std::move(out));
}

enum class Statistics : uint8_t { Given, OfMean, OfMeanSquare };  // what of mean and rstd follows from x

// Gives the gradients of x, weight and bias for the gradient of the result.
void normalise_backward(HostCall& c, const Grouping& how, const HostTensor& grad, const Numbers& mean,
                        const Numbers& rstd, size_t weight, Statistics statistics) {
  size_t n = how.x.data.size();
  Numbers xhat(n), gw(n), dx(n), dw(how.channels), db(how.channels);
  std::vector<std::vector<size_t>> members(how.groups);
  for (size_t i = 0; i < n; ++i) {
    size_t g = how.group[i], ch = how.channel[i];
    members[g].push_back(i);
    xhat[i] = (how.x.data[i] - mean[g]) * rstd[g];
    gw[i] = grad.data[i] * (c.has(weight) ? c.tensor(weight).data[ch] : 1);
    dw[ch] += grad.data[i] * xhat[i];
    db[ch] += grad.data[i];
  }
  for (size_t i = 0; i < n; ++i) {
    const std::vector<size_t>& group = members[how.group[i]];
    for (size_t k : group) {  // xhat_k by x_i
      double slope = k == i;
      if (statistics == Statistics::OfMean) slope -= 1.0 / static_cast<double>(group.size());
      if (statistics != Statistics::Given) slope -= xhat[i] * xhat[k] / static_cast<double>(group.size());
      dx[i] += gw[k] * slope * rstd[how.group[i]];
    }
  }
  c.give(0, std::move(dx));
  c.give(1, std::move(dw));
  c.give(2, std::move(db));
}

// (input, sizes, weight, bias, eps)
void layer_norm(HostCall& c) {
  Grouping how = Grouping::of_rows(c.tensor(0), c.integers(1).size());
  Numbers means = how.statistic(mean), rstd = inverse_root(how.statistic(own_variance), c.number(4));
  normalise(c, how, means, rstd, 2, 3);
  c.give(1, std::move(means));
  c.give(2, std::move(rstd));
}

// (grad, input, sizes, mean, rstd, weight, bias, mask)
void layer_norm_backward(HostCall& c) {
  Grouping how = Grouping::of_rows(c.tensor(1), c.integers(2).size());
  normalise_backward(c, how, c.tensor(0), c.tensor(3).data, c.tensor(4).data, 5, Statistics::OfMean);
}

constexpr size_t kNone = 99;  // no argument has it

// (input, sizes, weight, eps)
void rms_norm(HostCall& c) {
  const HostTensor& x = c.tensor(0);
  Grouping how = Grouping::of_rows(x, c.integers(1).size());
  double eps = x.dtype == DType::F64 ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon();
  Numbers rstd = inverse_root(how.statistic(mean_square), c.number(3, eps));
  normalise(c, how, Numbers(how.groups), rstd, 2, kNone);
  c.give(1, std::move(rstd));
}

// (grad, input, sizes, rstd, weight, mask)
void rms_norm_backward(HostCall& c) {
  Grouping how = Grouping::of_rows(c.tensor(1), c.integers(2).size());
  normalise_backward(c, how, c.tensor(0), Numbers(how.groups), c.tensor(3).data, 4, Statistics::OfMeanSquare);
}

// (input, weight, bias, N, C, HxW, groups, eps)
void group_norm(HostCall& c) {
  Grouping how = Grouping::of_channel_groups(c.tensor(0), c.integer(6));
  Numbers means = how.statistic(mean), rstd = inverse_root(how.statistic(own_variance), c.number(7));
  normalise(c, how, means, rstd, 1, 2);
  c.give(1, std::move(means));
  c.give(2, std::move(rstd));
}

// (grad, input, mean, rstd, weight, N, C, HxW, groups, mask)
void group_norm_backward(HostCall& c) {
  Grouping how = Grouping::of_channel_groups(c.tensor(1), c.integer(8));
  normalise_backward(c, how, c.tensor(0), c.tensor(2).data, c.tensor(3).data, 4, Statistics::OfMean);
}

// (input, weight, bias, ...), with the running statistics from argument `running` on where there are some. What a call
// writes to them is no part of its results, but for the functional one, which returns them.
void batch_norm(HostCall& c, bool train, size_t running, double momentum, double eps) {
  Grouping how = Grouping::of_channels(c.tensor(0));
  Numbers means = train ? how.statistic(mean) : c.tensor(running).data;
  Numbers variances = train ? how.statistic(own_variance) : c.tensor(running + 1).data;
  Numbers rstd = inverse_root(variances, eps);
  normalise(c, how, means, rstd, 1, 2);
  if (c.op() == Op::_native_batch_norm_legit_functional) {
    double n = static_cast<double>(how.x.data.size()) / static_cast<double>(how.channels);
    for (size_t k = 0; k < 2; ++k) {
      Numbers blended = c.tensor(running + k).data;
      for (size_t i = 0; train && i < blended.size(); ++i)
        blended[i] = (1 - momentum) * blended[i] + momentum * (k ? variances[i] * n / (n - 1) : means[i]);
      c.give(3 + k, std::move(blended));
    }
  }
  for (size_t k = 1; k <= 2; ++k) {
    bool empty = c.wants(k) && c.sizes(k) == Dims{0};  // without training PyTorch gives no statistics
    BRAZE_CHECK(!empty || !train, "statistics of a batch");
    c.give(k, empty ? Numbers() : k == 1 ? means : rstd);
  }
  if (c.op() == Op::cudnn_batch_norm) c.leave_undefined(3);  // its reserve, which it alone reads
}

// (input, weight, bias, running mean, running variance, train, momentum, eps)
void batch_norm(HostCall& c) { batch_norm(c, c.flag(5), 3, c.number(6), c.number(7)); }
// (input, weight, bias, train, momentum, eps)
void batch_norm_without_statistics(HostCall& c) { batch_norm(c, c.flag(3), kNone, c.number(4), c.number(5)); }
// (input, weight, bias, running mean, running variance, momentum, eps)
void batch_norm_without_training(HostCall& c) { batch_norm(c, false, 3, c.number(5), c.number(6)); }

// (grad, input, weight, running mean, running variance, mean, rstd, train, eps, mask)
void batch_norm_backward(HostCall& c) {
  Grouping how = Grouping::of_channels(c.tensor(1));
  bool train = c.flag(7);
  Numbers rstd = train ? c.tensor(6).data : inverse_root(c.tensor(4).data, c.number(8));
  normalise_backward(c, how, c.tensor(0), c.tensor(train ? 5 : 3).data, rstd, 2,
                     train ? Statistics::OfMean : Statistics::Given);
}

// (input, grad, weight, running mean, running variance, mean, rstd, eps, reserve)
void cudnn_batch_norm_backward(HostCall& c) {
  Grouping how = Grouping::of_channels(c.tensor(0));
  normalise_backward(c, how, c.tensor(1), c.tensor(5).data, c.tensor(6).data, 2, Statistics::OfMean);
}

// The elements of each slice along dimension d.
std::vector<Numbers> slices(const HostTensor& x, size_t d) {
  std::vector<Numbers> out(static_cast<size_t>(x.sizes[d]));
  for_each_index(x.sizes, [&](const Dims& i) { out[static_cast<size_t>(i[d])].push_back(at(x, i)); });
  return out;
}

// (self, p, dim, most): slices whose norm is larger are scaled down to it.
void renorm(HostCall& c) {
  const HostTensor& x = c.tensor(0);
  size_t d = c.dim(2, x.sizes.size());
  Numbers factors;
  for (const Numbers& slice : slices(x, d)) {
    double norm = vector_norm(slice, c.number(1));
    factors.push_back(norm > c.number(3) ? c.number(3) / (norm + 1e-7) : 1);
  }
  c.each([&](const Dims& i) { return at(x, i) * factors[static_cast<size_t>(i[d])]; });
}

// (v, g, dim): v / norm * g, and the norms of the slices along dim.
void weight_norm(HostCall& c) {
  const HostTensor &v = c.tensor(0), &g = c.tensor(1);
  size_t d = c.dim(2, v.sizes.size());
  Numbers norms;
  for (const Numbers& slice : slices(v, d)) norms.push_back(vector_norm(slice, 2));
  c.each([&](const Dims& i) { return at(v, i) / norms[static_cast<size_t>(i[d])] * at(g, i); });
  c.give(1, std::move(norms));
}

// (grad, v, g, norms, dim): of v_k / norm by v_i it is (k == i) / norm - v_k * v_i / norm^3.
void weight_norm_backward(HostCall& c) {
  const HostTensor &grad = c.tensor(0), &v = c.tensor(1), &g = c.tensor(2), &norms = c.tensor(3);
  size_t d = c.dim(4, v.sizes.size());
  std::vector<Numbers> grads = slices(grad, d), values = slices(v, d);
  Numbers dg;
  for (size_t s = 0; s < values.size(); ++s) {
    double along = 0;
    for (size_t k = 0; k < values[s].size(); ++k) along += grads[s][k] * values[s][k] / norms.data[s];
    dg.push_back(along);
  }
  c.each([&](const Dims& i) {
    auto s = static_cast<size_t>(i[d]);
    double sum = at(grad, i) / norms.data[s];
    for (size_t k = 0; k < values[s].size(); ++k)
      sum -= grads[s][k] * values[s][k] * at(v, i) / std::pow(norms.data[s], 3);
    return sum * at(g, i);
  });
  c.give(1, std::move(dg));
}

}  // namespace

Rule norm_rule(std::string_view name) {
  if (name == "aten::renorm") return renorm;
  if (name == "aten::_weight_norm_interface") return weight_norm;
  if (name == "aten::_weight_norm_interface_backward") return weight_norm_backward;
  return nullptr;
}

Rule norm_rule(Op op) {
  switch (op) {
    case Op::_softmax: return softmax;
    case Op::_log_softmax: return log_softmax;
    case Op::_safe_softmax: return safe_softmax;
    case Op::_softmax_backward_data: return softmax_backward;
    case Op::_log_softmax_backward_data: return log_softmax_backward;
    case Op::native_layer_norm: return layer_norm;
    case Op::native_layer_norm_backward: return layer_norm_backward;
    case Op::_fused_rms_norm: return rms_norm;
    case Op::_fused_rms_norm_backward: return rms_norm_backward;
    case Op::native_group_norm: return group_norm;
    case Op::native_group_norm_backward: return group_norm_backward;
    case Op::native_batch_norm:
    case Op::cudnn_batch_norm:
    case Op::_native_batch_norm_legit:
    case Op::_native_batch_norm_legit_functional: return batch_norm;
    case Op::_native_batch_norm_legit_no_stats: return batch_norm_without_statistics;
    case Op::_native_batch_norm_legit_no_training: return batch_norm_without_training;
    case Op::native_batch_norm_backward: return batch_norm_backward;
    case Op::cudnn_batch_norm_backward: return cudnn_batch_norm_backward;
    default: return nullptr;
  }
}

}  // namespace braze::graph::host
