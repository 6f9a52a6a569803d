#include "symbolic/shape_env.h"

#include <gtest/gtest.h>

#include <random>

using namespace braze::sym;

namespace {

struct ShapeEnvs : testing::Test {
  std::shared_ptr<ExprArena> arena = std::make_shared<ExprArena>();
  ExprArena& a = *arena;
  ShapeEnv env{arena};
  Expr s0 = env.add_symbol("s0", {1, 1000}, 12);
  Expr s1 = env.add_symbol("s1", {1, 1000}, 8);
  Expr e(const char* t) { return a.parse(t); }
};

TEST_F(ShapeEnvs, DecisionsFollowTheHintsAndBecomeFacts) {
  EXPECT_TRUE(env.decide(e("Lt(s1, s0)")));
  EXPECT_FALSE(env.decide(e("Eq(s0, s1)")));
  size_t facts = env.facts().size();
  EXPECT_GE(facts, 1u);
  EXPECT_LE(facts, 2u);  // that s0 != s1 follows from the first one
  EXPECT_TRUE(env.decide(e("Lt(s1, s0)")));
  EXPECT_FALSE(env.decide(e("Eq(s0, s1)")));
  EXPECT_EQ(env.facts().size(), facts);
}

TEST_F(ShapeEnvs, WhatRangesProveIsNoFact) {
  EXPECT_TRUE(env.decide(e("Lt(0, s0)")));
  EXPECT_FALSE(env.decide(e("Lt(2000, s0)")));
  EXPECT_TRUE(env.facts().empty());
}

TEST_F(ShapeEnvs, BoundsNarrowRanges) {
  EXPECT_TRUE(env.decide(e("Le(s0, 512)")));
  EXPECT_EQ(a.range(s0), (Range{1, 512}));
  EXPECT_EQ(env.declared(s0), (Range{1, 1000}));
  EXPECT_FALSE(env.decide(e("Eq(s0, 1)")));
  EXPECT_EQ(a.range(s0), (Range{2, 512}));
  EXPECT_TRUE(env.decide(e("Le(10, 2*s0)")));
  EXPECT_EQ(a.range(s0), (Range{5, 512}));
}

TEST_F(ShapeEnvs, EqualitiesReplaceTheNewerSymbol) {
  Expr s2 = env.add_symbol("s2", {1, 1000}, 20);
  EXPECT_TRUE(env.decide(e("Eq(s2, s0 + s1)")));
  EXPECT_EQ(env.simplify(s2), e("s0 + s1"));
  EXPECT_EQ(env.specialised(s2), nullptr);
  EXPECT_TRUE(env.decide(e("Eq(s1, 8)")));
  EXPECT_EQ(env.simplify(s2), e("s0 + 8"));
  ASSERT_NE(env.specialised(s1), nullptr);
}

TEST_F(ShapeEnvs, DivisibilityMakesAMultiple) {
  EXPECT_TRUE(env.decide(e("Eq(s0 % 4, 0)")));
  ASSERT_EQ(env.derived().size(), 1u);
  EXPECT_EQ(env.derived()[0].definition, e("s0 // 4"));
  EXPECT_EQ(env.hint(env.derived()[0].symbol), 3);
  EXPECT_EQ(env.simplify(s0), a.mul(a.constant(4), env.derived()[0].symbol));
  EXPECT_TRUE(env.decide(a.eq(env.simplify(e("s0 % 2")), a.constant(0))));
  EXPECT_EQ(env.facts().size(), 1u);
}

TEST_F(ShapeEnvs, DuckShapingByHistory) {
  Expr d0 = env.duck_symbol("d0", {1, 100}, 7, {7, 5});
  EXPECT_EQ(env.duck_symbol("d1", {1, 100}, 7, {7, 5}), d0);
  EXPECT_NE(env.duck_symbol("d2", {1, 100}, 7, {7, 6}), d0);
}

TEST_F(ShapeEnvs, UnbackedSymbolsAreNotGuessed) {
  Expr u = env.add_unbacked({0, 100});
  EXPECT_THROW(env.decide(a.eq(u, a.constant(3))), Undecidable);
  EXPECT_TRUE(env.decide(a.le(u, a.constant(100))));
}

// Whatever was decided: values of the base symbols that are in range and fulfil the facts lead to the same decisions.
TEST(ShapeEnvFuzz, FactsAreEnough) {
  for (uint32_t seed = 0; seed < 1500; ++seed) {
    std::mt19937 rng(seed);
    auto pick = [&](int n) { return static_cast<int>(rng() % static_cast<unsigned>(n)); };
    auto arena = std::make_shared<ExprArena>();
    ExprArena& a = *arena;
    ShapeEnv env(arena);
    std::vector<Expr> symbols;
    for (int k = 0; k < 3; ++k) symbols.push_back(env.add_symbol("s" + std::to_string(k), {1, 9}, 1 + pick(9)));
    std::function<Expr(int)> gen = [&](int depth) -> Expr {
      if (depth == 0 || pick(5) == 0) return pick(3) ? symbols[static_cast<size_t>(pick(3))] : a.constant(pick(8));
      Expr l = gen(depth - 1), r = gen(depth - 1), d = a.constant(1 + pick(5));
      switch (pick(7)) {
        case 0: return a.add(l, r);
        case 1: return a.sub(l, r);
        case 2: return a.mul(l, r);
        case 3: return a.floordiv(l, d);
        case 4: return a.mod(l, d);
        case 5: return a.min(l, r);
        default: return a.max(l, r);
      }
    };
    std::vector<std::pair<Expr, bool>> decisions;
    for (int k = 0; k < 4; ++k) {
      Expr l = gen(2), r = pick(2) ? gen(1) : a.constant(pick(10));
      Expr c;
      switch (pick(5)) {
        case 0: c = a.eq(l, r); break;
        case 1: c = a.ne(l, r); break;
        case 2: c = a.lt(l, r); break;
        case 3: c = a.eq(a.mod(l, a.constant(2 + pick(3))), a.constant(0)); break;
        default: c = a.logical_or(a.eq(l, r), a.lt(r, l)); break;
      }
      decisions.emplace_back(c, env.decide(c));
    }
    int64_t x[3];
    for (x[0] = 1; x[0] <= 9; ++x[0])
      for (x[1] = 1; x[1] <= 9; ++x[1])
        for (x[2] = 1; x[2] <= 9; ++x[2]) {
          auto value = [&](Expr s) -> int64_t {
            for (size_t i = 0; i < 3; ++i)
              if (symbols[i] == s) return x[i];
            for (const auto& d : env.derived())
              if (d.symbol == s)
                return a.evaluate(d.definition, [&](Expr b) {
                  return x[std::find(symbols.begin(), symbols.end(), b) - symbols.begin()];
                });
            throw std::runtime_error("unknown symbol");
          };
          bool admitted = true;
          for (size_t i = 0; i < 3; ++i) admitted &= a.range(symbols[i]).lo <= x[i] && x[i] <= a.range(symbols[i]).hi;
          for (const auto& f : env.facts()) admitted = admitted && a.evaluate(f.condition, value);
          if (!admitted) continue;
          for (auto [c, held] : decisions)
            ASSERT_EQ(a.evaluate(c, value) != 0, held) << "seed " << seed << ": " << a.print(c);
          for (Expr s : symbols) ASSERT_EQ(a.evaluate(env.simplify(s), value), value(s)) << "seed " << seed;
        }
  }
}

struct Assumptions : ShapeEnvs {
  std::vector<Assertion> asserted;
  Expr u0, u1;
  void SetUp() override {
    u0 = env.add_unbacked({0, INT64_MAX}, "a count");
    u1 = env.add_unbacked({}, "a value");
    env.set_assert([this](const Assertion& a, const Failure&) { asserted.push_back(a); });
  }
  void assume(const char* text) { env.assume(e(text), {}); }
};

TEST_F(Assumptions, NothingIsDecidedWithoutThem) {
  EXPECT_THROW(env.decide(e("Lt(u0, s0)")), Undecidable);
  EXPECT_EQ(env.known(e("Lt(u0, s0)")), std::nullopt);
  EXPECT_EQ(env.known(e("Le(0, u0)")), true);
}

TEST_F(Assumptions, AreAssertedOnceAndKnownThen) {
  assume("Le(u0, s0)");
  assume("Le(u0, s0)");
  ASSERT_EQ(asserted.size(), 1u);
  EXPECT_EQ(asserted[0].relation, Kind::Le);
  EXPECT_TRUE(env.decide(e("Le(u0, s0)")));
  EXPECT_TRUE(env.decide(e("Lt(u0, s0 + 1)")));
  EXPECT_FALSE(env.decide(e("Lt(s0, u0)")));
  EXPECT_EQ(env.known(e("Lt(u0, s0)")), std::nullopt);
  EXPECT_TRUE(env.facts().empty());
}

TEST_F(Assumptions, NarrowRanges) {
  assume("Le(3, u1)");
  EXPECT_EQ(a.range(u1).lo, 3);
  EXPECT_EQ(env.known(e("Eq(u1, 2)")), false);
  EXPECT_EQ(env.known(e("Eq(u1, 3)")), std::nullopt);
}

TEST_F(Assumptions, OfEqualityLeaveTheDefinitionAlone) {
  assume("Eq(u1, 2*u0)");
  assume("Eq(u0, 5)");
  EXPECT_EQ(env.simplify(u1), u1);
  EXPECT_EQ(env.known(e("Eq(u1, 10)")), true);
  EXPECT_EQ(env.assumed_value(u1), 10);
  EXPECT_EQ(a.range(u0), (Range{0, INT64_MAX}));
}

TEST_F(Assumptions, OfSeveralPartsAreSeveral) {
  env.assume(a.logical_and(e("Le(2, u1)"), e("Le(u1, 9)")), {});
  EXPECT_EQ(asserted.size(), 2u);
  EXPECT_EQ(a.range(u1), (Range{2, 9}));
}

TEST_F(Assumptions, UsualSizesAreTwoOrMore) {
  EXPECT_EQ(env.usually(e("Eq(u0, 1)")), false);
  EXPECT_EQ(env.usually(e("Lt(1, u0)")), true);
  EXPECT_EQ(env.usually(e("Eq(u1, 1)")), std::nullopt);  // no size
  EXPECT_EQ(env.known(e("Eq(u0, 1)")), std::nullopt);
  EXPECT_EQ(a.range(u0), (Range{0, INT64_MAX}));
}

TEST_F(Assumptions, ExplainNamesWhereSymbolsComeFrom) {
  EXPECT_NE(env.explain(e("Lt(u0, u1)")).find("u0 is a count and u1 is a value"), std::string::npos);
}

}  // namespace
