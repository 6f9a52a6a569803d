// Work inside one nest after fusion.
#pragma once
#include "loop/loop.h"

namespace braze::schedule {

// Stages over the same axes become one where no Reduce or reordered access stands between them.
void merge_stages(sym::ExprArena& arena, loop::Nest& nest);

// Common subexpressions, loads of what was just stored, unused values. `private_buffers[b]`: a Temp that nobody but
// this nest uses; its stores go once nothing loads it.
void simplify(const loop::Program& program, loop::Nest& nest, const std::vector<char>& private_buffers);

// Private buffers that are still loaded and that each outer point fills for itself become Local.
void make_local(loop::Program& program, loop::Nest& nest, const std::vector<char>& private_buffers);

// A pointwise nest that computes something dear, or looks up a row, once per value of its other axes: its last axis
// becomes an axis of the stages, so that hoist can take that out.
void make_rows(sym::ExprArena& arena, loop::Nest& nest);

// What does not change inside a stage's axes is computed once before it.
void hoist(sym::ExprArena& arena, loop::Nest& nest);

}  // namespace braze::schedule
