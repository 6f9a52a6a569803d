#include "base/strict.h"

#include <cstdlib>
#include <string_view>

namespace braze {

bool is_set(const char* variable) {
  const char* v = std::getenv(variable);
  return v && *v && std::string_view(v) != "0";
}

bool strict() { return is_set("BRAZE_STRICT"); }

bool verifying() {
#ifdef __OPTIMIZE__
  static const bool on = is_set("BRAZE_VERIFY");
  return on;
#else
  return true;
#endif
}

}  // namespace braze
