// The rewrite rules: each builds one canonical expression from canonical operands. One rule, one line, next to its
// siblings.
#pragma once
#include "symbolic/arena.h"

namespace braze::sym {

LinearSum linear_sum(const ExprArena& arena, Expr e);
Expr from_linear(ExprArena& arena, ExprArena::Impl& impl, LinearSum sum);

}  // namespace braze::sym
