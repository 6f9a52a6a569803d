#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/hash.h"
#include "graph/interpret_rules.h"
#include "graph/random.h"

namespace braze::graph::host {
namespace {

void fill(HostCall& c, double v, size_t k = 0) {
  c.each(k, [&](const Dims&) { return v; });
}

void zeros(HostCall& c) { fill(c, 0); }
void ones(HostCall& c) { fill(c, 1); }
void full(HostCall& c) { fill(c, c.number(1)); }

void arange(HostCall& c) {
  const double start = c.op() == Op::arange ? 0 : c.number(0);
  const double step = c.op() == Op::arange_start_step ? c.number(2) : 1;
  c.each([&](const Dims& i) { return start + static_cast<double>(i[0]) * step; });
}

// Numbers of [0, 1) for the positions of a result, as functions of a seed.
class Draws {
 public:
  explicit Draws(HostCall& c) : seed_(is_seeded(c.node) ? c.tensor(c.node.args.size() - 1).data.at(0) : c.draw()) {}
  // The next position's; `which` of several.
  double operator()(int which = 0) {
    Hasher h;
    h.add(seed_);
    h.add(position_ + (uint64_t{1} << 40) * static_cast<uint64_t>(which));
    return static_cast<double>(h.value() >> 11) * 0x1p-53;
  }
  double next() {
    double u = (*this)();
    ++position_;
    return u;
  }
  double normal() {
    double radius = std::sqrt(-2 * std::log1p(-(*this)())), angle = 2 * M_PI * (*this)(1);
    ++position_;
    return radius * std::cos(angle);
  }
  double seed() const { return seed_; }

