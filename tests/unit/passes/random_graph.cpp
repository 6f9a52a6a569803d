#include "random_graph.h"

#include <algorithm>
#include <random>

#include "base/check.h"
#include "graph/shape.h"

namespace braze::passes {
namespace {

using graph::Arg;
using graph::Graph;
using graph::IntList;
using graph::MemoryFormatArg;
using graph::NoneArg;
using graph::Op;
using graph::TensorList;
using graph::ValueId;
using sym::Expr;

class Maker {
 public:
  explicit Maker(uint64_t seed) : rng_(seed), g_(std::make_shared<sym::ExprArena>()) {}

  Graph run() {
    constexpr DType kDTypes[] = {DType::F32, DType::F32, DType::F64, DType::BF16};
    dtype_ = kDTypes[pick(4)];
    if (chance(2)) device_ = {DeviceType::CUDA, 0};
    rows_ = k(2 + static_cast<int64_t>(pick(3)));
    if (chance(3)) rows_ = g_.arena().symbol("s0", sym::SymbolKind::Size, {2, 64});
    pool_ = {input("x", {rows_, k(4)}), input("y", {rows_, k(4)}), input("z", {k(4)})};
    if (!g_.arena().as_const(rows_)) g_.size_symbols.push_back({rows_, {0, 0}});
    for (size_t n = 8 + pick(16); n-- > 0;) step();
    for (size_t i = 3; i < pool_.size(); ++i)
      if (i + 1 == pool_.size() || chance(4)) g_.outputs.push_back(pool_[i]);
    if (chance(4)) write_back();
    return std::move(g_);
  }

 private:
  size_t pick(size_t n) { return static_cast<size_t>(rng_() % n); }
  bool chance(size_t n) { return pick(n) == 0; }
  Expr k(int64_t v) const { return g_.arena().constant(v); }
  const std::vector<Expr>& sizes(ValueId v) const { return g_.type(v).sizes; }
  size_t rank(ValueId v) const { return sizes(v).size(); }
  bool is_float(ValueId v) const { return g_.type(v).dtype == dtype_; }

  ValueId input(const std::string& name, std::vector<Expr> sizes, DType dtype, Device device) {
    TensorType t{dtype, device, std::move(sizes), {}, k(0)};
    t.strides = contiguous_strides(g_.arena(), t.sizes);
    return g_.add_input(std::move(t), graph::InputKind::Argument, name + std::to_string(g_.inputs.size()));
  }
  ValueId input(const std::string& name, std::vector<Expr> sizes) {
    return input(name, std::move(sizes), dtype_, device_);
  }

  // The results; none where the types do not allow the call.
  std::vector<ValueId> calls(Op op, std::vector<Arg> args) {
    auto lookup = [&](ValueId v) { return graph::Operand{&g_.type(v), false}; };
    auto types = graph::infer(op, args, {lookup, g_.arena()});
    if (!types) return {};
    return g_.node(g_.add_node(op, std::move(args), std::move(*types))).outputs;
  }
  ValueId call(Op op, std::vector<Arg> args) {
    auto made = calls(op, std::move(args));
    return made.empty() ? ValueId() : made[0];
  }
  void keep(ValueId v) {
    if (v.valid()) pool_.push_back(v);
  }

  ValueId any() {
    return pool_[pool_.size() - 1 - std::min(pick(pool_.size()), pick(pool_.size()))];
  }  // rather a late one
  ValueId floats() {
    for (;;)
      if (ValueId v = any(); is_float(v)) return v;
  }
  // [rows, columns] of some.
  ValueId matrix() {
    for (size_t tries = 0; tries < 8; ++tries)
      if (ValueId v = floats(); rank(v) == 2) return v;
    return pool_[0];
  }
  Arg dim(ValueId v) {
    return k(static_cast<int64_t>(pick(rank(v))) - (chance(3) ? static_cast<int64_t>(rank(v)) : 0));
  }

