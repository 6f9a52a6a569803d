// Parts of an axis that read differently.
#pragma once
#include "loop/loop.h"

namespace braze::schedule {

// A pointwise nest whose last axis reads and chooses otherwise in some of its parts (the borders of a padded image, the
// pieces of what is written slice by slice, a rolled or repeated axis) gets a stage for each part, in which what is the
// same all along is known: which branch a Where takes, where a Min, Max or Mod ends. Nothing happens where a part's
// ends are not numbers, or there are too many.
void split_axis(loop::Program& program, loop::Nest& nest);

}  // namespace braze::schedule
