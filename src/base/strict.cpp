#include "base/strict.h"

#include <cstdlib>
#include <string_view>

namespace braze {

namespace {

bool is_set(const char* variable) {
  const char* v = std::getenv(variable);
  return v && *v && std::string_view(v) != "0";
}

}  // namespace

bool strict() { return is_set("BRAZE_STRICT"); }
bool verifying() { return is_set("BRAZE_VERIFY"); }

}  // namespace braze
