// Random operators, and the same as functions of a seed.
//
// A node of class Random whose last argument is a tensor (no schema has one there) is seeded: element i of its result
// is a function of that seed (a number, i64) and of i alone. It may be dropped, moved and repeated like arithmetic.
#pragma once
#include "graph/graph.h"

namespace braze::graph {

bool is_seeded(const Node&);
// Of the operator; a seeded node has no effect and always gives the same.
uint8_t traits_of(const Node&);

}  // namespace braze::graph
