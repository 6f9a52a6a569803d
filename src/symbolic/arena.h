// Inside of the expression arena: nodes, interning, interval arithmetic. Only symbolic/*.cpp include this.
#pragma once
#include <deque>
#include <map>
#include <tuple>

#include "base/check.h"
#include "base/hash_index.h"
#include "symbolic/expr.h"

namespace braze::sym {

struct ExprArena::Impl {
  struct Node {
    Kind kind = Kind::Const;
    SymbolKind symbol_kind = SymbolKind::Size;
    int64_t value = 0;              // Const
    uint32_t first = 0, count = 0;  // operands, in `pool`
    uint32_t name = 0;              // Symbol: index into `names`
    uint32_t epoch = 0;             // when `range` was computed
    Range range;
    uint64_t hash = 0;
  };
  std::deque<Node> nodes;              // stable addresses
  std::deque<std::vector<Expr>> pool;  // operand lists, stable spans
  std::vector<std::string> names;
  std::unordered_map<std::string, Expr> by_name;
  std::map<std::tuple<char, size_t, uint32_t, SymbolKind>, Expr> positional;
  std::unordered_map<uint32_t, int64_t> expected;  // by the symbol's id
  size_t fresh = 0;                                // names that fresh_symbol gave
  HashIndex interned;
  uint32_t epoch = 1;

  const Node& at(Expr e) const {
    BRAZE_CHECK(e.id < nodes.size(), "an expression of another arena");
    return nodes[e.id];
  }
  std::span<const Expr> operands(Expr e) const {
    const Node& n = at(e);
    return n.count ? std::span<const Expr>(pool[n.first]) : std::span<const Expr>();
  }
  Expr constant(int64_t value);
  Expr intern(Kind kind, std::vector<Expr> operands);
  Range range(Expr e);
  Range compute_range(const Node& n);
};

// Saturating helpers of interval arithmetic: INT64_MIN and INT64_MAX stand for the infinities.
constexpr int64_t kMinusInf = INT64_MIN, kPlusInf = INT64_MAX;
int64_t saturating_add(int64_t a, int64_t b);
int64_t saturating_mul(int64_t a, int64_t b);
int64_t floor_div(int64_t a, int64_t b);
int64_t floor_mod(int64_t a, int64_t b);
// Wrap-checked arithmetic on constants; throws InternalError on overflow.
int64_t checked_add(int64_t a, int64_t b);
int64_t checked_mul(int64_t a, int64_t b);

// A sum as constant + sum(coefficient * term); terms are no sums and have no constant factor.
struct LinearSum {
  int64_t constant = 0;
  std::vector<std::pair<Expr, int64_t>> terms;  // by term id, coefficients not zero
};

}  // namespace braze::sym
