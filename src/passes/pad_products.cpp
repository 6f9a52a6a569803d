#include "passes/pad_products.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>

#include "passes/builder.h"

namespace braze::passes {
namespace {

constexpr int64_t kElements = 8;  // of 16 bytes

// As measured on an H200, per second: products (additions and multiplications) whose rows are even multiples of so many
// elements, and of eight; bytes of a copy, which takes this long before it begins.
constexpr double kOdd = 1.0e14, kEven = 1.3e14, kFours = 2.6e14, kEights = 6.0e14;
constexpr double kBytes = 3.5e12, kLaunch = 3e-6;
constexpr double kMargin = 1.5;

// A product of a [.., m, k] and b [.., k, n], and what is added to it.
struct Product {
  size_t first = 0;    // the argument that is a
  size_t batches = 0;  // dimensions before the last two
  int64_t batch = 1, m = 0, k = 0, n = 0;
  int64_t more_m = 0, more_k = 0, more_n = 0;  // of zeros
};

int64_t missing(int64_t size) { return (kElements - size % kElements) % kElements; }

// Of a matrix whose elements of one dimension lie next to each other: whether it is the last one.
std::optional<bool> by_rows(const sym::ExprArena& a, const TensorType& t) {
  const size_t rank = t.dim();
  if (rank == 1 || a.is_const(t.strides[rank - 1], 1)) return true;
  if (a.is_const(t.strides[rank - 2], 1)) return false;
  return std::nullopt;
}

class Padder {
 public:
  Padder(const Graph& g, const Targets& targets, bool all)
      : g_(g), targets_(targets), all_(all), r_(g), now_(r_.out()) {}

  Graph run() {
    for (const Node& n : g_.nodes()) {
      auto product = worth(n);
      if (!product || !rewrite(r_, n, g_, [&](Builder& b) { pad(b, *product); })) r_.copy(n);
    }
    return r_.finish();
  }

 private:
  const TensorType& type(const Node& n, size_t i) const { return g_.type(std::get<ValueId>(n.args[i])); }

  std::optional<Product> product_of(const Node& n) const {
    Product p;
    const bool activation = n.op == Op::Extern && n.extern_name == "aten::_addmm_activation";
    switch (n.op) {
      case Op::mm:
      case Op::bmm: break;
      case Op::addmm:
      case Op::baddbmm: p.first = 1; break;
      default:
        if (!activation) return std::nullopt;
        p.first = 1;
    }
    if (n.outputs.size() != 1 || !n.outputs[0].valid()) return std::nullopt;
    const TensorType &out = g_.type(n.outputs[0]), &a = type(n, p.first), &b = type(n, p.first + 1);
    const bool half = out.dtype == DType::BF16 || out.dtype == DType::F16;
    const Target& target = targets_.of(out.device);
    if (!half || a.dtype != out.dtype || b.dtype != out.dtype || !target.is_gpu() || !target.slow_odd_rows ||
        target.sm < 90)
      return std::nullopt;
    p.batches = out.dim() - 2;
    auto size = [&](const TensorType& t, size_t d) { return g_.arena().as_const(t.sizes[d]).value_or(0); };
    p.m = size(out, p.batches);
    p.n = size(out, p.batches + 1);
    p.k = size(a, p.batches + 1);
    if (p.batches) p.batch = size(out, 0);
    return p.batch > 0 && p.m > 0 && p.n > 0 && p.k > 0 ? std::optional(p) : std::nullopt;
  }

  // Which sizes are odd where they count, if padding them gains something.
  std::optional<Product> worth(const Node& n) const {
    auto p = product_of(n);
    if (!p) return std::nullopt;
    const TensorType &a = type(n, p->first), &b = type(n, p->first + 1);
    auto a_rows = by_rows(g_.arena(), a), b_rows = by_rows(g_.arena(), b);
    if (!a_rows || !b_rows) return std::nullopt;
    if (*a_rows || !*b_rows) p->more_k = missing(p->k);
    if (!*a_rows) p->more_m = missing(p->m);
    p->more_n = missing(p->n);
    if (!p->more_m && !p->more_k && !p->more_n) return std::nullopt;
    // Of elements that all sizes are multiples of.
    const int64_t common = std::gcd(std::gcd(kElements, p->more_m), std::gcd(p->more_k, p->more_n));
    auto elements = [&](int64_t x, int64_t y) {
      return static_cast<double>(p->batch) * static_cast<double>(x) * static_cast<double>(y);
    };
    auto copied = [&](double count) { return 2 * 2 * count / kBytes + kLaunch; };
    const double work = 2 * elements(p->m, p->n) * static_cast<double>(p->k);
    const double rate = common == 1 ? kOdd : common == 2 ? kEven : kFours;
    double cost = work / kEights;
    if (p->more_m || p->more_k) cost += copied(elements(p->m + p->more_m, p->k + p->more_k));
    if (p->more_k || p->more_n) cost += copied(elements(p->k + p->more_k, p->n + p->more_n));
    if (p->more_m || p->more_n) {
      cost += copied(elements(p->m, p->n));
      if (p->first == 1 && type(n, 0).dim() > 1) cost += copied(elements(p->m, p->n));
    }
    return all_ || kMargin * cost < work / rate ? p : std::nullopt;
  }

