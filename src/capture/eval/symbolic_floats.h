// Floats that vary from call to call: operands of the compiled code in place of parts of it; and numbers that each run
// draws.
#pragma once
#include <vector>

#include "capture/eval/variable.h"

namespace braze::capture {

class TensorVariable;

class SymbolicFloats {
 public:
  explicit SymbolicFloats(Translator& tr) : tr_(tr) {}

  // A float that nothing is known of yet, or what was computed from such, as a tensor that each call fills. nullptr: it
  // is to be looked at.
  Variable* varying_number(Variable* v);
  // Numbers of a pseudo-random generator of Python's or NumPy's: `call` is a tuple of a method of it, arguments, and
  // keyword arguments or None. Each run of the entry makes these calls first, in the order of the capture. A tensor of
  // the type and size of `example` (a real one): numbers are of type float64 or int64.
  TensorVariable* draw(Ref call, Ref example);
  // a op b, -v of such that nobody looked at, computed when somebody does. nullptr: not of that kind.
  Variable* defer_arithmetic(int op, Variable* a, Variable* b);
  Variable* defer_negation(Variable* v);
  // a op b of one beside a tensor; nullptr: not of that kind.
  Variable* varying_operand(int op, Variable* a, Variable* b);
  Variable* varying_comparison(int op, Variable* a, Variable* b);  // the same
  // a op b of such and constants: what it is in this call, with a guard that it is so. nullptr: they are to be looked
  // at.
  Variable* decided_comparison(int op, Variable* a, Variable* b);
  // A float that nothing is known of yet, or that was computed from such, or that only the run knows.
  bool is_open_float(Variable* v);
  // One as an operand beside the tensor, in operators that take tensors where they take numbers; nullptr: it is to be
  // looked at.
  Variable* number_beside(Variable* v, Variable* tensor);

  // The floats that are operands: where each call finds its value, and the tensor that stands for it (an input of the
  // graph).
  struct Number {
    SourceId source;
    Ref tensor;
    Variable* variable;
  };
  const std::vector<Number>& numbers() const { return numbers_; }

 private:
  Translator& tr_;
  std::vector<Number> numbers_;
};

}  // namespace braze::capture
