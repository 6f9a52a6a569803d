// Words of the graph's text form that print.cpp and parse.cpp share.
#pragma once
#include <string>
#include <string_view>

#include "graph/types.h"

namespace braze::graph::text {

inline constexpr std::string_view kInputKinds[] = {"argument", "parameter", "buffer", "constant"};  // InputKind
inline constexpr std::string_view kSymbolKinds[] = {"size", "unbacked", "loop", "indirect"};        // sym::SymbolKind
inline constexpr std::string_view kKeeps[] = {"either", "must_save", "prefer_save", "prefer_recompute",
                                              "must_recompute"};                      // Keep
inline constexpr std::string_view kDeviceNames[] = {"cpu", "cuda", "meta", "other"};  // DeviceType

std::string quoted(std::string_view);
std::string number(double);  // always reads back as a double, never as an integer
std::string device(Device);

}  // namespace braze::graph::text
