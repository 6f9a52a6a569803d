// Calls of operators that write to what they are given, on that memory itself.
//
// In the graph such a call works on copies of these operands, which are results of it. Where nothing else reads what an
// operand held, the copy's buffer becomes the operand's own: an operator that fills a fresh tensor, or a launch of a
// kernel, copies nothing. An operand that is an input of the program, which the copy is written back to, is written
// where it is.
//
// A run that fails after that has changed the input, as it would have in eager mode; who runs it is told
// (launch/written_inputs.h).
#pragma once
#include "base/options.h"
#include "loop/loop.h"

namespace braze::schedule {

// Of a program whose items stay in this order.
void write_calls_in_place(loop::Program& program, const Options& options);

}  // namespace braze::schedule
