#include <algorithm>
#include <cstring>

#include "symbolic/arena.h"

namespace braze::sym {

namespace {

// Codes of the postfix machine: Kind's numbers for operators; these two push.
constexpr uint8_t kPushConst = static_cast<uint8_t>(Kind::Const), kPushInput = static_cast<uint8_t>(Kind::Symbol);
constexpr size_t kMostDepth = 64;

struct Writer {
  const ExprArena& arena;
  std::span<const Expr> inputs;
  std::vector<std::pair<uint8_t, int64_t>> steps;
  size_t depth = 0, deepest = 0;

  void push(uint8_t code, int64_t value) {
    steps.emplace_back(code, value);
    deepest = std::max(deepest, ++depth);
  }
  void emit(Expr e) {
    Kind k = arena.kind(e);
    auto ops = arena.operands(e);
    if (k == Kind::Const) return push(kPushConst, *arena.as_const(e));
    if (k == Kind::Symbol) {
      auto it = std::ranges::find(inputs, e);
      BRAZE_CHECK(it != inputs.end(), "no value for symbol " + std::string(arena.symbol_name(e)));
      return push(kPushInput, it - inputs.begin());
    }
    emit(ops[0]);
    if (ops.size() == 1) steps.emplace_back(static_cast<uint8_t>(k), 0);
    for (size_t i = 1; i < ops.size(); ++i) {
      emit(ops[i]);
      steps.emplace_back(static_cast<uint8_t>(k), 0);
      --depth;
    }
  }
};

}  // namespace

IntProgram IntProgram::compile(const ExprArena& arena, std::span<const Expr> outputs, std::span<const Expr> inputs) {
  Writer w{arena, inputs, {}};
  for (Expr e : outputs) w.emit(e);
  BRAZE_CHECK(w.deepest <= kMostDepth + outputs.size(), "expression too deep");
  IntProgram p;
  for (auto [code, value] : w.steps) p.steps_.push_back({code, value});
  p.outputs_ = outputs.size();
  p.depth_ = w.deepest;
  return p;
}

void IntProgram::run(const int64_t* inputs, int64_t* outputs) const {
  constexpr size_t kInline = 128;
  int64_t fixed[kInline];
  std::vector<int64_t> large;
  int64_t* base = fixed;
  if (depth_ > kInline) {
    large.resize(depth_);
    base = large.data();
  }
  int64_t* top = base;
  for (const Step& s : steps_) {
    if (s.code == kPushConst) {
      *top++ = s.value;
      continue;
    }
    if (s.code == kPushInput) {
      *top++ = inputs[s.value];
      continue;
    }
    Kind k = static_cast<Kind>(s.code);
    if (k == Kind::Not) {
      top[-1] = !top[-1];
      continue;
    }
    int64_t b = *--top;
    int64_t& a = top[-1];
    switch (k) {
      // What is too large stays too large: numbers that come from data are checked after they were put in.
      case Kind::Add: a = saturating_add(a, b); break;
      case Kind::Mul: a = saturating_mul(a, b); break;
      // A divisor that is not known yet, or wrong, has a check of its own.
      case Kind::FloorDiv: a = b == 0 ? 0 : floor_div(a, b); break;
      case Kind::Mod: a = b == 0 ? 0 : floor_mod(a, b); break;
      case Kind::Min: a = std::min(a, b); break;
      case Kind::Max: a = std::max(a, b); break;
      case Kind::Eq: a = a == b; break;
      case Kind::Ne: a = a != b; break;
      case Kind::Lt: a = a < b; break;
      case Kind::Le: a = a <= b; break;
      case Kind::And: a = a && b; break;
      case Kind::Or: a = a || b; break;
      default: break;
    }
  }
  std::memcpy(outputs, base, outputs_ * sizeof(int64_t));
}

std::string IntProgram::serialize() const {
  std::string out;
  auto put = [&](int64_t v) { out.append(reinterpret_cast<const char*>(&v), 8); };
  put(static_cast<int64_t>(outputs_));
  put(static_cast<int64_t>(depth_));
  for (const Step& s : steps_) {
    put(s.code);
    put(s.value);
  }
  return out;
}

IntProgram IntProgram::deserialize(std::string_view bytes) {
  BRAZE_CHECK(bytes.size() >= 16 && bytes.size() % 16 == 0, "damaged integer program");
  auto get = [&](size_t i) {
    int64_t v;
    std::memcpy(&v, bytes.data() + 8 * i, 8);
    return v;
  };
  IntProgram p;
  p.outputs_ = static_cast<size_t>(get(0));
  p.depth_ = static_cast<size_t>(get(1));
  for (size_t i = 2; i < bytes.size() / 8; i += 2) p.steps_.push_back({static_cast<uint8_t>(get(i)), get(i + 1)});
  return p;
}

}  // namespace braze::sym
