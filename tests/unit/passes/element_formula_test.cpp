#include "passes/element_formula.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "graph/interpret.h"
#include "graph/shape.h"

namespace braze::passes {
namespace {

using graph::IntList;
using graph::NoneArg;
using graph::TensorList;
using sym::Expr;

// Graphs of counting, comparing and choosing among constants, whose dimensions have few sizes, so that they coincide.
class Maker {
 public:
  explicit Maker(uint64_t seed) : rng_(seed), g_(std::make_shared<sym::ExprArena>()) {}

  Graph run() {
    for (int i = 0; i < 4; ++i) start();
    for (int i = 0; i < 30; ++i) step();
    g_.outputs = pool_;
    return std::move(g_);
  }

 private:
  int64_t pick(int64_t n) { return static_cast<int64_t>(rng_() % static_cast<uint64_t>(n)); }
  Expr k(int64_t v) const { return g_.arena().constant(v); }
  const TensorType& type(ValueId v) const { return g_.type(v); }
  int64_t size(ValueId v, size_t d) const { return *g_.arena().as_const(type(v).sizes[d]); }
  ValueId any() { return pool_[static_cast<size_t>(pick(static_cast<int64_t>(pool_.size())))]; }
  Expr dim_of(ValueId v) {
    const auto n = static_cast<int64_t>(type(v).dim());
    return k(pick(2 * n) - n);
  }
  static constexpr Device kCpu{DeviceType::CPU, 0};

  void call(Op op, std::vector<Arg> args) {
    auto lookup = [&](ValueId v) { return graph::Operand{&g_.type(v), false}; };
    auto types = graph::infer(op, args, {lookup, g_.arena()});
    if (!types || types->at(0).dim() == 0 || types->at(0).dim() > 4) return;
    int64_t elements = 1;
    for (Expr e : types->at(0).sizes) elements *= *g_.arena().as_const(e);
    if (elements == 0 || elements > 500) return;
    pool_.push_back(g_.node(g_.add_node(op, std::move(args), std::move(*types))).outputs[0]);
  }

  void start() {
    const int64_t n = 2 + pick(3), begin = pick(5) - 2, stride = 1 + pick(2);
    call(Op::arange_start_step, {k(begin), k(begin + n * stride), k(stride), DType::I64, NoneArg{}, kCpu, NoneArg{}});
    const IntList square{{k(3), k(1 + 2 * pick(2))}};
    const DType dtype = pick(2) ? DType::F32 : DType::Bool;
    const double number = dtype == DType::Bool ? 1 : std::vector{0.0, 1.0, -HUGE_VAL}[static_cast<size_t>(pick(3))];
    call(Op::full, {square, number, dtype, NoneArg{}, kCpu, NoneArg{}});
  }

  void step() {
    const ValueId x = any(), y = any();
    const auto rank = static_cast<int64_t>(type(x).dim());
    const bool is_float = is_floating(type(x).dtype);
    const Arg scalar = is_float ? Arg(static_cast<double>(pick(3) - 1)) : Arg(k(pick(5) - 1));
    switch (pick(24)) {
      case 0: return call(Op::add_Tensor, {x, y, k(1)});
      case 1: return type(x).dtype == DType::Bool ? void() : call(Op::sub_Tensor, {x, scalar, k(1)});
      case 2: return call(Op::mul_Tensor, {x, pick(2) ? Arg(y) : scalar});
      case 3: return call(Op::eq_Scalar, {x, scalar});
      case 4: return call(pick(2) ? Op::ne_Tensor : Op::eq_Tensor, {x, y});
      case 5: return call(pick(2) ? Op::lt_Tensor : Op::le_Tensor, {x, y});
      case 6: return call(pick(2) ? Op::gt_Tensor : Op::ge_Tensor, {x, y});
      case 7: return call(pick(2) ? Op::le_Scalar : Op::gt_Scalar, {x, scalar});
      case 8: return call(pick(2) ? Op::logical_and : Op::logical_or, {x, y});
      case 9: return call(Op::logical_not, {x});
      case 10: return choose(x, y);
      case 11:
        return call(Op::_to_copy, {x,
                                   pick(2)   ? DType::Bool
                                   : pick(2) ? DType::F32
                                             : DType::I64,
                                   NoneArg{}, NoneArg{}, NoneArg{}, false, NoneArg{}});
      case 12: return call(Op::unsqueeze, {x, k(pick(rank + 1))});
      case 13: return rank > 1 ? call(Op::transpose_int, {x, dim_of(x), dim_of(x)}) : void();
      case 14: {
        const auto d = static_cast<size_t>(pick(rank));
        const int64_t begin = pick(size(x, d));
        return call(Op::slice_Tensor,
                    {x, k(static_cast<int64_t>(d)), k(begin - pick(3) * size(x, d)), k(INT64_MAX), k(1 + pick(2))});
      }
      case 15: {
        const auto d = static_cast<size_t>(pick(rank));
        if (rank > 1) call(Op::select_int, {x, k(static_cast<int64_t>(d)), k(pick(2 * size(x, d)) - size(x, d))});
        return;
      }
      case 16: return call(Op::cat, {TensorList{x, pick(3) ? y : x}, dim_of(x)});
      case 17: return difference(x);
      case 18: return call(pick(2) ? Op::tril : Op::triu, {x, k(pick(3) - 1)});
      case 19: return gather(x);
      case 20: return call(Op::cumsum, {x, dim_of(x), NoneArg{}});
      case 21: return is_float ? call(Op::amax, {x, IntList{{dim_of(x)}}, pick(2) == 0}) : void();
      case 22: return pad(x);
      default: {
        IntList sizes;
        for (size_t d = 0; d < type(x).dim(); ++d) sizes.v.push_back(size(x, d) == 1 ? k(2) : k(-1));
        return call(Op::expand, {x, std::move(sizes), false});
      }
    }
  }

