// Index expressions as text.
#include "base/check.h"
#include "codegen/cpp/printer.h"
#include "codegen/llvm/integers.h"

namespace braze::codegen::cpp {

using sym::Kind;

std::string literal(int64_t value) {
  if (value == INT64_MIN) return "(-9223372036854775807 - 1)";
  return value < 0 ? "(" + std::to_string(value) + ")" : std::to_string(value);
}

bool Printer::varies(Expr e) const {
  if (arena_.kind(e) == Kind::Const) return false;
  if (arena_.kind(e) == Kind::Symbol) {
    if (vector_ && *vector_ == e) return true;
    auto it = symbols_.find(e.id);
    return it != symbols_.end() && it->second.vec;
  }
  for (Expr o : arena_.operands(e))
    if (varies(o)) return true;
  return false;
}

std::optional<int64_t> Printer::step(Expr e) const {
  return ir::lane_step(arena_, e,
                       {vector_, shape_.group, shape_.group, [this](Expr x) { return varies(x); },
                        [](Expr) { return std::optional<int64_t>(); }});
}

std::string Printer::index(Expr e, bool of_lane) const {
  if (auto c = arena_.as_const(e)) return literal(*c);
  if (arena_.kind(e) == Kind::Symbol) {
    auto it = symbols_.find(e.id);
    BRAZE_CHECK(it != symbols_.end(), "unbound symbol " + arena_.print(e));
    if (of_lane && vector_ && *vector_ == e) return "(" + it->second.text + " + lane)";
    return of_lane && it->second.vec ? "lane_of(" + it->second.text + ", lane)" : it->second.text;
  }
  auto ops = arena_.operands(e);
  auto join = [&](const char* sign) {
    std::string out;
    for (Expr o : ops) out += (out.empty() ? "(" : sign) + index(o, of_lane);
    return out + ")";
  };
  auto call = [&](const std::string& function) {
    std::string out;
    for (Expr o : ops) {
      std::string text = index(o, of_lane);
      out = out.empty() ? "int64_t(" + text + ")" : function + "(" + out + ", int64_t(" + text + "))";
    }
    return out;
  };
  auto compare = [&](const char* sign) { return "int64_t" + join(sign); };
  switch (arena_.kind(e)) {
    case Kind::Add: return join(" + ");
    case Kind::Mul: return join(" * ");
    case Kind::FloorDiv:
    case Kind::Mod: {
      bool div = arena_.kind(e) == Kind::FloorDiv;
      auto d = arena_.as_const(ops[1]);
      if (arena_.range(ops[0]).lo >= 0 && d && *d > 0) return join(div ? " / " : " % ");
      return call(div ? "floor_quotient_of" : "floor_rest_of");
    }
    case Kind::Min: return call("least");
    case Kind::Max: return call("most");
    case Kind::Eq: return compare(" == ");
    case Kind::Ne: return compare(" != ");
    case Kind::Lt: return compare(" < ");
    case Kind::Le: return compare(" <= ");
    case Kind::And: return join(" & ");
    case Kind::Or: return join(" | ");
    case Kind::Not: return "(1 - " + index(ops[0], of_lane) + ")";
    default: throw InternalError("no such expression");
  }
}

std::string Printer::each(Expr e) const { return "[&](int64_t lane) { return " + index(e, true) + "; }"; }

std::string Printer::lane_numbers(Expr e) const {
  if (!varies(e)) return "int64_t(" + index(e) + ")";
  if (auto s = step(e)) return "ramp<int64_t>(" + lanes_ + ", " + index(e) + ", " + literal(*s) + ")";
  return "make<int64_t>(" + lanes_ + ", " + each(e) + ")";
}

}  // namespace braze::codegen::cpp
