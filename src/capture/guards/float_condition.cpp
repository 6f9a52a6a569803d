#include "capture/guards/float_condition.h"

#include <cstdio>

namespace braze::capture {

namespace {

using Op = FloatCondition::Op;

double combine(Op op, double a, double b) {
  switch (op) {
    case Op::Add: return a + b;
    case Op::Subtract: return a - b;
    case Op::Multiply: return a * b;
    case Op::Divide: return a / b;
    case Op::Less: return a < b;
    case Op::LessEqual: return a <= b;
    case Op::Equal: return a == b;
    case Op::NotEqual: return a != b;
    case Op::Greater: return a > b;
    case Op::GreaterEqual: return a >= b;
    default: return 0;
  }
}

const char* symbol(Op op) {
  static const char* const names[] = {"", "", " + ", " - ", " * ", " / ", " < ", " <= ", " == ", " != ", " > ", " >= "};
  return names[static_cast<size_t>(op)];
}

std::string text(double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.17g", value);
  return buffer;
}

}  // namespace

std::optional<bool> FloatCondition::evaluate(PyObject* const* values) const {
  constexpr size_t kInline = 16;
  double small[kInline];
  std::vector<double> large;
  double* stack = small;
  if (steps.size() > kInline) {
    large.resize(steps.size());
    stack = large.data();
  }
  size_t depth = 0;
  for (const Step& s : steps) {
    if (s.op == Op::Constant) {
      stack[depth++] = s.value;
    } else if (s.op == Op::Read) {
      PyObject* v = values[s.read];
      if (!v || !PyFloat_CheckExact(v)) return std::nullopt;
      stack[depth++] = PyFloat_AS_DOUBLE(v);
    } else {
      --depth;
      stack[depth - 1] = combine(s.op, stack[depth - 1], stack[depth]);
    }
  }
  return stack[0] != 0;
}

std::string FloatCondition::print(const Sources& all) const {
  std::vector<std::string> stack;
  for (const Step& s : steps) {
    if (s.op == Op::Constant) {
      stack.push_back(text(s.value));
    } else if (s.op == Op::Read) {
      stack.push_back(all.print(sources[s.read]));
    } else {
      std::string right = std::move(stack.back());
      stack.pop_back();
      stack.back() =
          s.op >= Op::Less ? stack.back() + symbol(s.op) + right : "(" + stack.back() + symbol(s.op) + right + ")";
    }
  }
  return expected ? stack[0] : "not " + stack[0];
}

}  // namespace braze::capture
