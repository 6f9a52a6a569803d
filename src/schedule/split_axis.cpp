#include "schedule/split_axis.h"

#include <algorithm>
#include <map>
#include <optional>

#include "loop/analysis.h"
#include "schedule/index.h"
#include "schedule/normalise.h"

namespace braze::schedule {
namespace {

using loop::arity;
using loop::LoopOp;
using loop::Nest;
using loop::OpCode;
using loop::Stage;
using loop::ValId;
using sym::Kind;

constexpr int64_t kShortest = 16;  // points of an axis that is worth it
constexpr size_t kMostParts = 8;
constexpr int64_t kFew = 3;  // points of a part that are computed one by one: a loop over them costs more than they do
constexpr int64_t kSerial = 1 << 15;   // points that one thread may do
constexpr int64_t kRowsOfThreads = 8;  // rows, if there are more: they are what threads share out

// d(t) = at + step * t, of the part's point t.
struct Ramp {
  int64_t at = 0, step = 0;
  int64_t operator()(int64_t t) const { return at + step * t; }
};
int sign(int64_t n) { return (n > 0) - (n < 0); }

// The first point before `length` at which the ramp's sign makes f other than at the start.
template <class F>
std::optional<int64_t> first_change(const Ramp& d, int64_t length, F&& f) {
  if (!d.step) return std::nullopt;
  // The sign changes on reaching the root, and behind it.
  const int64_t s = d.step > 0 ? d.step : -d.step, c = d.step > 0 ? -d.at : d.at;  // root: c / s
  const int64_t root = c >= 0 ? c / s : -((-c + s - 1) / s);
  for (int64_t t : {root, root + 1})
    if (t > 0 && t < length && f(sign(d(t))) != f(sign(d(0)))) return t;
  return std::nullopt;
}

// Where the ramp goes from one sign to the other. What is zero there belongs to either side: to the longer one.
std::optional<int64_t> crossing(const Ramp& d, int64_t length) {
  if (sign(d(0)) * sign(d(length - 1)) >= 0) return std::nullopt;
  auto first = first_change(d, length, [](int s) { return s; });
  return d(*first) == 0 && *first > length / 2 ? *first + 1 : *first;
}

bool compares(OpCode code, int sign_of_difference) {
  switch (code) {
    case OpCode::Eq: return sign_of_difference == 0;
    case OpCode::Ne: return sign_of_difference != 0;
    case OpCode::Lt: return sign_of_difference < 0;
    case OpCode::Le: return sign_of_difference <= 0;
    case OpCode::Gt: return sign_of_difference > 0;
    default: return sign_of_difference >= 0;
  }
}

// The points lo .. hi-1 of the axis, and what is computed there.
struct Part {
  int64_t lo = 0, hi = 0;
  Axis axis;
  std::vector<LoopOp> ops;
  int64_t length() const { return hi - lo; }
};

class Splitter {
 public:
  Splitter(sym::ExprArena& arena, const Nest& nest) : arena_(arena), nest_(nest), last_(nest.outer.back()) {}

  // Empty: there is nothing to gain.
  std::vector<Part> parts(int64_t extent) {
    if (!split(0, extent) || done_.size() < 2) return {};
    return std::move(done_);
  }

 private:
  bool split(int64_t lo, int64_t hi) {
    Part part = specialise(lo, hi);
    auto cut = part.length() > 1 ? first_cut(part) : std::nullopt;
    if (cut) return split(lo, lo + *cut) && split(lo + *cut, hi);
    if (part.length() <= kFew)
      for (int64_t point = lo; point < hi; ++point) done_.push_back(specialise(point, point + 1));
    else
      done_.push_back(std::move(part));
    return ++parts_ <= kMostParts;
  }

