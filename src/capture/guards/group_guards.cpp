#include "capture/guards/group_guards.h"

#include <algorithm>

namespace braze::capture {

using trace::StorageRange;

bool group_holds(const Guard& guard, const std::vector<uint32_t>& registers, PyObject* const* values) {
  if (guard.kind != GuardKind::FloatHolds) return all_distinct(registers, values);
  constexpr size_t kInline = 16;
  PyObject* small[kInline];
  std::vector<PyObject*> large(registers.size() > kInline ? registers.size() : 0);
  PyObject** found = registers.size() > kInline ? large.data() : small;
  for (size_t i = 0; i < registers.size(); ++i) found[i] = values[registers[i]];
  return guard.floats->evaluate(found) == guard.floats->expected;
}

bool all_distinct(const std::vector<uint32_t>& registers, PyObject* const* values) {
  constexpr size_t kFew = 16;  // up to here pairs are compared sooner than a list is made and sorted
  if (registers.size() <= kFew) {
    for (size_t i = 0; i < registers.size(); ++i)
      for (size_t k = 0; k < i; ++k)
        if (values[registers[i]] == values[registers[k]]) return false;
    return true;
  }
  std::vector<PyObject*> sorted;
  sorted.reserve(registers.size());
  for (uint32_t r : registers) sorted.push_back(values[r]);
  std::sort(sorted.begin(), sorted.end());
  return std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
}

StoragesApart::StoragesApart(std::vector<uint32_t> registers, size_t written) : registers_(std::move(registers)), written_(written) {}

bool StoragesApart::hold(PyObject* const* values) {
  bool moved = last_.empty();
  last_.resize(registers_.size());
  for (size_t i = 0; i < registers_.size(); ++i) {
    StorageRange now = trace::storage_range(values[registers_[i]]);
    moved |= !(now == last_[i]);
    last_[i] = now;
  }
  if (!moved) return true;
  struct Use {
    StorageRange range;
    bool written;
  };
  std::vector<Use> uses;
  uses.reserve(last_.size());
  for (size_t i = 0; i < last_.size(); ++i)
    if (!last_[i].empty()) uses.push_back({last_[i], i < written_});
  std::sort(uses.begin(), uses.end(), [](const Use& a, const Use& b) { return a.range.from < b.range.from; });
  // By ascending address: what overlaps with one before it starts below where that ends. Storages that are only read may overlap.
  uintptr_t read_to = 0, written_to = 0;  // where the storages so far end
  for (const Use& u : uses) {
    if (u.range.from < written_to || (u.written && u.range.from < read_to)) {
      last_.clear();
      return false;
    }
    uintptr_t& end = u.written ? written_to : read_to;
    end = std::max(end, u.range.to);
  }
  return true;
}

}  // namespace braze::capture
