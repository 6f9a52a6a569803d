#include "base/check.h"

#include <cstring>

namespace braze {

Unsupported::Unsupported(Reason reason, std::string detail)
    : std::runtime_error(std::string(summary(reason)) + ": " + detail), reason_(reason), detail_(std::move(detail)) {}

void fail_check(const char* file, int line, const char* condition, const std::string& message) {
  const char* base = std::strrchr(file, '/');
  throw InternalError(std::string(base ? base + 1 : file) + ":" + std::to_string(line) + ": " + condition + ": " +
                      message);
}

}  // namespace braze