  Part specialise(int64_t lo, int64_t hi) {
    Part part{lo, hi, fresh_axis(arena_, arena_.constant(hi - lo)), {}};
    Stage stage{{}, nest_.stages[0].ops};
    Expr from = arena_.constant(lo);
    substitute(arena_, stage, {{last_.var, hi - lo == 1 ? from : arena_.add(part.axis.var, from)}});
    fold(part, stage.ops);
    part.ops = std::move(stage.ops);
    drop_unused(part.ops);
    return part;
  }

  // What a value is as an integer expression.
  std::optional<Expr> integer(ValId v) const {
    const LoopOp* op = v.index < defined_.size() ? defined_[v.index] : nullptr;
    if (!op || is_floating(op->dtype)) return std::nullopt;
    if (op->code == OpCode::Index) return op->index;
    if (op->code == OpCode::Const) return arena_.constant(op->integer);
    return std::nullopt;
  }
  std::optional<Ramp> ramp(const Part& part, Expr e) const {
    auto f = arena_.affine_in(e, part.axis.var);
    if (!f) return std::nullopt;
    auto at = arena_.as_const(f->rest), step = arena_.as_const(f->coefficient);
    if (!at || !step) return std::nullopt;
    return Ramp{*at, *step};
  }
  // The difference of what is compared.
  std::optional<Ramp> difference(const Part& part, const LoopOp& op) const {
    auto a = integer(op.args[0]), b = integer(op.args[1]);
    if (!a || !b) return std::nullopt;
    return ramp(part, arena_.sub(*a, *b));
  }

  void note(std::vector<LoopOp>& ops) {
    defined_.assign(nest_.values, nullptr);
    for (LoopOp& op : ops)
      if (op.result.valid()) defined_[op.result.index] = &op;
  }
  std::optional<bool> truth(ValId v) const {
    const LoopOp* op = defined_[v.index];
    if (!op || op->code != OpCode::Const || op->dtype != DType::Bool) return std::nullopt;
    return op->integer != 0;
  }

  // Comparisons that are the same all along the part become constants, and what chooses by them a copy.
  void fold(const Part& part, std::vector<LoopOp>& ops) {
    note(ops);
    std::vector<ValId> same_as(nest_.values);
    auto copy = [&](LoopOp& op, ValId of) {
      if (defined_[of.index]->dtype == op.dtype) {
        same_as[op.result.index] = of;
      } else {
        op.code = OpCode::Cast;
        op.args = {of, ValId(), ValId()};
      }
    };
    for (LoopOp& op : ops) {
      for (int i = 0; i < arity(op.code); ++i)
        if (ValId& a = op.args[static_cast<size_t>(i)]; same_as[a.index].valid()) a = same_as[a.index];
      if (loop::is_comparison(op.code)) {
        auto d = difference(part, op);
        auto holds = [&](int s) { return compares(op.code, s); };
        if (d && !first_change(*d, part.length(), holds)) constant(op, holds(sign((*d)(0))));
      } else if (op.code == OpCode::Where) {
        if (auto chosen = truth(op.args[0])) copy(op, op.args[*chosen ? 1 : 2]);
      } else if ((op.code == OpCode::And || op.code == OpCode::Or) && op.dtype == DType::Bool) {
        for (size_t i = 0; i < 2; ++i) {
          auto known = truth(op.args[i]);
          if (!known) continue;
          if (*known == (op.code == OpCode::And))
            copy(op, op.args[1 - i]);
          else
            constant(op, *known);
          break;
        }
      } else if (op.code == OpCode::Not && op.dtype == DType::Bool) {
        if (auto known = truth(op.args[0])) constant(op, !*known);
      }
    }
  }
  static void constant(LoopOp& op, bool value) {
    op.code = OpCode::Const;
    op.args = {};
    op.dtype = DType::Bool;
    op.integer = value;
  }

  void drop_unused(std::vector<LoopOp>& ops) {
    std::vector<char> used(nest_.values, 0);
    std::vector<LoopOp> kept;
    for (size_t i = ops.size(); i-- > 0;) {
      if (ops[i].result.valid() && !used[ops[i].result.index]) continue;
      for (int k = 0; k < arity(ops[i].code); ++k) used[ops[i].args[static_cast<size_t>(k)].index] = 1;
      kept.push_back(ops[i]);
    }
    std::reverse(kept.begin(), kept.end());
    ops = std::move(kept);
  }