  void step() {
    switch (pick(17)) {
      case 0: return unary();
      case 1: return binary();
      case 2: return identity();
      case 3: return choice();
      case 4:
      case 5: return view();
      case 6: return reduction();
      case 7: return normalisation();
      case 8: return product();
      case 9: return scatter();
      case 10: return random();
      case 11: return join();
      case 12: return image();
      case 13: return again();
      case 14: return checked_number();
      case 15: return picked();
      default: return scalar_of_the_host();
    }
  }

  void unary() {
    constexpr Op kOps[] = {Op::neg,  Op::abs, Op::sin, Op::tanh, Op::sigmoid, Op::relu,
                           Op::silu, Op::cos, Op::erf, Op::neg,  Op::gelu,    Op::clone};
    Op op = kOps[pick(std::size(kOps))];
    ValueId x = floats();
    if (op == Op::gelu) return keep(call(op, {x, std::string(chance(2) ? "none" : "tanh")}));
    if (op == Op::clone) return keep(call(op, {x, MemoryFormatArg{0}}));
    keep(call(op, {x}));
  }

  void binary() {
    ValueId a = floats(), b = floats();
    switch (pick(4)) {
      case 0: return keep(call(Op::add_Tensor, {a, b, k(1)}));
      case 1: return keep(call(Op::sub_Tensor, {a, b, k(1)}));
      case 2: return keep(call(Op::maximum, {a, b}));
      default: return keep(call(Op::tanh, {a}));
    }
  }

  // What is, or seems to be, no change.
  void identity() {
    ValueId x = floats();
    switch (pick(6)) {
      case 0: return keep(call(Op::mul_Tensor, {x, 1.0}));
      case 1: return keep(call(Op::div_Tensor, {x, k(1)}));
      case 2: return keep(call(Op::sub_Tensor, {x, 0.0, k(1)}));
      case 3: return keep(call(Op::add_Tensor, {x, 0.0, k(1)}));
      case 4: return keep(call(Op::clone, {x, MemoryFormatArg{0}}));
      default: return keep(call(Op::_to_copy, {x, dtype_, NoneArg{}, NoneArg{}, NoneArg{}, false, NoneArg{}}));
    }
  }

  void choice() {
    ValueId x = floats(), above = call(Op::gt_Scalar, {x, 0.5});
    keep(call(Op::where_self, {above, x, 0.25}));
    if (chance(3)) keep(above);
  }

  // A sum of what is 0 but at one place of each row.
  void picked() {
    ValueId x = matrix(), place = input("class below 6 ", {sizes(x)[0], k(1)}, DType::I64, device_);
    Expr n = sizes(x)[1];
    ValueId classes = call(Op::arange_start_step, {k(0), n, k(1), DType::I64, NoneArg{}, device_, NoneArg{}});
    ValueId hit = call(Op::eq_Tensor, {call(Op::view, {classes, IntList{{k(1), n}}}), place});
    if (chance(2)) hit = call(Op::logical_and, {hit, call(Op::ne_Scalar, {place, k(1)})});
    ValueId grad = chance(4) ? x : call(Op::sum_dim_IntList, {x, IntList{{k(1)}}, true, NoneArg{}});
    keep(call(Op::sum_dim_IntList, {call(Op::where_self, {hit, grad, 0.0}), IntList{{k(1)}}, chance(2), NoneArg{}}));
  }

