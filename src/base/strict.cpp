#include "base/strict.h"

#include <cstdlib>
#include <string_view>

namespace braze {

bool strict() {
  const char* v = std::getenv("BRAZE_STRICT");
  return v && *v && std::string_view(v) != "0";
}

}  // namespace braze
