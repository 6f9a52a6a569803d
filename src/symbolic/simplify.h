// The rewrite rules: each builds one canonical expression from canonical operands. One rule, one line, next to its
// siblings.
#pragma once
#include <initializer_list>

#include "symbolic/arena.h"

namespace braze::sym {

LinearSum linear_sum(const ExprArena& arena, Expr e);
Expr from_linear(ExprArena& arena, ExprArena::Impl& impl, LinearSum sum);

// Takes out of all the expressions the positive factors that all their terms share, numbers of the constants included;
// their product, 1 where there is none.
Expr take_shared_factors(ExprArena& arena, std::initializer_list<Expr*> expressions);

}  // namespace braze::sym