  void view() {
    ValueId x = any();
    size_t r = rank(x);
    switch (pick(7)) {
      case 0:
        if (r == 2) keep(call(Op::t, {x}));
        return;
      case 1:
        if (r) keep(call(Op::transpose_int, {x, dim(x), dim(x)}));
        return;
      case 2: {
        IntList order;
        for (size_t d = 0; d < r; ++d) order.v.push_back(k(static_cast<int64_t>(d)));
        std::shuffle(order.v.begin(), order.v.end(), rng_);
        if (r) keep(call(Op::permute, {x, order}));
        return;
      }
      case 3: return keep(call(Op::view, {x, IntList{{g_.arena().product(sizes(x))}}}));
      case 4:
        if (r < 4) keep(call(Op::unsqueeze, {x, k(static_cast<int64_t>(pick(r + 1)))}));
        return;
      case 5: {
        std::vector<Expr> wider = sizes(x);
        for (Expr& e : wider)
          if (g_.arena().is_const(e, 1)) e = k(2);
        if (r < 4) wider.insert(wider.begin(), k(2));
        return keep(call(Op::expand, {x, IntList{std::move(wider)}, false}));
      }
      default:
        if (r) keep(call(Op::slice_Tensor, {x, dim(x), k(0), k(chance(2) ? 1 : 2), k(1)}));
    }
  }

  void reduction() {
    ValueId x = floats();
    if (rank(x) == 0) return;
    IntList along;
    along.v.push_back(std::get<Expr>(dim(x)));
    bool keepdim = chance(2);
    switch (pick(5)) {
      case 0: return keep(call(Op::sum_dim_IntList, {x, along, keepdim, NoneArg{}}));
      case 1: return keep(call(Op::mean_dim, {x, along, keepdim, NoneArg{}}));
      case 2: return keep(call(Op::amax, {x, along, keepdim}));
      case 3: return keep(call(Op::logsumexp, {x, along, keepdim}));
      default:
        for (ValueId v : calls(Op::var_mean_correction, {x, along, k(0), keepdim})) keep(v);
    }
  }

  void normalisation() {
    ValueId x = floats();
    if (rank(x) == 0) return;
    switch (pick(5)) {
      case 0: return keep(call(Op::_softmax, {x, dim(x), false}));
      case 1: return keep(call(Op::_log_softmax, {x, dim(x), false}));
      case 2:
        for (ValueId v : calls(Op::native_layer_norm, {x, IntList{{sizes(x).back()}}, NoneArg{}, NoneArg{}, 1e-2}))
          if (is_float(v)) keep(v);
        return;
      case 3: return keep(call(Op::mse_loss, {x, x, k(static_cast<int64_t>(pick(3)))}));
      default: return keep(call(Op::glu, {x, dim(x)}));
    }
  }

  void product() {
    ValueId x = matrix();
    Expr inner = sizes(x)[1], columns = k(chance(3) ? 260 : 3);
    // Linear layers: with an activation, or read by kernels.
    ValueId w = call(Op::t, {input("w", {columns, inner})}), y;
    if (chance(3)) x = call(Op::slice_Tensor, {x, k(0), k(0), k(1), k(1)});
    if (chance(3)) {
      y = call(Op::mm, {x, w});
    } else {
      y = call(Op::addmm, {input("bias", {columns}), x, w, k(1), k(1)});
    }
    if (!y.valid()) return;
    if (chance(3)) y = call(Op::view, {y, IntList{{k(1), sizes(y)[0], columns}}});
    if (chance(2)) y = chance(2) ? call(Op::relu, {y}) : call(Op::gelu, {y, std::string("tanh")});
    y = call(Op::tanh, {y});
    // Only few columns go on, so that graphs stay small.
    keep(call(Op::slice_Tensor, {y, k(-1), k(0), k(4), k(1)}));
  }

  void scatter() {
    ValueId table = input("table", {k(5), k(4)});
    ValueId rows = input("rows below 5 ", {k(3)}, DType::I64, device_), grad = input("grad", {k(3), k(4)});
    ValueId zeros = call(Op::full, {IntList{sizes(table)}, 0.0, dtype_, NoneArg{}, device_, NoneArg{}});
    ValueId sums = chance(2)   ? call(Op::embedding_dense_backward, {grad, rows, k(5), k(chance(2) ? -1 : 2), false})
                   : chance(2) ? call(Op::index_put, {zeros, TensorList{rows}, grad, true})
                               : call(Op::index_add, {zeros, k(0), rows, grad, k(1)});
    if (!sums.valid()) return;
    keep(chance(2) ? call(Op::add_Tensor, {table, sums, k(1)}) : call(Op::add_Tensor, {sums, table, k(1)}));
    if (chance(4)) keep(sums);
  }

