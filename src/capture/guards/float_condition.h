// What a program decided by floats that stay open: a comparison of what it computed from them.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "capture/guards/source.h"

namespace braze::capture {

// In the order of evaluation, on a stack: each step pushes a number, or combines the two on top. The last one is a
// comparison.
struct FloatCondition {
  enum class Op : uint8_t {
    Read,
    Constant,
    Add,
    Subtract,
    Multiply,
    Divide,
    Less,
    LessEqual,
    Equal,
    NotEqual,
    Greater,
    GreaterEqual
  };
  struct Step {
    Op op;
    uint32_t read = 0;  // Read: which of `sources`
    double value = 0;   // Constant
    bool operator==(const Step&) const = default;
  };
  std::vector<Step> steps;
  std::vector<SourceId> sources;
  bool expected = false;

  // As Python computes: in doubles, each result rounded. `values`: per source. Nothing where one is no float.
  std::optional<bool> evaluate(PyObject* const* values) const;
  std::string print(const Sources& all) const;
  bool operator==(const FloatCondition&) const = default;
};

}  // namespace braze::capture
