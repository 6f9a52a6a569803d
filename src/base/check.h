// Two kinds of failure, never mixed.
// InternalError: we broke an invariant. Caught at the region's edge, reported with the IR; the region runs eagerly.
// Unsupported:   the user wrote something that this stage does not take; it runs uncompiled, with a named reason.
#pragma once
#include <stdexcept>
#include <string>

#include "base/reasons.h"

namespace braze {

class InternalError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Unsupported : public std::runtime_error {
 public:
  Unsupported(Reason reason, std::string detail);
  Reason reason() const { return reason_; }
  const std::string& detail() const { return detail_; }

 private:
  Reason reason_;
  std::string detail_;
};

[[noreturn]] void fail_check(const char* file, int line, const char* condition, const std::string& message);

}  // namespace braze

#define BRAZE_CHECK(cond, msg)                                        \
  do {                                                                \
    if (!(cond)) ::braze::fail_check(__FILE__, __LINE__, #cond, msg); \
  } while (false)
