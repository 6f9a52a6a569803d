// What one check of guards fetched and computed. It lies on the caller's stack: a check may run code of the user's (the
// hash and equality of keys in a dict), which may check the same guards again, in a nested call or in another thread.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>

#include "capture/cpython/ref.h"

namespace braze::capture {

struct Guard;

// Why a check failed.
struct GuardFailure {
  enum Kind : uint8_t { None, GlobalState, Value, SizePlace, SizeCondition, Gone, Unsettled };
  Kind kind = None;
  const Guard* guard = nullptr;  // Value
  Ref value;                     // Value: what was found, nullptr for nothing
  size_t at = 0;                 // SizePlace, SizeCondition: which
  int64_t found = 0;             // SizePlace: the size
};

class GuardValues {
 public:
  GuardValues() = default;
  ~GuardValues() { release(); }
  GuardValues(const GuardValues&) = delete;
  GuardValues& operator=(const GuardValues&) = delete;

  // After a check that held: one object per source that GuardProgram::compile was to fetch, held here; nullptr where
  // nothing was.
  PyObject* const* values() const { return registers_; }
  // The values of SizeGuards::values.
  const int64_t* sizes() const { return integers_; }
  const GuardFailure& failure() const { return failure_; }
  // Gives up what is held. It may run code of the user's.
  void clear() {
    release();
    failure_ = {};
  }

 private:
  friend class GuardProgram;
  // Empty registers, each with room for a reference that is owned here.
  void reset(size_t registers, size_t integers) {
    clear();
    if (registers > kInline && registers > room_)
      more_ = std::make_unique_for_overwrite<PyObject*[]>(room_ = registers);
    registers_ = registers > kInline ? more_.get() : inline_;
    std::fill_n(registers_, registers, nullptr);
    num_registers_ = registers;
    if (integers > kInlineIntegers && integers > integer_room_)
      more_integers_ = std::make_unique<int64_t[]>(integer_room_ = integers);
    integers_ = integers > kInlineIntegers ? more_integers_.get() : inline_integers_;
  }
  void release() {
    size_t n = num_registers_;
    num_registers_ = 0;
    for (size_t i = 0; i < n; ++i) Py_XDECREF(registers_[i]);
  }
  static constexpr size_t kInline = 256, kInlineIntegers = 32;
  PyObject** registers_ = inline_;
  int64_t* integers_ = inline_integers_;
  size_t num_registers_ = 0, room_ = 0, integer_room_ = 0;
  GuardFailure failure_;
  std::unique_ptr<PyObject*[]> more_;
  std::unique_ptr<int64_t[]> more_integers_;
  int64_t inline_integers_[kInlineIntegers];
  PyObject* inline_[kInline];
};

}  // namespace braze::capture