  void choose(ValueId x, ValueId y) {
    const ValueId c = any();
    if (type(c).dtype == DType::Bool) call(Op::where_self, {c, x, y});
    if (type(c).dtype == DType::Bool && is_floating(type(x).dtype)) call(Op::masked_fill_Scalar, {x, c, -HUGE_VAL});
  }

  // A value's steps along its last dimension, the first of which is 1.
  void difference(ValueId x) {
    if (type(x).dtype != DType::I64) return;
    const auto last = static_cast<int64_t>(type(x).dim()) - 1;
    const int64_t n = size(x, type(x).dim() - 1);
    const size_t before = pool_.size();
    call(Op::slice_Tensor, {x, k(last), k(0), k(1), k(1)});
    call(Op::sub_Tensor, {pool_.back(), k(1), k(1)});
    call(Op::cat, {TensorList{pool_.back(), x}, k(last)});
    if (pool_.size() != before + 3) return;
    const ValueId all = pool_.back();
    call(Op::slice_Tensor, {all, k(last), k(0), k(n), k(1)});
    call(Op::sub_Tensor, {x, pool_.back(), k(1)});
    call(Op::ne_Scalar, {pool_.back(), k(1)});
    call(Op::cumsum, {pool_.back(), k(last), NoneArg{}});
  }

  void gather(ValueId x) {
    TensorList at;
    for (size_t d = 0; d < type(x).dim(); ++d) {
      call(Op::arange_start_step, {k(0), k(1 + pick(size(x, d))), k(1), DType::I64, NoneArg{}, kCpu, NoneArg{}});
      IntList sizes{std::vector<Expr>(type(x).dim(), k(1))};
      sizes.v[d] = k(-1);
      call(Op::view, {pool_.back(), std::move(sizes)});
      at.push_back(pool_.back());
    }
    if (pick(3) == 0 && at.size() > 1) at.pop_back();
    call(Op::index_Tensor, {x, std::move(at)});
  }

  void pad(ValueId x) {
    const int64_t lo = pick(2), hi = pick(3), n = size(x, type(x).dim() - 1);
    call(Op::constant_pad_nd, {x, IntList{{k(lo), k(hi)}}, k(0)});
    call(Op::slice_Tensor, {pool_.back(), k(-1), k(lo), k(lo + n), k(1)});
  }

  std::mt19937_64 rng_;
  Graph g_;
  std::vector<ValueId> pool_;
};

TEST(ElementFormulas, AreWhatIsComputed) {
  std::map<std::string_view, int> known;  // by operator
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    Graph g = Maker(seed).run();
    graph::verify(g);
    const std::vector<graph::HostTensor> computed = graph::interpret(g, {});
    ElementFormulas formulas(g);
    sym::ExprArena& a = g.arena();
    for (size_t i = 0; i < g.outputs.size(); ++i) {
      const TensorType& type = g.type(g.outputs[i]);
      const std::vector<Expr> place = formulas.place(type.sizes);
      const std::optional<Element> found = formulas.at(g.outputs[i], place);
      if (!found) continue;
      ++known[graph::op_name(g.node(g.value(g.outputs[i]).node).op)];
      ASSERT_EQ(found->numbers.has_value(), is_floating(type.dtype));
      for (size_t n = 0; n < computed[i].data.size(); ++n) {
        std::map<Expr, int64_t> at;
        size_t rest = n;
        for (size_t d = type.dim(); d-- > 0;) {
          const auto size = static_cast<size_t>(computed[i].sizes[d]);
          at[place[d]] = static_cast<int64_t>(rest % size);
          rest /= size;
        }
        const int64_t value = a.evaluate(found->value, [&](Expr s) { return at.at(s); });
        const double want = computed[i].data[n];
        const double got = !found->numbers ? static_cast<double>(value)
                           : value         ? found->numbers->first
                                           : found->numbers->second;
        ASSERT_TRUE(std::isnan(want) ? std::isnan(got) : want == got)
            << "seed " << seed << ", " << g.value(g.outputs[i]).name << " element " << n << " is " << want << ", not "
            << got << "\n"
            << a.print(found->value) << "\n"
            << graph::print(g);
      }
    }
  }
  for (Op op : {Op::arange_start_step,
                Op::full,
                Op::add_Tensor,
                Op::sub_Tensor,
                Op::mul_Tensor,
                Op::eq_Scalar,
                Op::eq_Tensor,
                Op::ne_Tensor,
                Op::lt_Tensor,
                Op::le_Tensor,
                Op::gt_Tensor,
                Op::ge_Tensor,
                Op::logical_and,
                Op::logical_or,
                Op::logical_not,
                Op::where_self,
                Op::masked_fill_Scalar,
                Op::_to_copy,
                Op::unsqueeze,
                Op::transpose_int,
                Op::slice_Tensor,
                Op::select_int,
                Op::cat,
                Op::tril,
                Op::triu,
                Op::index_Tensor,
                Op::cumsum,
                Op::amax,
                Op::constant_pad_nd,
                Op::expand})
    EXPECT_GT(known[graph::op_name(op)], 5) << graph::op_name(op);
}

}  // namespace
}  // namespace braze::passes