  std::optional<int64_t> first_cut(Part& part) {
    note(part.ops);
    std::optional<int64_t> first;
    auto take = [&](std::optional<int64_t> t) {
      if (t && (!first || *t < *first)) first = t;
    };
    for (const LoopOp& op : part.ops) {
      if (has_index(op)) take(cut_of(part, op.index));
      if (!loop::is_comparison(op.code)) continue;
      if (auto d = difference(part, op))
        take(first_change(*d, part.length(), [&](int s) { return compares(op.code, s); }));
    }
    return first;
  }

  std::optional<int64_t> cut_of(const Part& part, Expr e) {
    std::optional<int64_t> first;
    auto take = [&](std::optional<int64_t> t) {
      if (t && (!first || *t < *first)) first = t;
    };
    auto ops = arena_.operands(e);
    const Kind kind = arena_.kind(e);
    for (size_t i = 0; i < ops.size(); ++i) {
      take(cut_of(part, ops[i]));
      if (kind != Kind::Min && kind != Kind::Max) continue;
      for (size_t j = i + 1; j < ops.size(); ++j)
        if (auto d = ramp(part, arena_.sub(ops[i], ops[j]))) take(crossing(*d, part.length()));
    }
    if (kind == Kind::Mod)
      if (auto d = ramp(part, ops[0]), n = ramp(part, ops[1]); d && n && n->step == 0 && n->at > 0 && d->step == 1) {
        int64_t rest = d->at % n->at;
        int64_t whole = n->at - (rest < 0 ? rest + n->at : rest);
        if (whole < part.length()) take(whole);
      }
    return first;
  }

  sym::ExprArena& arena_;
  const Nest& nest_;
  const Axis last_;
  std::vector<LoopOp*> defined_;
  std::vector<Part> done_;
  size_t parts_ = 0;  // with points of one together
};

}  // namespace

void split_axis(loop::Program& p, Nest& n) {
  sym::ExprArena& arena = *p.arena;
  if (n.outer.size() < 2 || n.stages.size() != 1 || !n.stages[0].axes.empty()) return;
  if (n.mapping.vector != loop::Mapping::Vector::Outer || n.mapping.tile) return;
  const Axis last = n.outer.back();
  auto extent = arena.as_const(last.extent);
  if (!extent || *extent < kShortest) return;
  const int64_t points = estimate(arena, volume(arena, n.outer));
  if (points > kSerial && points / *extent < kRowsOfThreads) return;
  for (const LoopOp& op : n.stages[0].ops) {
    if (loop::accumulates(op.code) || op.code == OpCode::Indirect || op.atomic_add) return;
    if (op.code != OpCode::Store) continue;
    auto f = arena.affine_in(op.index, last.var);
    if (!f || !arena.is_const(f->coefficient, 1)) return;
  }
  std::vector<Part> parts = Splitter(arena, n).parts(*extent);
  if (parts.empty()) return;
  const uint32_t values = n.values;
  n.outer.pop_back();
  n.stages.clear();
  for (Part& part : parts) {
    const uint32_t first = values * static_cast<uint32_t>(n.stages.size());
    for (LoopOp& op : part.ops) {
      for (int i = 0; i < arity(op.code); ++i) {
        ValId& a = op.args[static_cast<size_t>(i)];
        a = ValId(a.index + first);
      }
      if (op.result.valid()) op.result = ValId(op.result.index + first);
    }
    n.stages.push_back({part.length() > 1 ? std::vector{part.axis} : std::vector<Axis>(), std::move(part.ops)});
  }
  n.values = values * static_cast<uint32_t>(n.stages.size());
  canonical_names(arena, n);
}

}  // namespace braze::schedule
