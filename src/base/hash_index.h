// For stores that intern their items: finds the ids of items by hash, in one flat table. The items stay in the store.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace braze {

class HashIndex {
 public:
  // The first id inserted under this hash for which `equal(id)` holds, or kNone.
  static constexpr uint32_t kNone = UINT32_MAX;
  template <class Equal>
  uint32_t find(uint64_t hash, Equal&& equal) const {
    if (slots_.empty()) return kNone;
    for (size_t i = hash & mask(); slots_[i].id != kNone; i = (i + 1) & mask())
      if (slots_[i].hash == hash && equal(slots_[i].id)) return slots_[i].id;
    return kNone;
  }

  void insert(uint64_t hash, uint32_t id) {
    if (4 * (used_ + 1) > 3 * slots_.size()) grow();
    put({hash, id});
    ++used_;
  }

  void clear() {
    slots_.clear();
    used_ = 0;
  }

 private:
  struct Slot {
    uint64_t hash = 0;
    uint32_t id = kNone;
  };

  size_t mask() const { return slots_.size() - 1; }
  void put(Slot s) {
    size_t i = s.hash & mask();
    while (slots_[i].id != kNone) i = (i + 1) & mask();
    slots_[i] = s;
  }
  void grow() {
    std::vector<Slot> old(slots_.empty() ? 64 : 2 * slots_.size());
    old.swap(slots_);
    for (const Slot& s : old)
      if (s.id != kNone) put(s);
  }

  std::vector<Slot> slots_;  // a power of two many
  size_t used_ = 0;
};

}  // namespace braze
