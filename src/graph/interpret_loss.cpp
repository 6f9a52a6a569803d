// Losses and their gradients. Reductions: 0 none, 1 mean, 2 sum.
#include <algorithm>
#include <cmath>

#include "graph/interpret_rules.h"

namespace braze::graph::host {
namespace {

void reduced(HostCall& c, Numbers losses, int64_t reduction) {
  if (reduction == 0) return c.give(std::move(losses));
  c.give({reduction == 1 ? mean(losses) : sum(losses)});
}

// The tensors among arguments [first, last), broadcast; 1 for one that is none.
template <class F>
Numbers over(const HostCall& c, size_t first, size_t last, F&& f) {
  std::vector<HostTensor> in;
  for (size_t i = first; i < last; ++i) in.push_back(c.has(i) ? c.tensor(i) : HostTensor{DType::F64, {}, {1}});
  std::vector<const HostTensor*> all;
  for (const HostTensor& t : in) all.push_back(&t);
  Numbers out, v(in.size());
  for_each_index(broadcast(all), [&](const Dims& index) {
    for (size_t i = 0; i < in.size(); ++i) v[i] = at(in[i], index);
    out.push_back(f(v));
  });
  return out;
}

// (input, target, ..., reduction)
template <class F>
void loss(HostCall& c, size_t tensors, size_t reduction, F&& f) {
  reduced(c, over(c, 0, tensors, f), c.integer(reduction));
}

// (grad, input, target, ..., reduction): slope(tensors after grad) is of one element's loss.
template <class F>
void gradient(HostCall& c, size_t tensors, size_t reduction, F&& slope) {
  double share = c.integer(reduction) == 1 ? 1 / static_cast<double>(c.tensor(1).data.size()) : 1;
  c.give(over(c, 0, tensors, [&](const Numbers& v) { return v[0] * share * slope(Numbers(v.begin() + 1, v.end())); }));
}

void mse(HostCall& c) {
  loss(c, 2, 2, [](const Numbers& v) { return (v[0] - v[1]) * (v[0] - v[1]); });
}
void mse_backward(HostCall& c) {
  gradient(c, 3, 3, [](const Numbers& v) { return 2 * (v[0] - v[1]); });
}

void smooth_l1(HostCall& c) {
  double beta = c.number(3);
  loss(c, 2, 2, [&](const Numbers& v) {
    double d = std::fabs(v[0] - v[1]);
    return d < beta ? d * d / (2 * beta) : d - beta / 2;
  });
}
void smooth_l1_backward(HostCall& c) {
  double beta = c.number(4);
  gradient(c, 3, 3, [&](const Numbers& v) { return std::clamp((v[0] - v[1]) / beta, -1.0, 1.0); });
}

void huber(HostCall& c) {
  double delta = c.number(3);
  loss(c, 2, 2, [&](const Numbers& v) {
    double d = std::fabs(v[0] - v[1]);
    return d <= delta ? d * d / 2 : delta * (d - delta / 2);
  });
}
void huber_backward(HostCall& c) {
  double delta = c.number(4);
  gradient(c, 3, 3, [&](const Numbers& v) { return std::clamp(v[0] - v[1], -delta, delta); });
}

// (input, target, weight, reduction); logarithms are at least -100.
void binary_cross_entropy(HostCall& c) {
  auto log = [](double v) { return std::max(std::log(v), -100.0); };
  loss(c, 3, 3, [&](const Numbers& v) { return -v[2] * (v[1] * log(v[0]) + (1 - v[1]) * log(1 - v[0])); });
}
// (grad, input, target, weight, reduction)
void binary_cross_entropy_backward(HostCall& c) {
  gradient(c, 4, 4, [](const Numbers& v) { return v[2] * (v[0] - v[1]) / std::max(v[0] * (1 - v[0]), 1e-12); });
}
// (input, target, weight, weight of the positive, reduction)
void binary_cross_entropy_with_logits(HostCall& c) {
  loss(c, 4, 4, [](const Numbers& v) {
    return v[2] * (v[3] * v[1] * std::log1p(std::exp(-v[0])) + (1 - v[1]) * std::log1p(std::exp(v[0])));
  });
}

void soft_margin(HostCall& c) {
  loss(c, 2, 2, [](const Numbers& v) { return std::log1p(std::exp(-v[1] * v[0])); });
}
void soft_margin_backward(HostCall& c) {
  gradient(c, 3, 3, [](const Numbers& v) { return -v[1] * sigmoid(-v[1] * v[0]); });
}

// Calls f(index of the chosen class in x, position of the target, weight) for each target that counts.
template <class F>
void for_each_target(const HostTensor& target, const HostTensor* weight, int64_t ignored, F&& f) {
  size_t position = 0;
  for_each_index(target.sizes, [&](Dims index) {
    double chosen = target.data[position++];
    if (static_cast<int64_t>(chosen) == ignored) return;
    index.insert(index.begin() + (index.empty() ? 0 : 1), static_cast<int64_t>(chosen));
    f(index, position - 1, weight ? weight->data.at(static_cast<size_t>(chosen)) : 1);
  });
}

// (input, target, weight, reduction, ignored class): of [N, C, ...]
void nll_forward(HostCall& c) {
  const HostTensor &x = c.tensor(0), &target = c.tensor(1);
  Numbers losses(target.data.size());
  double total = 0;
  for_each_target(target, c.has(2) ? &c.tensor(2) : nullptr, c.integer(4),
                  [&](const Dims& index, size_t position, double weight) {
                    losses[position] = -weight * at(x, index);
                    total += weight;
                  });
  if (c.integer(3) == 0) {
    c.give(0, std::move(losses));
    return c.give(1, {0.0});
  }
  c.give(0, {c.integer(3) == 1 ? sum(losses) / total : sum(losses)});
  c.give(1, {total});
}

// (grad, input, target, weight, reduction, ignored class, total weight)
void nll_backward(HostCall& c) {
  const HostTensor &grad = c.tensor(0), &x = c.tensor(1);
  double share = c.integer(4) == 1 ? 1 / c.tensor(6).data.at(0) : 1;
  Numbers out(x.data.size());
  for_each_target(c.tensor(2), c.has(3) ? &c.tensor(3) : nullptr, c.integer(5),
                  [&](const Dims& index, size_t position, double weight) {
                    out[flat_index(x.sizes, index)] = -weight * share * grad.data.at(grad.sizes.empty() ? 0 : position);
                  });
  c.give(std::move(out));
}

// Of [N, C] or [C] scores: f(row, class, slope of p * max(0, margin - x[target] + x[class])^(p - 1), loss) for each
// class but the target's.
struct Margins {
  const HostTensor &x, &target;
  const HostTensor* weight;
  double p, margin;
  int64_t classes = x.sizes.back();