  void random() {
    ValueId x = floats();
    switch (pick(3)) {
      case 0:
        for (ValueId v : calls(Op::native_dropout, {x, 0.25, true})) keep(v);
        return;
      case 1: return keep(call(Op::rand_like, {x, dtype_, NoneArg{}, device_, NoneArg{}, NoneArg{}}));
      default: return keep(call(Op::bernoulli_p, {x, 0.5, NoneArg{}}));
    }
  }

  void join() {
    ValueId a = floats(), b = floats();
    if (rank(a) == 0) return;
    keep(chance(2) ? call(Op::cat, {TensorList{a, b}, dim(a)}) : call(Op::stack, {TensorList{a, a}, dim(a)}));
  }

  void image() {
    ValueId x = input("image", {k(2), k(2), k(4), k(4)}), w = input("filter", {k(3), k(2), k(3), k(3)});
    IntList ones{{k(1), k(1)}}, none{{k(0), k(0)}};
    ValueId y = call(Op::convolution, {x, w, NoneArg{}, ones, ones, ones, false, none, k(1)});
    if (!y.valid()) return;
    y = call(Op::tanh, {y});
    if (chance(2)) keep(y);
    if (chance(2)) {
      ValueId next = input("next filter", {k(2), k(3), k(3), k(3)});
      y = call(Op::convolution, {y, next, NoneArg{}, ones, ones, ones, false, none, k(1)});
      if (!y.valid()) return;
    }
    y = call(Op::relu, {y});
    keep(chance(2) ? y : call(Op::mean_dim, {y, IntList{{k(2), k(3)}}, false, NoneArg{}}));
  }

  // A node as there is one already.
  void again() {
    if (g_.nodes().size() == 0) return;
    const graph::Node n = g_.node(graph::NodeId(pick(g_.nodes().size())));
    if (graph::op_traits(n.op) & graph::kEffect) return;
    for (ValueId v : calls(n.op, n.args)) keep(v);
  }

  // A number that the run reads and, some nodes later, checks.
  void checked_number() {
    Expr found = g_.arena().symbol("u" + std::to_string(g_.nodes().size()), sym::SymbolKind::Unbacked, {0, 64});
    ValueId read = input("length below 3 ", {}, DType::I64, {});
    g_.add_node(Op::_local_scalar_dense, {read, found}, {});
    keep(call(Op::mul_Scalar, {floats(), found}));
    keep(call(Op::tanh, {pool_.back()}));
    std::string message = "too many";
    g_.add_node(Op::_assert_scalar, {found, std::string("<="), k(2), std::string("RuntimeError"), message, IntList{}},
                {});
  }

  // Optimisers compute numbers on the CPU that kernels of a GPU read.
  void scalar_of_the_host() {
    ValueId step = input("step", {}, DType::F32, {});
    ValueId number = call(Op::pow_Scalar, {0.9, step});
    if (chance(2)) number = call(Op::sin, {number});
    keep(call(Op::mul_Tensor, {floats(), number}));
  }

  void write_back() {
    for (ValueId v : pool_)
      if (g_.value(v).node.valid() && is_float(v) && sizes(v) == sizes(pool_[0])) {
        g_.writebacks.push_back({pool_[0], v});
        return;
      }
  }

  std::mt19937_64 rng_;
  Graph g_;
  DType dtype_ = DType::F32;
  Device device_;
  Expr rows_;
  std::vector<ValueId> pool_;
};

}  // namespace

graph::Graph random_graph(uint64_t seed) { return Maker(seed).run(); }

}  // namespace braze::passes
