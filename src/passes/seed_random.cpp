#include "passes/seed_random.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "graph/random.h"
#include "passes/builder.h"

namespace braze::passes {
namespace {

std::optional<double> number(const Graph& g, const Arg& a) {
  if (auto* d = std::get_if<double>(&a)) return *d;
  if (auto* b = std::get_if<bool>(&a)) return *b;
  if (auto* e = std::get_if<Expr>(&a))
    if (auto c = g.arena().as_const(*e)) return static_cast<double>(*c);
  return std::nullopt;
}

bool is_real(DType t) { return t == DType::F32 || t == DType::F64 || t == DType::F16 || t == DType::BF16; }

// low <= x < high, where eager takes them.
bool integers(const Graph& g, const Arg* low, const Arg& high, DType dtype) {
  auto bound = [&](const Arg& a) {
    auto* e = std::get_if<Expr>(&a);
    return e ? g.arena().as_const(*e) : std::nullopt;
  };
  auto from = low ? bound(*low) : std::optional<int64_t>(0), to = bound(high);
  if (!from || !to || *from >= *to || (dtype != DType::I64 && dtype != DType::I32)) return false;
  constexpr int64_t kLimit = int64_t{1} << 62;
  if (*from <= -kLimit || *to >= kLimit) return false;
  return dtype == DType::I64 ||
         (*from >= std::numeric_limits<int32_t>::min() && *to - 1 <= std::numeric_limits<int32_t>::max());
}

bool takes(const Graph& g, const Node& n) {
  if (graph::op_class(n.op) != graph::OpClass::Random || graph::is_seeded(n) || n.outputs.empty() ||
      !n.outputs[0].valid())
    return false;
  for (const Arg& a : n.args)
    if (std::holds_alternative<graph::OpaqueArg>(a)) return false;  // a generator
  const DType dtype = g.type(n.outputs[0]).dtype;
  auto value = [&](size_t i) { return i < n.args.size() ? number(g, n.args[i]) : std::nullopt; };
  switch (n.op) {
    case Op::rand:
    case Op::rand_like:
    case Op::randn:
    case Op::randn_like: return is_real(dtype);
    case Op::bernoulli_p: {
      auto p = value(1);
      return p && *p >= 0 && *p <= 1 && !is_complex(dtype);
    }
    case Op::native_dropout: {
      auto p = value(1);
      auto* train = n.args.size() > 2 ? std::get_if<bool>(&n.args[2]) : nullptr;
      return is_real(dtype) && p && *p >= 0 && *p < 1 && (!train || *train) && n.outputs.size() == 2 &&
             n.outputs[1].valid();
    }
    case Op::uniform: {
      auto from = value(1), to = value(2);
      // Else eager's error.
      return is_real(dtype) && from && to && *from <= *to && *to - *from <= largest_finite(dtype);
    }
    case Op::normal_functional: {
      auto mean = value(1), std = value(2);
      return is_real(dtype) && mean && std && *std >= 0;
    }
    case Op::exponential: {
      auto rate = value(1);
      return is_real(dtype) && rate && *rate > 0;
    }
    case Op::randint: return integers(g, nullptr, n.args[0], dtype);
    case Op::randint_low: return integers(g, &n.args[0], n.args[1], dtype);
    case Op::randint_like: return integers(g, nullptr, n.args[1], dtype);
    case Op::randint_like_low_dtype: return integers(g, &n.args[1], n.args[2], dtype);
    default: return false;
  }
}

class Seeding {
 public:
  explicit Seeding(const Graph& g) : g_(g), r_(g) {}

  Graph run(const std::vector<bool>& taken) {
    for (size_t i = 0; i < taken.size(); ++i) {
      const Node& n = g_.node(NodeId(i));
      if (!taken[i])
        r_.copy(n);
      else if (n.op == Op::native_dropout)
        drop_out(n);
      else
        seeded(n);
    }
    return r_.finish();
  }

 private:
  Device device(const Node& n) const { return g_.type(n.outputs[0]).device; }
  Expr k(int64_t v) const { return g_.arena().constant(v); }

  ValueId add(Op op, std::vector<Arg> args, TensorType type, graph::Origin origin) {
    return r_.out().node(r_.out().add_node(op, std::move(args), {std::move(type)}, origin)).outputs[0];
  }

  // A tensor of its own, so that equal layers are equal kernels.
  ValueId seed(const Node& n) {
    Device d = device(n);
    return add(Op::randint_low, {k(INT64_MIN), k(INT64_MAX), graph::IntList{}, DType::I64, NoneArg{}, d, NoneArg{}},
               TensorType{DType::I64, d, {}, {}, k(0)}, n.origin().step());
  }

  void seeded(const Node& n) {
    ValueId drawn = seed(n);
    std::vector<Arg> args = r_.map_args(n);
    for (Arg& a : args)
      if (std::holds_alternative<ValueId>(a)) a = NoneArg{};  // lends its type alone, which is the result's
    args.emplace_back(drawn);
    r_.copy(n, std::move(args));
  }

  // input * mask / (1 - p)
  void drop_out(const Node& n) {
    double keep = 1 - *number(g_, n.args[1]);
    const TensorType &type = g_.type(n.outputs[0]), &mask_type = g_.type(n.outputs[1]);
    ValueId input = r_.map(std::get<ValueId>(n.args[0]));
    ValueId mask = add(Op::bernoulli_p, {NoneArg{}, keep, NoneArg{}, seed(n)}, mask_type, n.origin());
    r_.replace(n.outputs[1], mask);
    ValueId kept = add(Op::mul_Tensor, {input, mask}, type, n.origin().step());
    r_.replace(n.outputs[0], add(Op::mul_Tensor, {kept, 1 / keep}, type, n.origin()));
  }

  const Graph& g_;
  Rewriter r_;
};

}  // namespace

namespace {

// Per node: whether it draws from PyTorch's default generator, since the program asks for no values of another.
std::vector<bool> by_default_generator(const Graph& g) {
  std::vector<bool> out;
  bool own = false;
  for (const Node& n : g.nodes()) {
    if (n.extern_name == "braze::enter_generator") own = true;
    if (n.extern_name == "braze::leave_generator") own = false;
    out.push_back(!own);
  }
  return out;
}

// Random operators that are functions of others, as these.
Graph taken_apart(const Graph& g) {
  std::vector<bool> by_default = by_default_generator(g);
  Rewriter r(g);
  for (size_t i = 0; i < by_default.size(); ++i) {
    const Node& n = g.node(NodeId(i));
    DecomposeRule rule = by_default[i] ? random_rule(n) : nullptr;
    if (!rule || !rewrite(r, n, g, rule)) r.copy(n);
  }
  return r.finish();
}

}  // namespace

Graph seed_random(Graph g) {
  if (std::any_of(g.nodes().begin(), g.nodes().end(), [](const Node& n) { return random_rule(n) != nullptr; }))
    g = taken_apart(g);
  std::vector<bool> taken = by_default_generator(g);
  for (size_t i = 0; i < taken.size(); ++i) taken[i] = taken[i] && takes(g, g.node(NodeId(i)));
  if (std::none_of(taken.begin(), taken.end(), [](bool b) { return b; })) return g;
  return Seeding(g).run(taken);
}

}  // namespace braze::passes
