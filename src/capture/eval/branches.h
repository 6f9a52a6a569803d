// Both branches of a choice that only the run makes (torch.cond of a tensor): each is evaluated, as a function without
// effects.
#pragma once
#include <vector>

#include "capture/eval/variable.h"

namespace braze::capture {

class Branches {
 public:
  explicit Branches(Translator& tr) : tr_(tr) {}

  // Evaluates both, so that the results of one can be selected: a tuple of two. Throws Unsupported where one of them
  // may not be run in vain, or their results cannot be selected element by element.
  Variable* both(Variable* predicate, Variable* if_true, Variable* if_false, const std::vector<Variable*>& operands);
  // Throws Restart if both branches of something were evaluated: what follows cannot be had with them.
  void refuse(const char* why);

 private:
  Variable* branch(Variable* predicate, bool when, Variable* fn, const std::vector<Variable*>& operands);
  bool selectable(Variable* a, Variable* b);

  Translator& tr_;
  uint64_t first_choice_ = 0;  // the ordinal of the first both()
};

}  // namespace braze::capture
