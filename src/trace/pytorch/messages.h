// Errors of PyTorch's that are worded otherwise where a call is traced than where it is not. What is asked here is the
// text itself: whether a program that prints it would see what it sees uncompiled.
#pragma once
#include <string_view>

namespace braze::pytorch {

// It names what only tracing has: a symbolic number, a fake's kind, a function of the extension; or it is of a check
// that fakes fail within PyTorch, on the way to an error of its own.
inline bool names_tracing(std::string_view message) {
  for (std::string_view part : {"braze._C.", "SymInt", "SymFloat", "(Meta", "INTERNAL ASSERT FAILED"})
    if (message.find(part) != std::string_view::npos) return true;
  return message.starts_with("Promotion of ");  // operators in place speak of themselves as functions
}

// A leaf that requires a gradient was written in place: of a view of one PyTorch says something else.
inline bool is_of_written_leaf(std::string_view message) {
  return message.starts_with("a leaf Variable that requires grad");
}

}  // namespace braze::pytorch
