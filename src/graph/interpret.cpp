#include "graph/interpret.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "base/check.h"

namespace braze::graph {
namespace {

using Dims = std::vector<int64_t>;

int64_t count(const Dims& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

double rounded(double v, DType d) {
  if (d == DType::F64) return v;
  if (is_floating(d)) return static_cast<float>(v);
  if (d == DType::Bool) return v != 0;
  return std::trunc(v);
}

// Calls f(index) for every index of a row-major tensor, in order.
template <class F>
void for_each_index(const Dims& sizes, F&& f) {
  Dims index(sizes.size(), 0);
  for (int64_t n = count(sizes); n-- > 0;) {
    f(index);
    for (size_t d = sizes.size(); d-- > 0;) {
      if (++index[d] < sizes[d]) break;
      index[d] = 0;
    }
  }
}

// The element of t at an index that is broadcast to it.
double at(const HostTensor& t, const Dims& index) {
  int64_t flat = 0;
  size_t shift = index.size() - t.sizes.size();
  for (size_t d = 0; d < t.sizes.size(); ++d) flat = flat * t.sizes[d] + (t.sizes[d] == 1 ? 0 : index[shift + d]);
  return t.data[static_cast<size_t>(flat)];
}

class Interpreter {
 public:
  Interpreter(const Graph& g, const sym::Env& symbols) : g_(g), symbols_(symbols), values_(g.values().size()) {}

  std::vector<HostTensor> run(const std::vector<HostTensor>& inputs) {
    BRAZE_CHECK(inputs.size() == g_.inputs.size(), "one tensor per input");
    for (size_t i = 0; i < inputs.size(); ++i) values_[g_.inputs[i].value.index] = inputs[i];
    for (const Node& n : g_.nodes()) node(n);
    std::vector<HostTensor> out;
    for (ValueId v : g_.outputs) out.push_back(v.valid() ? values_[v.index] : HostTensor{});
    for (const Writeback& w : g_.writebacks) out.push_back(values_[w.value.index]);
    return out;
  }

 private:
  [[noreturn]] void unknown(const Node& n) const {
    throw InternalError("the graph interpreter does not know " +
                        std::string(n.op == Op::Extern ? n.extern_name : op_name(n.op)));
  }
  int64_t eval(Expr e) const {
    auto c = g_.arena().as_const(e);
    return c ? *c : g_.arena().evaluate(e, symbols_);
  }
  Dims sizes_of(ValueId v) const {
    Dims out;
    for (Expr e : g_.type(v).sizes) out.push_back(eval(e));
    return out;
  }
  const HostTensor& tensor(const Node& n, size_t i) const { return values_[std::get<ValueId>(n.args.at(i)).index]; }
  bool has(const Node& n, size_t i) const { return i < n.args.size() && std::holds_alternative<ValueId>(n.args[i]); }
  double number(const Arg& a) const {
    if (auto* d = std::get_if<double>(&a)) return *d;
    if (auto* b = std::get_if<bool>(&a)) return *b;
    return static_cast<double>(eval(std::get<Expr>(a)));
  }
  int64_t integer(const Node& n, size_t i) const { return eval(std::get<Expr>(n.args.at(i))); }
  size_t dim(const Node& n, size_t i, size_t rank) const {
    int64_t d = integer(n, i);
    return static_cast<size_t>(d < 0 ? d + static_cast<int64_t>(rank) : d);
  }
  HostTensor operand(const Node& n, size_t i) const {  // a tensor or a number
    if (has(n, i)) return tensor(n, i);
    return {DType::F64, {}, {number(n.args.at(i))}};
  }
  HostTensor& result(const Node& n, size_t k = 0) {
    ValueId v = n.outputs[k];
    values_[v.index] = {g_.type(v).dtype, sizes_of(v), {}};
    return values_[v.index];
  }
  void put(HostTensor& t, double v) { t.data.push_back(rounded(v, t.dtype)); }

  template <class F>
  void elementwise(const Node& n, size_t count, F&& f) {
    std::vector<HostTensor> in;
    for (size_t i = 0; i < count; ++i) in.push_back(operand(n, i));
    HostTensor& out = result(n);
    std::vector<double> v(count);
    for_each_index(out.sizes, [&](const Dims& index) {
      for (size_t i = 0; i < count; ++i) v[i] = at(in[i], index);
      put(out, f(v));
    });
  }
  template <class F>
  void unary(const Node& n, F&& f) {
    elementwise(n, 1, [&](const std::vector<double>& v) { return f(v[0]); });
  }
  template <class F>
  void binary(const Node& n, F&& f) {
    elementwise(n, 2, [&](const std::vector<double>& v) { return f(v[0], v[1]); });
  }

  // Gathers the reduced elements of each result element and hands them to f.
  template <class F>
  void reduce(const Node& n, size_t dims_at, F&& f) {
    const HostTensor& x = tensor(n, 0);
    std::vector<bool> gone(x.sizes.size(), true);
    auto* list = dims_at < n.args.size() ? std::get_if<IntList>(&n.args[dims_at]) : nullptr;
    if (list && !list->v.empty()) {
      gone.assign(x.sizes.size(), false);
      for (Expr e : list->v) {
        int64_t d = eval(e);
        gone[static_cast<size_t>(d < 0 ? d + static_cast<int64_t>(x.sizes.size()) : d)] = true;
      }
    }
    Dims kept;
    for (size_t d = 0; d < gone.size(); ++d)
      if (!gone[d]) kept.push_back(x.sizes[d]);
    std::vector<std::vector<double>> groups(static_cast<size_t>(count(kept)));
    for_each_index(x.sizes, [&](const Dims& index) {
      size_t flat = 0;
      for (size_t d = 0; d < gone.size(); ++d)
        if (!gone[d]) flat = flat * static_cast<size_t>(x.sizes[d]) + static_cast<size_t>(index[d]);
      groups[flat].push_back(at(x, index));
    });
    for (size_t k = 0; k < n.outputs.size(); ++k) {
      if (!n.outputs[k].valid()) continue;
      HostTensor& out = result(n, k);
      for (const auto& group : groups) put(out, f(group, k));
    }
  }

  void matmul(const Node& n, const HostTensor& a, const HostTensor& b, const HostTensor* add, double beta,
              double alpha) {
    HostTensor& out = result(n);
    size_t rank = out.sizes.size();
    int64_t inner = a.sizes.back();
    for_each_index(out.sizes, [&](Dims index) {
      double s = 0;
      for (int64_t k = 0; k < inner; ++k) {
        Dims ia = index, ib = index;
        ia[rank - 1] = k;
        ib[rank - 2] = k;
        s += at(a, ia) * at(b, ib);
      }
      put(out, alpha * s + (add ? beta * at(*add, index) : 0));
    });
  }

  void node(const Node& n);
  void view(const Node& n);
  void normalise(const Node& n);

  const Graph& g_;
  const sym::Env& symbols_;
  std::vector<HostTensor> values_;
};

double sum(const std::vector<double>& v) { return std::accumulate(v.begin(), v.end(), 0.0); }
double mean(const std::vector<double>& v) { return sum(v) / static_cast<double>(v.size()); }
double variance(const std::vector<double>& v, double correction) {
  double m = mean(v), s = 0;
  for (double x : v) s += (x - m) * (x - m);
  return s / std::max(0.0, static_cast<double>(v.size()) - correction);
}
double extreme(const std::vector<double>& v, bool max) {  // NaN wins
  double best = v.at(0);
  for (double x : v)
    if (std::isnan(x) || (!std::isnan(best) && (max ? x > best : x < best))) best = x;
  return best;
}

// Views, by where an element of the result comes from.
void Interpreter::view(const Node& n) {
  const HostTensor& x = tensor(n, 0);
  size_t rank = x.sizes.size();
  auto from = [&](size_t k, auto&& source) {
    HostTensor& out = result(n, k);
    for_each_index(out.sizes, [&](const Dims& index) { put(out, at(x, source(index))); });
  };
  // clang-format off: a table, with as many rows of a kind as fit on a line
  switch (n.op) {
    case Op::view: case Op::_unsafe_view: case Op::reshape: case Op::unsqueeze: case Op::squeeze: case Op::squeeze_dim:
    case Op::squeeze_dims: case Op::alias: case Op::detach: case Op::lift_fresh: {
      std::vector<double> data = x.data;
      result(n).data = std::move(data);
      return;
    }
    case Op::expand: {
      HostTensor source = x;
      HostTensor& out = result(n);
      for_each_index(out.sizes, [&](const Dims& index) { put(out, at(source, index)); });
      return;
    }
    case Op::t: case Op::transpose_int: {
      if (rank < 2) return from(0, [](const Dims& i) { return i; });
      size_t a = n.op == Op::t ? 0 : dim(n, 1, rank), b = n.op == Op::t ? 1 : dim(n, 2, rank);
      return from(0, [&](Dims i) {
        std::swap(i[a], i[b]);
        return i;
      });
    }
    case Op::permute: {
      const auto& order = std::get<IntList>(n.args[1]).v;
      return from(0, [&](const Dims& i) {
        Dims out(i.size());
        for (size_t d = 0; d < i.size(); ++d) {
          int64_t s = eval(order[d]);
          out[static_cast<size_t>(s < 0 ? s + static_cast<int64_t>(rank) : s)] = i[d];
        }
        return out;
      });
    }
    case Op::slice_Tensor: {
      size_t d = dim(n, 1, rank);
      int64_t start = std::holds_alternative<Expr>(n.args[2]) ? integer(n, 2) : 0, step = integer(n, 4);
      if (start < 0) start = std::max<int64_t>(0, start + x.sizes[d]);
      return from(0, [&](Dims i) {
        i[d] = start + i[d] * step;
        return i;
      });
    }
    case Op::select_int: {
      size_t d = dim(n, 1, rank);
      int64_t which = integer(n, 2);
      if (which < 0) which += x.sizes[d];
      return from(0, [&](Dims i) {
        i.insert(i.begin() + static_cast<ptrdiff_t>(d), which);
        return i;
      });
    }
    case Op::split_Tensor: case Op::split_with_sizes: case Op::unsafe_split_Tensor: case Op::unsafe_split_with_sizes: {
      size_t d = dim(n, 2, rank);
      int64_t start = 0;
      for (size_t k = 0; k < n.outputs.size(); ++k) {
        from(k, [&](Dims i) {
          i[d] += start;
          return i;
        });
        start += values_[n.outputs[k].index].sizes[d];
      }
      return;
    }
    default: unknown(n);
  }
  // clang-format on
}

// Softmax and layer norm by their definitions, to compare decompositions with.
void Interpreter::normalise(const Node& n) {
  const HostTensor& x = tensor(n, 0);
  size_t rank = x.sizes.size();
  if (n.op == Op::native_layer_norm) {
    size_t inner = std::get<IntList>(n.args[1]).v.size();
    int64_t width = count(Dims(x.sizes.end() - static_cast<ptrdiff_t>(inner), x.sizes.end()));
    HostTensor &y = result(n, 0), &m = result(n, 1), &r = result(n, 2);
    for (size_t start = 0; start < x.data.size(); start += static_cast<size_t>(width)) {
      std::vector<double> row(x.data.begin() + static_cast<ptrdiff_t>(start),
                              x.data.begin() + static_cast<ptrdiff_t>(start) + width);
      double mu = mean(row), rstd = 1 / std::sqrt(variance(row, 0) + number(n.args[4]));
      put(m, mu);
      put(r, rstd);
      for (size_t i = 0; i < row.size(); ++i)
        put(y, (row[i] - mu) * rstd * (has(n, 2) ? tensor(n, 2).data[i] : 1) + (has(n, 3) ? tensor(n, 3).data[i] : 0));
    }
    return;
  }
  size_t d = dim(n, 1, rank);
  HostTensor& out = result(n);
  for_each_index(x.sizes, [&](const Dims& index) {
    std::vector<double> row;
    Dims i = index;
    for (i[d] = 0; i[d] < x.sizes[d]; ++i[d]) row.push_back(at(x, i));
    double top = extreme(row, true), total = 0;
    for (double v : row) total += std::exp(v - top);
    double shifted = at(x, index) - top;
    put(out, n.op == Op::_log_softmax ? shifted - std::log(total) : std::exp(shifted) / total);
  });
}

void Interpreter::node(const Node& n) {
  auto alpha = [&] { return n.args.size() > 2 ? number(n.args[2]) : 1; };
  // clang-format off: a table, with as many rows of a kind as fit on a line
  switch (n.op) {
    case Op::add_Tensor: case Op::add_Scalar: return binary(n, [&](double a, double b) { return a + alpha() * b; });
    case Op::sub_Tensor: case Op::sub_Scalar: return binary(n, [&](double a, double b) { return a - alpha() * b; });
    case Op::rsub_Scalar: case Op::rsub_Tensor: return binary(n, [&](double a, double b) { return b - alpha() * a; });
    case Op::mul_Tensor: case Op::mul_Scalar: return binary(n, [](double a, double b) { return a * b; });
    case Op::div_Tensor: case Op::div_Scalar: return binary(n, [](double a, double b) { return a / b; });
    case Op::pow_Tensor_Scalar: case Op::pow_Tensor_Tensor: return binary(n, [](double a, double b) { return std::pow(a, b); });
    case Op::maximum: return binary(n, [](double a, double b) { return extreme({a, b}, true); });
    case Op::minimum: return binary(n, [](double a, double b) { return extreme({a, b}, false); });
    case Op::eq_Tensor: case Op::eq_Scalar: return binary(n, [](double a, double b) { return a == b; });
    case Op::ne_Tensor: case Op::ne_Scalar: return binary(n, [](double a, double b) { return a != b; });
    case Op::lt_Tensor: case Op::lt_Scalar: return binary(n, [](double a, double b) { return a < b; });
    case Op::le_Tensor: case Op::le_Scalar: return binary(n, [](double a, double b) { return a <= b; });
    case Op::gt_Tensor: case Op::gt_Scalar: return binary(n, [](double a, double b) { return a > b; });
    case Op::ge_Tensor: case Op::ge_Scalar: return binary(n, [](double a, double b) { return a >= b; });
    case Op::logical_and: return binary(n, [](double a, double b) { return a != 0 && b != 0; });
    case Op::logical_or: return binary(n, [](double a, double b) { return a != 0 || b != 0; });
    case Op::logical_not: return unary(n, [](double a) { return a == 0; });
    case Op::neg: return unary(n, [](double a) { return -a; });
    case Op::abs: return unary(n, [](double a) { return std::fabs(a); });
    case Op::exp: return unary(n, [](double a) { return std::exp(a); });
    case Op::log: return unary(n, [](double a) { return std::log(a); });
    case Op::sqrt: return unary(n, [](double a) { return std::sqrt(a); });
    case Op::rsqrt: return unary(n, [](double a) { return 1 / std::sqrt(a); });
    case Op::reciprocal: return unary(n, [](double a) { return 1 / a; });
    case Op::sin: return unary(n, [](double a) { return std::sin(a); });
    case Op::cos: return unary(n, [](double a) { return std::cos(a); });
    case Op::tanh: return unary(n, [](double a) { return std::tanh(a); });
    case Op::erf: return unary(n, [](double a) { return std::erf(a); });
    case Op::sigmoid: return unary(n, [](double a) { return 1 / (1 + std::exp(-a)); });
    case Op::silu: return unary(n, [](double a) { return a / (1 + std::exp(-a)); });
    case Op::relu: return unary(n, [](double a) { return a < 0 ? 0 : a; });
    case Op::clone: case Op::_to_copy: return unary(n, [](double a) { return a; });
    case Op::where_self: return elementwise(n, 3, [](const std::vector<double>& v) { return v[0] != 0 ? v[1] : v[2]; });
    case Op::sum: case Op::sum_dim_IntList: return reduce(n, n.op == Op::sum ? 99 : 1, [](const auto& v, size_t) { return sum(v); });
    case Op::mean: case Op::mean_dim: return reduce(n, n.op == Op::mean ? 99 : 1, [](const auto& v, size_t) { return mean(v); });
    case Op::amax: return reduce(n, 1, [](const auto& v, size_t) { return extreme(v, true); });
    case Op::amin: return reduce(n, 1, [](const auto& v, size_t) { return extreme(v, false); });
    case Op::var_correction: case Op::var_mean_correction: {
      double correction = std::holds_alternative<NoneArg>(n.args[2]) ? 1 : number(n.args[2]);
      return reduce(n, 1, [&](const auto& v, size_t k) { return k ? mean(v) : variance(v, correction); });
    }
    case Op::mm: case Op::bmm: return matmul(n, tensor(n, 0), tensor(n, 1), nullptr, 0, 1);
    case Op::addmm: case Op::baddbmm: return matmul(n, tensor(n, 1), tensor(n, 2), &tensor(n, 0), number(n.args[3]), number(n.args[4]));
    case Op::_softmax: case Op::_log_softmax: case Op::native_layer_norm: return normalise(n);
    case Op::full: case Op::zeros: case Op::ones: {
      double v = n.op == Op::full ? number(n.args[1]) : n.op == Op::ones;
      HostTensor& out = result(n);
      for (int64_t i = count(out.sizes); i-- > 0;) put(out, v);
      return;
    }
    case Op::arange_start_step: {
      HostTensor& out = result(n);
      for (int64_t i = 0; i < out.sizes[0]; ++i) put(out, number(n.args[0]) + static_cast<double>(i) * number(n.args[2]));
      return;
    }
    case Op::embedding: {
      const HostTensor &w = tensor(n, 0), &rows = tensor(n, 1);
      HostTensor& out = result(n);
      for (double r : rows.data)
        for (int64_t k = 0; k < w.sizes[1]; ++k) put(out, w.data[static_cast<size_t>(static_cast<int64_t>(r) * w.sizes[1] + k)]);
      return;
    }
    case Op::cat: {
      HostTensor& out = result(n);
      size_t d = dim(n, 1, out.sizes.size());
      for_each_index(out.sizes, [&](Dims index) {
        for (ValueId v : std::get<TensorList>(n.args[0])) {
          const HostTensor& part = values_[v.index];
          if (part.sizes.size() != out.sizes.size()) continue;  // a skipped empty one
          if (index[d] < part.sizes[d]) return put(out, at(part, index));
          index[d] -= part.sizes[d];
        }
      });
      return;
    }
    default: break;
  }
  // clang-format on
  if (op_class(n.op) == OpClass::View) return view(n);
  unknown(n);
}

}  // namespace

std::vector<HostTensor> interpret(const Graph& g, const std::vector<HostTensor>& inputs, const sym::Env& symbols) {
  return Interpreter(g, symbols).run(inputs);
}

}  // namespace braze::graph