  // The matrices of which v has the last two dimensions the other way round; invalid: it is no such view.
  ValueId turned_from(ValueId v) const {
    const Graph& g = now_;
    if (!g.value(v).node.valid()) return {};
    const Node& n = g.node(g.value(v).node);
    const auto rank = static_cast<int64_t>(g.type(v).dim());
    auto dim = [&](size_t i) {
      const int64_t d = g.arena().as_const(std::get<Expr>(n.args[i])).value();
      return d < 0 ? d + rank : d;
    };
    switch (n.op) {
      case Op::t: return rank == 2 ? std::get<ValueId>(n.args[0]) : ValueId{};
      case Op::transpose_int:
        return std::min(dim(1), dim(2)) == rank - 2 && std::max(dim(1), dim(2)) == rank - 1
                   ? std::get<ValueId>(n.args[0])
                   : ValueId{};
      case Op::permute: {
        const auto& order = std::get<graph::IntList>(n.args[1]).v;
        for (int64_t d = 0; d < rank; ++d) {
          int64_t from = g.arena().as_const(order[static_cast<size_t>(d)]).value();
          if (from < 0) from += rank;
          if (from != (d < rank - 2 ? d : d == rank - 2 ? rank - 1 : rank - 2)) return {};
        }
        return std::get<ValueId>(n.args[0]);
      }
      default: return {};
    }
  }

  ValueId turn(Builder& b, ValueId v) const { return b.call(Op::transpose_int, {v, b.k(-2), b.k(-1)}); }

  // With zeros after the last elements of its last two dimensions. Lies in memory as the operand does; products of one
  // operand share it.
  ValueId padded(Builder& b, ValueId v, int64_t rows, int64_t columns) {
    if (rows == 0 && columns == 0) return v;
    if (by_rows(b.arena(), b.type(v)) == false) {
      ValueId from = turned_from(v);
      return turn(b, padded(b, from.valid() ? from : turn(b, v), columns, rows));
    }
    ValueId& known = padded_[{v.index, rows, columns}];
    if (!known.valid())
      known = b.call(Op::constant_pad_nd,
                     {v, b.rank(v) == 1 ? b.list({0, columns}) : b.list({0, columns, 0, rows}), b.k(0)});
    return known;
  }

  void pad(Builder& b, const Product& p) {
    std::vector<Arg> args = b.args;
    args[p.first] = padded(b, b.tensor(p.first), p.more_m, p.more_k);
    args[p.first + 1] = padded(b, b.tensor(p.first + 1), p.more_k, p.more_n);
    if (p.first == 1) args[0] = added(b, b.tensor(0), p);
    const TensorType& out = b.result(0);
    ValueId whole;
    if (b.node.op == Op::Extern) {
      TensorType t = out;
      t.sizes = {b.k(p.m + p.more_m), b.k(p.n + p.more_n)};
      t.strides = contiguous_strides(b.arena(), t.sizes);
      NodeId made = r_.out().add_node(Op::Extern, std::move(args), {std::move(t)}, b.node.origin().step(),
                                      b.node.extern_name, b.node.list_sizes);
      whole = r_.out().node(made).outputs[0];
    } else {
      whole = b.call(b.node.op, std::move(args));
    }
    const auto d = static_cast<int64_t>(p.batches);
    if (p.more_m) whole = b.call(Op::slice_Tensor, {whole, b.k(d), b.k(0), b.k(p.m), b.k(1)});
    if (p.more_n) whole = b.call(Op::slice_Tensor, {whole, b.k(d + 1), b.k(0), b.k(p.n), b.k(1)});
    b.set(0, whole);
  }

  // What is added is broadcast to the result: it grows where it is as long.
  ValueId added(Builder& b, ValueId v, const Product& p) {
    const std::vector<Expr> sizes = b.type(v).sizes;
    auto more = [&](size_t from_last, int64_t size, int64_t by) {
      const bool long_too = sizes.size() >= from_last && b.arena().is_const(sizes[sizes.size() - from_last], size);
      return size > 1 && long_too ? by : 0;
    };
    return padded(b, v, more(2, p.m, p.more_m), more(1, p.n, p.more_n));
  }

  const Graph& g_;
  const Targets& targets_;
  bool all_;
  Rewriter r_;
  const Graph& now_;
  std::map<std::array<int64_t, 3>, ValueId> padded_;  // value of the new graph, rows and columns more
};

}  // namespace

Graph pad_products(const Graph& g, const Targets& targets) { return Padder(g, targets, false).run(); }
Graph pad_all_products(const Graph& g, const Targets& targets) { return Padder(g, targets, true).run(); }

}  // namespace braze::passes
