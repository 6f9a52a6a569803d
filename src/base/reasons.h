// The closed list of reasons for graph breaks and fallbacks; its rows are in reasons.def.
#pragma once
#include <cstdint>
#include <string_view>

namespace braze {

enum class Reason : uint8_t {
#define BRAZE_REASON(name, text, remedy) name,
#include "base/reasons.def"
#undef BRAZE_REASON
};

std::string_view name(Reason reason);
std::string_view summary(Reason reason);
std::string_view remedy(Reason reason);

}  // namespace braze