  template <class F>
  void each(F&& f) const {
    for (size_t row = 0; row < target.data.size(); ++row) {
      auto chosen = static_cast<int64_t>(target.data[row]);
      const double* scores = x.data.data() + static_cast<int64_t>(row) * classes;
      double share = (weight ? weight->data.at(static_cast<size_t>(chosen)) : 1) / static_cast<double>(classes);
      for (int64_t k = 0; k < classes; ++k) {
        double over = std::max(0.0, margin - scores[chosen] + scores[k]);
        if (k != chosen) f(row, k, over > 0 ? share * p * std::pow(over, p - 1) : 0, share * std::pow(over, p));
      }
    }
  }
};

// (input, target, p, margin, weight, reduction)
void multi_margin(HostCall& c) {
  Margins m{c.tensor(0), c.tensor(1), c.has(4) ? &c.tensor(4) : nullptr, c.number(2), c.number(3)};
  Numbers losses(m.target.data.size());
  m.each([&](size_t row, int64_t, double, double loss) { losses[row] += loss; });
  reduced(c, std::move(losses), c.integer(5));
}

// (grad, input, target, p, margin, weight, reduction)
void multi_margin_backward(HostCall& c) {
  Margins m{c.tensor(1), c.tensor(2), c.has(5) ? &c.tensor(5) : nullptr, c.number(3), c.number(4)};
  const Numbers& grad = c.tensor(0).data;
  double share = c.integer(6) == 1 ? 1 / static_cast<double>(m.target.data.size()) : 1;
  Numbers out(m.x.data.size());
  m.each([&](size_t row, int64_t k, double slope, double) {
    double g = slope * share * grad.at(grad.size() == 1 ? 0 : row);
    size_t first = row * static_cast<size_t>(m.classes);
    out[first + static_cast<size_t>(k)] += g;
    out[first + static_cast<size_t>(m.target.data[row])] -= g;
  });
  c.give(std::move(out));
}

}  // namespace

Rule loss_rule(std::string_view name) {
  if (name == "aten::multi_margin_loss") return multi_margin;
  if (name == "aten::multi_margin_loss_backward") return multi_margin_backward;
  return nullptr;
}

Rule loss_rule(Op op) {
  switch (op) {
    case Op::mse_loss: return mse;
    case Op::mse_loss_backward: return mse_backward;
    case Op::smooth_l1_loss: return smooth_l1;
    case Op::smooth_l1_loss_backward: return smooth_l1_backward;
    case Op::huber_loss: return huber;
    case Op::huber_loss_backward: return huber_backward;
    case Op::binary_cross_entropy: return binary_cross_entropy;
    case Op::binary_cross_entropy_backward: return binary_cross_entropy_backward;
    case Op::binary_cross_entropy_with_logits: return binary_cross_entropy_with_logits;
    case Op::soft_margin_loss: return soft_margin;
    case Op::soft_margin_loss_backward: return soft_margin_backward;
    case Op::nll_loss_forward:
    case Op::nll_loss2d_forward: return nll_forward;
    case Op::nll_loss_backward:
    case Op::nll_loss2d_backward: return nll_backward;
    default: return nullptr;
  }
}

}  // namespace braze::graph::host
