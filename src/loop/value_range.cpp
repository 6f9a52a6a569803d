#include "loop/value_range.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "loop/analysis.h"

namespace braze::loop {
namespace {

constexpr double kExact = 1 << 24;  // integers up to here are exact in every float that is computed with

// Rounding keeps the order of numbers.
ValueRange rounded(ValueRange r, DType type) {
  if (type != DType::F32) return r;
  return {static_cast<float>(r.lo), static_cast<float>(r.hi)};
}

std::optional<ValueRange> cast(ValueRange r, DType from, DType to) {
  if (is_floating(to)) return rounded(r, to);
  if (to != DType::I32 && to != DType::I64) return std::nullopt;
  if (is_floating(from)) r = {std::trunc(r.lo), std::trunc(r.hi)};
  return r;  // below kExact: it fits
}

// Ends that are known; of integers that depend on data a Min or Max gives one.
struct Ends {
  std::optional<double> lo, hi;
};
// Each value of a nest is looked at once: what is computed from it may name it many times.
class Ranges {
 public:
  Ranges(const Program& program, const Nest& nest) : program_(program), nest_(nest) {}

  std::optional<ValueRange> of(ValId v) {
    const Ends e = ends(v);
    if (!e.lo || !e.hi) return std::nullopt;
    return ValueRange{*e.lo, *e.hi};
  }

 private:
  Ends ends(ValId v) {
    if (auto known = known_.find(v.index); known != known_.end()) return known->second;
    return known_[v.index] = find_ends(v);
  }

  std::optional<ValueRange> of_op(const LoopOp& op) {
    auto arg = [&](size_t i) { return of(op.args[i]); };
    const bool known_type =
        op.dtype == DType::F32 || op.dtype == DType::F64 || op.dtype == DType::I32 || op.dtype == DType::I64;
    if (!known_type) return std::nullopt;
    switch (op.code) {
      case OpCode::Const: {
        const double n = is_floating(op.dtype) ? op.number : static_cast<double>(op.integer);
        if (std::isnan(n)) return std::nullopt;
        return ValueRange{n, n};
      }
      case OpCode::Index: {
        const sym::Range r = program_.arena->range(op.index);
        return rounded({static_cast<double>(r.lo), static_cast<double>(r.hi)}, op.dtype);
      }
      case OpCode::Cast: {
        auto x = arg(0);
        auto from = dtype_of(nest_, op.args[0]);
        return x && from ? cast(*x, *from, op.dtype) : std::nullopt;
      }
      case OpCode::Floor:
      case OpCode::Ceil: {
        auto x = arg(0);
        if (!x) return std::nullopt;
        const bool down = op.code == OpCode::Floor;
        return ValueRange{down ? std::floor(x->lo) : std::ceil(x->lo), down ? std::floor(x->hi) : std::ceil(x->hi)};
      }
      case OpCode::Min:
      case OpCode::Max: {
        auto a = arg(0), b = arg(1);
        const bool least = op.code == OpCode::Min;
        if (!a || !b) return std::nullopt;
        return least ? ValueRange{std::min(a->lo, b->lo), std::min(a->hi, b->hi)}
                     : ValueRange{std::max(a->lo, b->lo), std::max(a->hi, b->hi)};
      }
      case OpCode::Add:
      case OpCode::Sub:
      case OpCode::Mul: {
        auto a = arg(0), b = arg(1);
        if (!a || !b) return std::nullopt;
        if (op.code == OpCode::Add) return rounded({a->lo + b->lo, a->hi + b->hi}, op.dtype);
        if (op.code == OpCode::Sub) return rounded({a->lo - b->hi, a->hi - b->lo}, op.dtype);
        const double corners[] = {a->lo * b->lo, a->lo * b->hi, a->hi * b->lo, a->hi * b->hi};
        return rounded({*std::min_element(corners, corners + 4), *std::max_element(corners, corners + 4)}, op.dtype);
      }
      default: return std::nullopt;
    }
  }

  Ends find_ends(ValId v) {
    const LoopOp* op = op_of(nest_, v);
    if (!op) return {};
    if (auto r = of_op(*op)) {
      if (std::max(std::abs(r->lo), std::abs(r->hi)) > kExact) return {};
      return {r->lo, r->hi};
    }
    if (is_floating(op->dtype) || (op->code != OpCode::Min && op->code != OpCode::Max)) return {};
    const Ends a = ends(op->args[0]), b = ends(op->args[1]);
    auto both = [](std::optional<double> x, std::optional<double> y, bool least) -> std::optional<double> {
      if (!x || !y) return std::nullopt;
      return least ? std::min(*x, *y) : std::max(*x, *y);
    };
    auto either = [](std::optional<double> x, std::optional<double> y, bool least) {
      if (!x || !y) return x ? x : y;
      return std::optional(least ? std::min(*x, *y) : std::max(*x, *y));
    };
    if (op->code == OpCode::Min) return {both(a.lo, b.lo, true), either(a.hi, b.hi, true)};
    return {either(a.lo, b.lo, false), both(a.hi, b.hi, false)};
  }

  const Program& program_;
  const Nest& nest_;
  std::unordered_map<uint32_t, Ends> known_;
};

}  // namespace

std::optional<ValueRange> value_range(const Program& program, const Nest& nest, ValId value) {
  return Ranges(program, nest).of(value);
}

bool is_inside(const Program& program, const Nest& nest, const LoopOp& op) {
  auto bound = program.arena->as_const(op.bound);
  auto r = bound ? value_range(program, nest, op.args[0]) : std::nullopt;
  return r && r->lo >= 0 && r->hi < static_cast<double>(*bound);
}

}  // namespace braze::loop
