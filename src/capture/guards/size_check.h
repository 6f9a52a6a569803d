// Sizes and integers that stay open, checked: read where they are found, conditions on them, and what is computed from
// them.
#pragma once
#include <string>
#include <vector>

#include "capture/guards/check_order.h"

namespace braze::capture {

class SizeCheck {
 public:
  SizeCheck(SizeGuards guards, std::vector<CheckOrder::Place> places);

  // Integers that a check needs room for: the values first, then the symbols.
  size_t num_integers() const { return guards_.values.size() + guards_.symbols.size(); }
  bool hold(PyObject* const* registers, int64_t* integers, GuardFailure& failure);
  std::string describe(const GuardFailure& failure, const int64_t* integers, const Sources& sources) const;
  const SizeGuards& guards() const { return guards_; }

 private:
  SizeGuards guards_;
  std::vector<CheckOrder::Place> places_;
  sym::IntProgram conditions_, formulas_;
  // Of the symbols that were met last: sizes seldom change from call to call. No other code runs between reading and
  // writing these.
  std::vector<int64_t> last_symbols_, last_values_, condition_values_;
  bool known_ = false;
};

}  // namespace braze::capture
