// What several stages over the same axes compute from the same loads is computed once and kept in a scratch row, where
// it costs more than the row does. (Lowering repeats cheap producers in every reader.)
#pragma once
#include "loop/loop.h"

namespace braze::schedule {

// Adds Local buffers to the program.
void share_rows(loop::Program& program, loop::Nest& nest);

}  // namespace braze::schedule
