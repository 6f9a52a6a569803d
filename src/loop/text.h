// Spellings that print.cpp and parse.cpp share.
#pragma once
#include <cctype>
#include <string>
#include <string_view>

#include "loop/loop.h"

namespace braze::loop::text {

inline std::string lower(std::string_view s) {
  std::string r(s);
  for (char& c : r) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return r;
}

inline constexpr const char* kBufferKinds[] = {"input", "constant", "temp", "output", "local"};
inline constexpr const char* kVectorNames[] = {"none", "outer", "inner"};
inline constexpr const char* kDeviceNames[] = {"cpu", "cuda", "meta", "other"};
inline constexpr const char* kSymbolKinds[] = {"size", "unbacked", "loop", "indirect"};

}  // namespace braze::loop::text
