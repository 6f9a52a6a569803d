#pragma once
#include <Python.h>

#include <cstdint>

namespace braze::launch {

// Addresses [from, to) of a tensor's storage; empty where it has none, or one without bytes.
struct StorageRange {
  uintptr_t from = 0, to = 0;
  bool empty() const { return from == to; }
  bool operator==(const StorageRange&) const = default;
};
inline bool overlap(StorageRange a, StorageRange b) { return a.from < b.to && b.from < a.to; }

StorageRange storage_range(PyObject* tensor);  // empty for what is no tensor

}  // namespace braze::launch
