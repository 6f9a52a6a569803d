#include "symbolic/expr.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

using namespace braze::sym;

namespace {

struct Exprs : testing::Test {
  ExprArena a;
  Expr s0 = a.symbol("s0", SymbolKind::Size, {2, 1000});
  Expr s1 = a.symbol("s1", SymbolKind::Size, {2, 1000});
  Expr i = a.symbol("i", SymbolKind::LoopVar, {0, 11});
  Expr j = a.symbol("j", SymbolKind::LoopVar, {0, 63});
  Expr c(int64_t v) { return a.constant(v); }
  std::string p(Expr e) { return a.print(e); }
  Expr e(const char* t) { return a.parse(t); }
};

TEST_F(Exprs, EqualSumsHaveOneForm) {
  EXPECT_EQ(e("s0 + s1 + 3"), e("3 + s1 + s0"));
  EXPECT_EQ(e("2*(s0 + s1) - s0"), e("s0 + 2*s1"));
  EXPECT_EQ(e("(s0 + 1)*(s0 - 1)"), e("s0*s0 - 1"));
  EXPECT_EQ(e("s0 - s0"), c(0));
}

TEST_F(Exprs, DivisionBySplitIndex) {
  EXPECT_EQ(e("(64*i + j) // 64"), i);
  EXPECT_EQ(e("(64*i + j) % 64"), j);
  EXPECT_EQ(e("(768*s0 + 64*i + j) % 768"), e("64*i + j"));
  EXPECT_EQ(e("(768*s0 + 64*i + j) // 768"), s0);
  EXPECT_EQ(e("(64*i + j) // 128"), e("i // 2"));
  EXPECT_EQ(e("(64*i + j) % 128"), e("64*(i % 2) + j"));
  EXPECT_EQ(e("(s0 // 4) // 8"), e("s0 // 32"));
  EXPECT_EQ(e("(s0*s1) // s1"), s0);
  EXPECT_EQ(e("(s0*s1) % s1"), c(0));
}

TEST_F(Exprs, QuotientAndRemainderJoin) {
  EXPECT_EQ(e("4*(s0 // 4) + s0 % 4"), s0);
  EXPECT_EQ(e("4*((s0 // 4) % 5) + s0 % 4"), e("s0 % 20"));
}

TEST_F(Exprs, RangesProveComparisons) {
  EXPECT_EQ(a.known(e("Lt(i, 12)")), true);
  EXPECT_EQ(a.known(e("Le(s0, 1)")), false);
  EXPECT_EQ(a.known(e("Lt(s0, s1)")), std::nullopt);
  EXPECT_EQ(a.known(e("Eq(2*s0, 7)")), false);
  // Strides, of sizes of at least 2 each: by the factors that they do not share.
  EXPECT_EQ(a.known(e("Lt(s0, s0*s1)")), true);
  EXPECT_EQ(a.known(e("Le(s0*s1*s1, s0*s1)")), false);
  EXPECT_EQ(a.known(e("Eq(s0*s0, 3*s0)")), std::nullopt);
  EXPECT_EQ(a.known(e("Eq(2*s0*s1, s0*s1)")), false);
  EXPECT_EQ(a.known(e("Lt(s0*s1, s1 + s0)")), std::nullopt);
  EXPECT_EQ(e("Min(i, 11)"), i);
  EXPECT_EQ(e("Max(s0, 2)"), s0);
  EXPECT_EQ(a.range(e("64*i + j")), (Range{0, 767}));
}

TEST_F(Exprs, AffineFormSeparatesASymbol) {
  auto f = a.affine_in(e("s0*i + 3*i + j"), i);
  ASSERT_TRUE(f);
  EXPECT_EQ(f->coefficient, e("s0 + 3"));
  EXPECT_EQ(f->rest, j);
  EXPECT_FALSE(a.affine_in(e("i // 5"), i));
  EXPECT_FALSE(a.affine_in(e("i*i"), i));
}

TEST_F(Exprs, PositiveFactorsOfBothSidesAreTakenOut) {
  a.symbol("any", SymbolKind::Size, {0, 1000});
  EXPECT_EQ(e("(s0*s1*s1) // (2*s0*s1)"), e("s1 // 2"));
  EXPECT_EQ(e("(4*s0 + 6*s0*s1) // (2*s0*s1)"), e("(3*s1 + 2) // s1"));
  EXPECT_EQ(e("(s0*s1) % (2*s0)"), e("s0*(s1 % 2)"));
  EXPECT_EQ(e("Eq((s0*s1) % (2*s0), 0)"), e("Eq(s1 % 2, 0)"));
  EXPECT_EQ(e("Eq(2*s0*s1, 6*s0)"), e("Eq(s1, 3)"));
  EXPECT_EQ(e("Lt(s0*s1, s0*i)"), e("Lt(s1, i)"));
  EXPECT_NE(e("Eq(any*s0, any*s1)"), e("Eq(s0, s1)"));
  EXPECT_NE(e("(any*s0) // (any*s1)"), e("s0 // s1"));
}

TEST_F(Exprs, DivisibilityIsKnown) {
  EXPECT_TRUE(a.known_multiple(e("8*s0 + 16"), 8));
  EXPECT_FALSE(a.known_multiple(e("8*s0 + 4"), 8));
}

// Random expressions over small ranges: canonical forms, proofs, ranges, programs and text must agree with evaluation.
TEST(ExprFuzz, AgreesWithBruteForce) {
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    std::mt19937 rng(seed);
    auto pick = [&](int n) { return static_cast<int>(rng() % static_cast<unsigned>(n)); };
    ExprArena a;
    std::vector<Expr> symbols;
    std::vector<Range> ranges;
    for (int k = 0; k < 3; ++k) {
      int64_t lo = pick(2) ? pick(3) : pick(5) - 2;
      ranges.push_back({lo, lo + 1 + pick(7)});
      symbols.push_back(a.symbol("x" + std::to_string(k), SymbolKind::Size, ranges.back()));
    }
    using F = std::function<int64_t(const int64_t*)>;
    struct Both {
      Expr e;
      F f;
    };
    std::function<Both(int)> gen = [&](int depth) -> Both {
      if (depth == 0 || pick(6) == 0) {
        if (pick(3) == 0) {
          int64_t v = pick(13) - 3;
          return {a.constant(v), [v](const int64_t*) { return v; }};
        }
        size_t k = static_cast<size_t>(pick(3));
        return {symbols[k], [k](const int64_t* x) { return x[k]; }};
      }
      Both l = gen(depth - 1), r = gen(depth - 1);
      int64_t d = 1 + pick(9);
      auto fd = [](int64_t x, int64_t y) {
        return static_cast<int64_t>(std::floor(static_cast<double>(x) / static_cast<double>(y)));
      };
      // What divides without being a number is positive; a factor of both, where there is one, too.
      auto positive = [&](const Both& of) {
        return Both{a.max(of.e, a.constant(1)), [f = of.f](const int64_t* x) { return std::max<int64_t>(f(x), 1); }};
      };
      auto times = [&](const Both& p, const Both& q) {
        return Both{a.mul(p.e, q.e), [f = p.f, g = q.f](const int64_t* x) { return f(x) * g(x); }};
      };
      const int kind = pick(10);
      if (kind >= 8) {
        r = positive(r);
        if (pick(2)) {
          const size_t k = static_cast<size_t>(pick(3));
          Both shared = positive({a.mul(symbols[k], a.constant(d)), [k, d](const int64_t* x) { return x[k] * d; }});
          l = times(l, shared), r = times(r, shared);
        }
        if (kind == 8) return {a.floordiv(l.e, r.e), [=](const int64_t* x) { return fd(l.f(x), r.f(x)); }};
        return {a.mod(l.e, r.e), [=](const int64_t* x) { return l.f(x) - r.f(x) * fd(l.f(x), r.f(x)); }};
      }
      switch (kind) {
        case 0: return {a.add(l.e, r.e), [=](const int64_t* x) { return l.f(x) + r.f(x); }};
        case 1: return {a.sub(l.e, r.e), [=](const int64_t* x) { return l.f(x) - r.f(x); }};
        case 2: return {a.mul(l.e, a.constant(d)), [=](const int64_t* x) { return l.f(x) * d; }};
        case 3: return {a.floordiv(l.e, a.constant(d)), [=](const int64_t* x) { return fd(l.f(x), d); }};
        case 4: return {a.mod(l.e, a.constant(d)), [=](const int64_t* x) { return l.f(x) - d * fd(l.f(x), d); }};
        case 5: return {a.min(l.e, r.e), [=](const int64_t* x) { return std::min(l.f(x), r.f(x)); }};
        case 6: return {a.max(l.e, r.e), [=](const int64_t* x) { return std::max(l.f(x), r.f(x)); }};
        default: return {a.mul(l.e, r.e), [=](const int64_t* x) { return l.f(x) * r.f(x); }};
      }
    };
    Both l = gen(3), r = gen(2);
    Expr cmp = a.lt(l.e, r.e), same = a.eq(l.e, r.e);
    IntProgram program = IntProgram::compile(a, std::vector<Expr>{l.e, cmp}, symbols);
    Expr reparsed = a.parse(a.print(l.e));
    Range range = a.range(l.e);
    auto known_lt = a.known(cmp), known_eq = a.known(same);
    int64_t x[3];
    for (x[0] = ranges[0].lo; x[0] <= ranges[0].hi; ++x[0])
      for (x[1] = ranges[1].lo; x[1] <= ranges[1].hi; ++x[1])
        for (x[2] = ranges[2].lo; x[2] <= ranges[2].hi; ++x[2]) {
          auto env = [&](Expr s) { return x[std::find(symbols.begin(), symbols.end(), s) - symbols.begin()]; };
          int64_t want = l.f(x);
          std::string where = "seed " + std::to_string(seed) + ": " + a.print(l.e);
          ASSERT_EQ(a.evaluate(l.e, env), want) << where;
          ASSERT_EQ(a.evaluate(reparsed, env), want) << where;
          ASSERT_LE(range.lo, want) << where;
          ASSERT_GE(range.hi, want) << where;
          ASSERT_EQ(a.evaluate(cmp, env), want < r.f(x)) << where;
          ASSERT_EQ(a.evaluate(same, env), want == r.f(x)) << where;
          ASSERT_EQ(known_lt.value_or(want < r.f(x)), want < r.f(x)) << where;
          ASSERT_EQ(known_eq.value_or(want == r.f(x)), want == r.f(x)) << where;
          int64_t out[2];
          program.run(x, out);
          ASSERT_EQ(out[0], want) << where;
          ASSERT_EQ(out[1], want < r.f(x)) << where;
        }
  }
}

}  // namespace
