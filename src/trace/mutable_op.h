// Custom operators that write to their arguments. PyTorch's functionalisation has no form of them that does not; while
// graphs are recorded they have one: a node that works on copies, which are results after its own.
#pragma once

namespace braze::trace {

// From now on, operators that libraries define are known. Once, at import.
void watch_operators();

// While it lives, calls on the fakes of a recorder take that form. Thread-safe; may nest.
class FunctionalForms {
 public:
  FunctionalForms();
  ~FunctionalForms();
  FunctionalForms(const FunctionalForms&) = delete;
  FunctionalForms& operator=(const FunctionalForms&) = delete;
};

}  // namespace braze::trace
