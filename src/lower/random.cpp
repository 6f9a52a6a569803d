// Random numbers from seeds: Philox 2x32 with ten rounds (Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy
// as 1, 2, 3; SC 2011). The seed's low half is the key; its high half and the element's number are the counter.
#include <cmath>
#include <numbers>

#include "graph/random.h"
#include "lower/rules.h"

namespace braze::lower {

using graph::Op;

namespace {

struct Words {  // of 32 bits, each in an i64
  Val a, b;
};

Val integer(const Point& p, int64_t v) { return p.wrap(p.body.constant(v, DType::I64)); }
Val shifted_down(Val x, int bits) { return binary(OpCode::Shr, x, x.same(bits)); }

// The element's number in row-major order.
Val position(const Point& p) {
  sym::ExprArena& arena = p.low.arena;
  Expr at = arena.constant(0);
  for (size_t d = 0; d < p.index.size(); ++d) at = arena.add(arena.mul(at, p.type().sizes[d]), p.index[d]);
  return p.wrap(p.body.index(at, DType::I64));
}

// 64 random bits for counter `count` of this node.
Words philox(const Point& p, Val count) {
  constexpr int64_t kMultiplier = 0xD256D193, kStep = 0x9E3779B9, kLow = 0xFFFFFFFF;
  Val low = integer(p, kLow);
  Val seed = p.at(std::get<graph::ValueId>(p.node.args.back()), {});
  Val key = seed & low;
  Words c{count & low, (shifted_down(seed, 32) ^ shifted_down(count, 32)) & low};
  for (int round = 0; round < 10; ++round) {
    if (round) key = (key + integer(p, kStep)) & low;
    Val product = integer(p, kMultiplier) * c.a;
    c = {(shifted_down(product, 32) & low) ^ key ^ c.b, product & low};
  }
  return c;
}

// Bits of precision with which eager fills a dtype from [0, 1).
int digits(DType t) { return t == DType::F64 ? 53 : t == DType::F16 ? 11 : t == DType::BF16 ? 8 : 24; }

// The top `bits` of both words as an integer.
Val top(const Words& w, int bits) {
  if (bits <= 32) return shifted_down(w.a, 32 - bits);
  Val scale{w.a.body, w.a.body->constant(int64_t{1} << (bits - 32), DType::I64)};
  return (w.a * scale) | shifted_down(w.b, 64 - bits);
}
Val as_float(Val x, int bits, DType t) { return (bits < 32 ? x.to(DType::I32) : x).to(t); }

// [0, 1)
Val uniform(const Point& p) {
  int bits = digits(p.type().dtype);
  return as_float(top(philox(p, position(p)), bits), bits, p.dtype()) * std::ldexp(1.0, -bits);
}

// Box and Muller's, from two numbers per element.
Val normal(const Point& p) {
  bool wide = p.dtype() == DType::F64;
  int bits = wide ? 53 : 24;
  Val at = position(p);
  Val radius, angle;
  if (wide) {
    at = at * integer(p, 2);
    radius = top(philox(p, at), bits), angle = top(philox(p, at + integer(p, 1)), bits);
  } else {
    Words w = philox(p, at);
    radius = top(w, bits), angle = shifted_down(w.b, 32 - bits);
  }
  double unit = std::ldexp(1.0, -bits);
  Val u = (as_float(radius, bits, p.dtype()) + 1.0) * unit;  // not 0
  Val turn = as_float(angle, bits, p.dtype()) * (2 * std::numbers::pi * unit);
  return sqrt(log(u) * -2.0) * unary(OpCode::Cos, turn);
}

// Strictly between 0 and 1, so that the logarithm is neither infinite nor 0.
Val exponential(const Point& p) {
  int bits = p.dtype() == DType::F64 ? 52 : 23;
  Val u = (as_float(top(philox(p, position(p)), bits), bits, p.dtype()) * 2.0 + 1.0) * std::ldexp(1.0, -bits - 1);
  return log(u) * (-1 / p.number(1));
}

Val bernoulli(const Point& p) {
  constexpr int kBits = 31;
  double least = std::round(std::ldexp(p.number(1), kBits));
  if (least >= std::ldexp(1.0, kBits)) return p.literal(1);
  Val drawn = top(philox(p, position(p)), kBits).to(DType::I32);
  return compare(OpCode::Lt, drawn, p.wrap(p.body.constant(static_cast<int64_t>(least), DType::I32))).to(p.dtype());
}

Val integers(const Point& p, int64_t from, int64_t to) {
  constexpr int kSmall = 20;
  Words w = philox(p, position(p));
  Val range = integer(p, to - from);
  // Without a division where the product holds enough bits that no number is favoured measurably.
  Val r = to - from <= int64_t{1} << kSmall ? shifted_down(top(w, 62 - kSmall) * range, 62 - kSmall)
                                            : binary(OpCode::Mod, top(w, 63), range);
  return (r + integer(p, from)).to(p.dtype());
}

int64_t whole(const Point& p, size_t i) { return p.low.arena.as_const(std::get<Expr>(p.arg(i))).value(); }

Val rule_uniform(const Point& p) { return uniform(p) * (p.number(2) - p.number(1)) + p.number(1); }
Val rule_normal(const Point& p) { return normal(p) * p.number(2) + p.number(1); }
Val rule_randint(const Point& p) { return integers(p, 0, whole(p, 0)); }
Val rule_randint_low(const Point& p) { return integers(p, whole(p, 0), whole(p, 1)); }
Val rule_randint_like(const Point& p) { return integers(p, 0, whole(p, 1)); }
Val rule_randint_like_low(const Point& p) { return integers(p, whole(p, 1), whole(p, 2)); }

}  // namespace

ElementRule random_rule(Op op) {
  switch (op) {
    case Op::rand:
    case Op::rand_like: return uniform;
    case Op::randn:
    case Op::randn_like: return normal;
    case Op::bernoulli_p: return bernoulli;
    case Op::uniform: return rule_uniform;
    case Op::normal_functional: return rule_normal;
    case Op::exponential: return exponential;
    case Op::randint: return rule_randint;
    case Op::randint_low: return rule_randint_low;
    case Op::randint_like: return rule_randint_like;
    case Op::randint_like_low_dtype: return rule_randint_like_low;
    default: return nullptr;
  }
}

bool takes_random(const graph::Node& node) { return graph::is_seeded(node) && random_rule(node.op); }

}  // namespace braze::lower
