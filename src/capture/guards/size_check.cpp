#include "capture/guards/size_check.h"

#include <algorithm>

#include "base/check.h"

namespace braze::capture {

SizeCheck::SizeCheck(SizeGuards guards, std::vector<CheckOrder::Place> places)
    : guards_(std::move(guards)), places_(std::move(places)) {
  if (guards_.empty()) return;
  std::vector<sym::Expr> inputs, conditions;
  for (const auto& s : guards_.symbols) inputs.push_back(s.symbol);
  for (const auto& c : guards_.conditions) conditions.push_back(c.condition);
  conditions_ = sym::IntProgram::compile(*guards_.arena, conditions, inputs);
  formulas_ = sym::IntProgram::compile(*guards_.arena, guards_.values, inputs);
  last_symbols_.resize(guards_.symbols.size());
  last_values_.resize(guards_.values.size());
  condition_values_.resize(guards_.conditions.size());
  auto found = std::count_if(places_.begin(), places_.end(), [](const auto& p) { return p.first; });
  BRAZE_CHECK(static_cast<size_t>(found) == guards_.symbols.size(), "a size symbol without a place");
}

bool SizeCheck::hold(PyObject* const* registers, int64_t* integers, GuardFailure& failure) {
  if (places_.empty()) return true;
  int64_t *values = integers, *symbols = integers + guards_.values.size();
  auto fails = [&](GuardFailure::Kind kind, size_t at, int64_t now) {
    failure.kind = kind;
    failure.at = at;
    failure.found = now;
    return false;
  };
  for (size_t i = 0; i < places_.size(); ++i) {
    const CheckOrder::Place& p = places_[i];
    PyObject* o = registers[p.reg];
    if (!o) return fails(GuardFailure::SizePlace, i, 0);
    int64_t v = 0;
    if (p.integer) {
      int overflow = 0;
      if (!PyLong_CheckExact(o)) return fails(GuardFailure::SizePlace, i, 0);
      v = PyLong_AsLongLongAndOverflow(o, &overflow);
      if (overflow) return fails(GuardFailure::SizePlace, i, 0);
    } else {
      v = launch::read_size(o, p.dim);
    }
    if (!p.first) {
      if (v != symbols[p.symbol]) return fails(GuardFailure::SizePlace, i, v);
      continue;
    }
    const sym::Range& r = guards_.symbols[p.symbol].range;
    symbols[p.symbol] = v;
    if (v < r.lo || v > r.hi) return fails(GuardFailure::SizePlace, i, v);
  }
  if (!known_ || !std::equal(last_symbols_.begin(), last_symbols_.end(), symbols)) {
    known_ = false;
    conditions_.run(symbols, condition_values_.data());
    for (size_t i = 0; i < condition_values_.size(); ++i)
      if (!condition_values_[i]) return fails(GuardFailure::SizeCondition, i, 0);
    formulas_.run(symbols, last_values_.data());
    std::copy_n(symbols, last_symbols_.size(), last_symbols_.begin());
    known_ = true;
  }
  std::copy(last_values_.begin(), last_values_.end(), values);
  return true;
}

std::string SizeCheck::describe(const GuardFailure& failure, const int64_t* integers, const Sources& sources) const {
  std::vector<std::string> text = print(guards_, sources);
  if (failure.kind == GuardFailure::SizePlace) return text[failure.at] + ": now " + std::to_string(failure.found);
  std::string out = text[guards_.places.size() + failure.at];
  const int64_t* symbols = integers + guards_.values.size();
  for (size_t i = 0; i < guards_.symbols.size(); ++i)
    if (guards_.arena->contains(guards_.conditions[failure.at].condition, guards_.symbols[i].symbol))
      out += ", " + guards_.arena->print(guards_.symbols[i].symbol) + " is now " + std::to_string(symbols[i]);
  return out;
}

}  // namespace braze::capture
