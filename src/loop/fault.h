// What kernels may find wrong with the data at run time, with the exception that eager raises for it.
#pragma once
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace braze::loop {

// Rows of loop/faults.def.
enum class Fault : uint8_t {
#define BRAZE_FAULT(name, exception, text) name,
#include "loop/faults.def"
#undef BRAZE_FAULT
};
inline constexpr int kFaults = 0
#define BRAZE_FAULT(name, exception, text) +1
#include "loop/faults.def"
#undef BRAZE_FAULT
    ;

std::string_view name(Fault);
std::optional<Fault> fault_of(std::string_view name);

// One occurrence. For a division the numbers mean nothing.
struct FaultReport {
  enum class Exception : uint8_t { IndexError, RuntimeError };

  Fault fault{};
  int64_t value = 0;  // the index; of faults that name its place: -2^32 * (place + 1) + its lower 32 bits
  int64_t bound = 0;  // size of the dimension
  uint8_t dim = 0;

  Exception exception() const;
  std::string message() const;  // eager's words
};

// How the interpreter reports it.
struct FaultError : std::runtime_error {
  explicit FaultError(const FaultReport& r) : std::runtime_error(r.message()), report(r) {}
  FaultReport report;
};

}  // namespace braze::loop
