// Sums over windows of a row (loop/window.h): a thread has a strip of neighbouring points, and what several of them
// want is read and computed once.
#include "loop/window.h"
#include "base/check.h"
#include "codegen/nvptx/emitter.h"
#include "loop/analysis.h"

namespace braze::codegen::nvptx {

using loop::Axis;
using loop::OpCode;
using loop::Stage;

namespace {

// An op with what it is made of; equal keys have equal values.
struct Key {
  OpCode code{};
  DType dtype{};
  uint32_t buffer = 0, index = 0;
  int64_t constant = 0;
  std::array<uint32_t, 3> args{};
  auto operator<=>(const Key&) const = default;
};

}  // namespace

// Adds to the sums (per Reduce of the stage, point and lane) what the stage says of each point and tap. `points`: what
// stands for the variable of the strip's axis, of each.
void Emitter::run_taps(const Stage& stage, const std::vector<std::pair<Expr, Expr>>& points, const Axis& tap,
                       Values& sums) {
  std::map<Key, std::pair<uint32_t, Lanes>> known;
  std::vector<uint32_t> numbers(nest_.values, 0);  // of each value of the stage, for the point and tap at hand
  const auto lanes = static_cast<size_t>(flight_.lanes);
  for (size_t p = 0; p < points.size(); ++p)
    for (int64_t t = 0; t < *arena_.as_const(tap.extent); ++t) {
      const std::pair<Expr, Expr> here[] = {points[p], {tap.var, arena_.constant(t)}};
      size_t reduces = 0;
      for (const LoopOp& op : stage.ops) {
        if (op.code == OpCode::Reduce) {
          // A product goes into the sum without being rounded in between.
          const LoopOp* product = loop::op_of(nest_, op.args[0]);
          const bool fused = product && product->code == OpCode::Mul && product->dtype == DType::F32;
          const Lanes& x = values_[(fused ? product->args[0] : op.args[0]).index];
          const Lanes* y = fused ? &values_[product->args[1].index] : nullptr;
          for (size_t l = 0; l < lanes; ++l) {
            Value*& sum = sums[(reduces * points.size() + p) * lanes + l];
            auto term = [&](const Lanes& v) {
              return ir::emit_cast(vb_, v.at(static_cast<int>(l)), v.dtype, DType::F32);
            };
            sum = y ? vb_.fma(term(x), term(*y), sum) : B.CreateFAdd(sum, term(x));
          }
          ++reduces;
          continue;
        }
        LoopOp own = op;
        Key key{op.code, op.dtype, 0, 0, op.code == OpCode::Const ? op.integer : 0, {}};
        if (op.code == OpCode::Load || op.code == OpCode::Index) {
          own.index = arena_.substitute(op.index, here);
          key.index = own.index.id;
          if (op.code == OpCode::Load) key.buffer = op.buffer.index;
        }
        for (size_t i = 0; i < static_cast<size_t>(loop::arity(op.code)); ++i) key.args[i] = numbers[op.args[i].index];
        auto [it, fresh] = known.try_emplace(key);
        if (fresh) {
          emit_op(own);
          it->second = {static_cast<uint32_t>(known.size()), values_[op.result.index]};
        }
        numbers[op.result.index] = it->second.first;
        values_[op.result.index] = it->second.second;
      }
    }
}

void Emitter::run_windows() {
  const loop::Window window = *loop::window_of(program_, nest_);
  const Stage& stage = nest_.stages[0];
  const int64_t points = shape_.copies;
  std::vector<Axis> axes = nest_.outer;
  const Axis strip = axes[window.strip];
  Axis& strips = axes[window.strip];
  strips.extent = arena_.constant((window.points + points - 1) / points);
  strips.var = fresh("w", strips.extent);
  std::vector<Axis> rows(stage.axes.begin(), stage.axes.end() - 1);
  at_own_point(axes, shape_.vector, [&] {
    // The last strip of a row begins where all of it is in the row; its first points may be another's.
    const bool whole = window.points % points == 0;
    Expr start = arena_.mul(strips.var, arena_.constant(points));
    if (!whole) {
      Expr first = fresh("f", arena_.constant(window.points - points + 1));
      Lanes at;
      at.v.push_back(emit(arena_.min(start, arena_.constant(window.points - points)), 0));
      bind(first, std::move(at), true);
      start = first;
    }
    std::vector<std::pair<Expr, Expr>> of_strip;
    for (int64_t p = 0; p < points; ++p) of_strip.emplace_back(strip.var, arena_.add(start, arena_.constant(p)));
    size_t reduces = 0;
    for (const LoopOp& op : stage.ops) reduces += op.code == OpCode::Reduce;
    const size_t each = static_cast<size_t>(points) * static_cast<size_t>(flight_.lanes);
    Values sums(reduces * each, vb_.num(vb_.f32(), 0.0));
    std::function<void(size_t)> over = [&](size_t row) {
      if (row == rows.size()) {
        run_taps(stage, of_strip, stage.axes.back(), sums);
        return;
      }
      sums = loop(B.getInt32(0), emit(rows[row].extent, 0, false), B.getInt32(1), sums, [&](Value* at, Values current) {
        Lanes v;
        v.v.push_back(at);
        bind(rows[row].var, std::move(v), true);
        sums = std::move(current);
        over(row + 1);
        return sums;
      });
    };
    over(0);
    for (int64_t p = 0; p < points; ++p) {
      Expr place = of_strip[static_cast<size_t>(p)].second;
      Value* at = emit(place, 0);
      Value* own = whole ? nullptr : B.CreateICmpSGE(at, emit(arena_.mul(strips.var, arena_.constant(points)), 0));
      if_then(own, [&] {
        Lanes v;
        v.v.push_back(at);
        bind(strip.var, std::move(v), true);
        size_t reduce = 0;
        for (const LoopOp& op : stage.ops) {
          if (op.code != OpCode::Reduce) continue;
          Lanes sum;
          sum.dtype = DType::F32;
          auto* first = sums.data() + reduce++ * each + static_cast<size_t>(p * flight_.lanes);
          sum.v.append(first, first + flight_.lanes);
          values_[op.result.index] = std::move(sum);
        }
        for (size_t s = 1; s < nest_.stages.size(); ++s) run_stage(nest_.stages[s]);
      });
    }
  });
}

}  // namespace braze::codegen::nvptx
