// Operators of PyTorch by the names that graphs know them by.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string>

namespace braze::trace {

// "ns::name" or "ns::name.overload"; "ns::name.default" is the one without an overload's name. nullopt: there is none.
inline std::optional<c10::OperatorHandle> find_operator(const std::string& name) {
  const size_t dot = name.find('.');
  const std::string base = name.substr(0, dot), overload = dot == std::string::npos ? "" : name.substr(dot + 1);
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  auto op = dispatcher.findSchema({base, overload});
  return op || overload != "default" ? op : dispatcher.findSchema({base, ""});
}

}  // namespace braze::trace
