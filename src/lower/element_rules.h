// The rules of class Pointwise: every row of graph/ops.def is declared here, so one without a definition does not link.
#pragma once
#include "lower/rules.h"

namespace braze::lower {

#define BRAZE_RULE_Pointwise(name) extern const ElementRule rule_##name;
#define BRAZE_RULE_Reduction(name)
#define BRAZE_RULE_View(name)
#define BRAZE_RULE_Index(name)
#define BRAZE_RULE_Factory(name)
#define BRAZE_RULE_Random(name)
#define BRAZE_RULE_Matmul(name)
#define BRAZE_RULE_Conv(name)
#define BRAZE_RULE_Attention(name)
#define BRAZE_RULE_Decompose(name)
#define BRAZE_RULE_Extern(name)
#define BRAZE_OP(name, aten, cls, result, accepts, cost, raises, traits) BRAZE_RULE_##cls(name)
#include "graph/ops.def"
#undef BRAZE_OP
#undef BRAZE_RULE_Pointwise

// RULE(op) { return a Val made from p; }
#define RULE(name)                                \
  static Val element_##name(const Point& p);      \
  const ElementRule rule_##name = element_##name; \
  static Val element_##name([[maybe_unused]] const Point& p)
#define RULES_EQUAL(name, other) const ElementRule rule_##name = element_##other;
// No opcode computes it: an extern call.
#define NO_RULE(name) const ElementRule rule_##name = nullptr;

}  // namespace braze::lower
