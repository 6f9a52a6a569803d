// Guards over many values at once, in time that grows with their number and not with their pairs.
#pragma once
#include <cstdint>
#include <vector>

#include "capture/guards/guards.h"
#include "launch/storage_range.h"

namespace braze::capture {

// A guard on a group (AllDistinct, FloatHolds) holds for what is in these registers.
bool group_holds(const Guard& guard, const std::vector<uint32_t>& registers, PyObject* const* values);

// No two of these registers hold the same object.
bool all_distinct(const std::vector<uint32_t>& registers, PyObject* const* values);

// The storages of the first `written` tensors share no memory with those of any other.
class StoragesApart {
 public:
  StoragesApart(std::vector<uint32_t> registers, size_t written);
  bool hold(PyObject* const* values);

 private:
  std::vector<uint32_t> registers_;
  size_t written_;
  std::vector<launch::StorageRange> last_;  // for which it held; storages seldom move
};

}  // namespace braze::capture
