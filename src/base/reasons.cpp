#include "base/reasons.h"

namespace braze {
namespace {
struct Row {
  std::string_view name, summary, remedy;
};
constexpr Row kRows[] = {
#define BRAZE_REASON(name, text, remedy) {#name, text, remedy},
#include "base/reasons.def"
#undef BRAZE_REASON
};
}  // namespace

std::string_view name(Reason reason) { return kRows[static_cast<size_t>(reason)].name; }
std::string_view summary(Reason reason) { return kRows[static_cast<size_t>(reason)].summary; }
std::string_view remedy(Reason reason) { return kRows[static_cast<size_t>(reason)].remedy; }

}  // namespace braze