 private:
  double seed_;
  uint64_t position_ = 0;
};

void uniform(HostCall& c, double low, double high) {
  Draws u(c);
  c.each([&](const Dims&) { return low + u.next() * (high - low); });
}
void normal(HostCall& c, double mean, double deviation) {
  Draws u(c);
  c.each([&](const Dims&) { return mean + deviation * u.normal(); });
}
// A number of all of i64 is what the generator gives; all others are functions of one.
void integers(HostCall& c, double low, double high) {
  Draws u(c);
  if (low == -0x1p63 && high == 0x1p63 && !is_seeded(c.node) && c.sizes().empty()) return c.give({u.seed()});
  c.each([&](const Dims&) { return low + std::floor(u.next() * (high - low)); });
}
void bernoulli(HostCall& c) {
  Draws u(c);
  c.each([&](const Dims&) { return u.next() < c.number(1); });
}
void exponential(HostCall& c) {
  Draws u(c);
  c.each([&](const Dims&) { return -std::log1p(-u.next()) / c.number(1); });
}
// A permutation: the positions, sorted by draws.
void permutation(HostCall& c) {
  Draws u(c);
  std::vector<std::pair<double, double>> drawn;
  for (int64_t i = 0; i < c.sizes()[0]; ++i) drawn.emplace_back(u.next(), static_cast<double>(i));
  std::sort(drawn.begin(), drawn.end());
  Numbers out;
  for (const auto& [key, i] : drawn) out.push_back(i);
  c.give(std::move(out));
}
// (self, p, train)
void dropout(HostCall& c) {
  double p = c.none(2) || c.flag(2) ? c.number(1) : 0;
  Numbers kept;
  if (p == 0) {
    kept.assign(c.tensor(0).data.size(), 1);
  } else {
    Draws u(c);
    for (size_t i = 0; i < c.tensor(0).data.size(); ++i) kept.push_back(u.next() < 1 - p);
  }
  Numbers out;
  for (size_t i = 0; i < kept.size(); ++i) out.push_back(kept[i] != 0 ? c.tensor(0).data[i] / (1 - p) : 0);
  c.give(0, std::move(out));
  c.give(1, std::move(kept));
}

// (length, whether it is periodic, ...): f(position, the last one), of which a periodic window leaves the last one out.
template <class F>
void window(HostCall& c, F&& f) {
  auto* said = std::get_if<bool>(&c.node.args.at(1));
  int64_t length = c.integer(0);
  auto last = static_cast<double>(!said || *said ? length : length - 1);
  c.each([&](const Dims& i) { return length == 1 ? 1.0 : f(static_cast<double>(i[0]), last); });
}

double parameter(const HostCall& c, size_t i, double otherwise) {
  auto* d = i < c.node.args.size() ? std::get_if<double>(&c.node.args[i]) : nullptr;
  return d ? *d : otherwise;
}

void hann(HostCall& c) {
  window(c, [](double i, double last) { return std::pow(std::sin(M_PI * i / last), 2); });
}
void hamming(HostCall& c) {
  double alpha = parameter(c, 2, 0.54), beta = parameter(c, 3, 0.46);
  window(c, [&](double i, double last) { return alpha - beta * std::cos(2 * M_PI * i / last); });
}
void blackman(HostCall& c) {
  window(c, [](double i, double last) {
    return 0.42 - 0.5 * std::cos(2 * M_PI * i / last) + 0.08 * std::cos(4 * M_PI * i / last);
  });
}
void bartlett(HostCall& c) {
  window(c, [](double i, double last) { return 1 - std::fabs(2 * i / last - 1); });
}
void kaiser(HostCall& c) {
  double beta = parameter(c, 2, 12);
  window(c, [&](double i, double last) {
    double x = 2 * i / last - 1;
    return std::cyl_bessel_i(0, beta * std::sqrt(1 - x * x)) / std::cyl_bessel_i(0, beta);
  });
}

// (start, end, steps, ...), of which bounds may be tensors
double spaced(const HostCall& c, int64_t i) {
  double start = c.operand(0).data.at(0), end = c.operand(1).data.at(0);
  auto steps = static_cast<double>(c.integer(2));
  return steps == 1 ? start : start + (end - start) * static_cast<double>(i) / (steps - 1);
}
void linspace(HostCall& c) {
  c.each([&](const Dims& i) { return spaced(c, i[0]); });
}
void logspace(HostCall& c) {
  c.each([&](const Dims& i) { return std::pow(c.number(3), spaced(c, i[0])); });
}

// (means, deviations), each a tensor or a number
void normal_around(HostCall& c) {
  HostTensor mean = c.operand(0), deviation = c.operand(1);
  Draws u(c);
  c.each([&](const Dims& i) { return at(mean, i) + at(deviation, i) * u.normal(); });
}

// (self, mean, deviation)
void log_normal(HostCall& c) {
  Draws u(c);
  c.each([&](const Dims&) { return std::exp(c.number(1) + c.number(2) * u.normal()); });
}
// (self, median, sigma)
void cauchy(HostCall& c) {
  Draws u(c);
  c.each([&](const Dims&) { return c.number(1) + c.number(2) * std::tan(M_PI * (u.next() - 0.5)); });
}
// (self, p): how many tries one needs that succeeds with probability p.
void geometric(HostCall& c) {
  Draws u(c);
  c.each([&](const Dims&) { return std::max(1.0, std::ceil(std::log1p(-u.next()) / std::log1p(-c.number(1)))); });
}
// (self, noise, lower, upper, training): a slope is drawn for each element, and 1 where it is positive; outside of
// training the mean slope, and the noise as it was.
void rrelu(HostCall& c) {
  if (!c.flag(4)) {
    c.unary([&](double v) { return v > 0 ? v : v * (c.number(2) + c.number(3)) / 2; });
    return c.give(1, c.tensor(1).data);
  }
  Draws u(c);
  Numbers slopes, out;
  for (double v : c.tensor(0).data) {
    double slope = c.number(2) + u.next() * (c.number(3) - c.number(2));
    slopes.push_back(v > 0 ? 1 : slope);
    out.push_back(v * slopes.back());
  }
  c.give(0, std::move(out));
  c.give(1, std::move(slopes));
}

Rule random_rule(Op op) {
  // clang-format off: a table
  switch (op) {
    case Op::rand: case Op::rand_like: return [](HostCall& c) { uniform(c, 0, 1); };
    case Op::uniform: return [](HostCall& c) { uniform(c, c.number(1), c.number(2)); };
    case Op::randn: case Op::randn_like: return [](HostCall& c) { normal(c, 0, 1); };
    case Op::normal_functional: return [](HostCall& c) { normal(c, c.number(1), c.number(2)); };
    case Op::randint: return [](HostCall& c) { integers(c, 0, c.number(0)); };
    case Op::randint_low: return [](HostCall& c) { integers(c, c.number(0), c.number(1)); };
    case Op::randint_like: return [](HostCall& c) { integers(c, 0, c.number(1)); };
    case Op::randint_like_low_dtype: return [](HostCall& c) { integers(c, c.number(1), c.number(2)); };
    case Op::bernoulli_p: return bernoulli;
    case Op::rrelu_with_noise_functional: return rrelu;
    case Op::exponential: return exponential;
    case Op::native_dropout: return dropout;
    case Op::randperm: return permutation;
    default: return nullptr;
  }
  // clang-format on
}

}  // namespace

Rule factory_rule(std::string_view name) {
  std::string_view plain = name.substr(0, name.find('.'));
  if (plain == "aten::hann_window") return hann;
  if (plain == "aten::hamming_window") return hamming;
  if (plain == "aten::blackman_window") return blackman;
  if (plain == "aten::bartlett_window") return bartlett;
  if (plain == "aten::kaiser_window") return kaiser;
  if (plain == "aten::linspace") return linspace;
  if (plain == "aten::logspace") return logspace;
  if (plain == "aten::normal") return normal_around;
  if (plain == "aten::log_normal") return log_normal;
  if (plain == "aten::cauchy") return cauchy;
  if (plain == "aten::geometric") return geometric;
  return nullptr;
}

Rule factory_rule(Op op) {
  switch (op) {
    case Op::scalar_tensor: return [](HostCall& c) { fill(c, c.number(0)); };
    case Op::full:
    case Op::full_like: return full;
    case Op::zeros:
    case Op::zeros_like:
    case Op::new_zeros: return zeros;
    case Op::ones:
    case Op::ones_like:
    case Op::new_ones: return ones;
    case Op::new_full: return [](HostCall& c) { fill(c, c.number(2)); };
    case Op::arange:
    case Op::arange_start:
    case Op::arange_start_step: return arange;
    case Op::linspace: return linspace;
    default: return random_rule(op);
  }
}

}  // namespace braze::graph::host
