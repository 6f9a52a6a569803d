#include "capture/guards/group_guards.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace braze::capture {

using launch::StorageRange;

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
  constexpr size_t kFew = 8;  // up to here pairs are compared sooner than a table is filled
  size_t n = registers.size();
  if (n <= kFew) {
    for (size_t i = 0; i < n; ++i)
      for (size_t k = 0; k < i; ++k)
        if (values[registers[i]] == values[registers[k]]) return false;
    return true;
  }
  // Open addressing, at most half full.
  constexpr size_t kInline = 512;
  size_t size = std::bit_ceil(2 * n);
  PyObject* small[kInline];
  std::vector<PyObject*> large;
  PyObject** table = small;
  if (size > kInline) {
    large.resize(size);
    table = large.data();
  } else {
    std::fill_n(small, size, nullptr);
  }
  bool nothing = false;  // a value that is not there
  for (uint32_t r : registers) {
    PyObject* v = values[r];
    if (!v) {
      if (std::exchange(nothing, true)) return false;
      continue;
    }
    size_t at = (reinterpret_cast<uintptr_t>(v) >> 4) * 0x9E3779B97F4A7C15u >> 32 & (size - 1);
    for (; table[at]; at = (at + 1) & (size - 1))
      if (table[at] == v) return false;
    table[at] = v;
  }
  return true;
}

StoragesApart::StoragesApart(std::vector<uint32_t> registers, size_t written)
    : registers_(std::move(registers)), written_(written) {}

bool StoragesApart::hold(PyObject* const* values) {
  bool moved = last_.empty();
  last_.resize(registers_.size());
  for (size_t i = 0; i < registers_.size(); ++i) {
    StorageRange now = launch::storage_range(values[registers_[i]]);
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
  // By ascending address: what overlaps with one before it starts below where that ends. Storages that are only read
  // may overlap.
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
