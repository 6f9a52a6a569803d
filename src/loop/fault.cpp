#include "loop/fault.h"

namespace braze::loop {
namespace {

using Exception = FaultReport::Exception;

struct Row {
  std::string_view name;
  Exception exception;
  std::string_view text;
};
constexpr Row kRows[] = {
#define BRAZE_FAULT(name, exception, text) {#name, Exception::exception, text},
#include "loop/faults.def"
#undef BRAZE_FAULT
};

const Row& row(Fault f) { return kRows[static_cast<int>(f)]; }

}  // namespace

std::string_view name(Fault f) { return row(f).name; }

std::optional<Fault> fault_of(std::string_view name) {
  for (int i = 0; i < kFaults; ++i)
    if (kRows[i].name == name) return static_cast<Fault>(i);
  return std::nullopt;
}

Exception FaultReport::exception() const { return row(fault).exception; }

std::string FaultReport::message() const {
  std::string_view text = row(fault).text;
  std::string out;
  const bool placed = text.find("{p}") != std::string_view::npos;
  const int64_t place = -(value >> 32) - 1, index = placed ? static_cast<int32_t>(value & 0xffffffff) : value;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '{') {
      out += text[i];
      continue;
    }
    char what = text[i + 1];
    out += std::to_string(what == 'v' ? index : what == 'n' ? bound : what == 'p' ? place : dim);
    i += 2;
  }
  return out;
}

}  // namespace braze::loop
