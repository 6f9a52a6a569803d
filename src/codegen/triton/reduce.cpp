// Reductions: of all points of a stage at once, or of the points of each turn into running values that meet at the end.
#include <cmath>
#include <limits>

#include "base/check.h"
#include "codegen/triton/printer.h"
#include "loop/analysis.h"

namespace braze::codegen::triton {

using loop::ReduceKind;

namespace {

// Sums and products of bool are choices of its values.
ReduceKind on_bool(ReduceKind k, DType dtype) {
  if (dtype != DType::Bool) return k;
  switch (k) {
    case ReduceKind::Sum:
    case ReduceKind::Max: return ReduceKind::Any;
    case ReduceKind::Prod:
    case ReduceKind::Min: return ReduceKind::All;
    default: return k;
  }
}

// What leaves a value of `dtype` as it is.
std::string identity(ReduceKind kind, DType dtype) {
  bool fp = is_floating(dtype);
  auto extreme = [&](bool lowest) {
    if (fp) return literal(dtype, lowest ? -INFINITY : INFINITY);
    if (dtype == DType::Bool || dtype == DType::U8)
      return std::string(lowest ? "0" : dtype == DType::Bool ? "1" : "255");
    int bits = 8 * size_of(dtype) - 1;
    int64_t most = bits == 63 ? INT64_MAX : (int64_t{1} << bits) - 1;
    return lowest ? std::to_string(-most - 1) : std::to_string(most);
  };
  switch (loop::reduce_row(kind).start) {
    case loop::ReduceStart::Zero: return fp ? "0.0" : "0";
    case loop::ReduceStart::One: return fp ? "1.0" : "1";
    case loop::ReduceStart::Lowest: return extreme(true);
    case loop::ReduceStart::Highest: return extreme(false);
  }
  throw InternalError("no such reduction");
}

}  // namespace

void Printer::begin_reductions(const loop::Stage& stage, bool at_once) {
  accumulators_.clear();
  auto running = [&](const std::string& value, const std::string& type) {
    return assign("acc", "tl.full(" + shape() + ", " + value + ", " + type + ")");
  };
  for (const LoopOp& op : stage.ops) {
    if (op.code != loop::OpCode::Reduce) continue;
    Accumulator a;
    a.op = &op;
    a.operand = loop::dtype_of(nest_, op.args[0]).value_or(a.operand);
    ReduceKind kind = on_bool(op.reduce, op.dtype);
    if (is_moment(kind))
      for (const Accumulator& other : accumulators_)
        if (is_moment(other.op->reduce) && other.op->args[0] == op.args[0]) a.parts = other.parts, a.shared = true;
    for (const Accumulator& other : accumulators_)
      if (kind == ReduceKind::Max && is_exponent(other.op->reduce) && other.op->args[0] == op.args[0])
        a.parts = other.parts, a.shared = true;
    if (!at_once && !a.shared) {
      if (is_index(kind)) {
        a.parts = {running(identity(kind, a.operand), compute_type(a.operand == DType::Bool ? DType::I32 : a.operand)),
                   running(wide_ ? std::to_string(INT64_MAX) : std::to_string(INT32_MAX), index_type())};
      } else if (is_moment(kind)) {
        for (int i = 0; i < 4; ++i) a.parts.push_back(running("0.0", compute_type(op.dtype)));
      } else if (is_exponent(kind)) {
        a.parts = {running(identity(kind, op.dtype), compute_type(op.dtype)), running("0.0", compute_type(op.dtype))};
      } else {
        a.parts = {running(identity(kind, op.dtype), is_choice(kind) ? "tl.int32" : compute_type(op.dtype))};
      }
    }
    accumulators_.push_back(std::move(a));
  }
  // A Welford pair that is computed at once shares its parts by the first one's.
  if (at_once)
    for (Accumulator& a : accumulators_) a.shared = false;
}

// The reduction of a whole block along its second dimension, as an expression.
std::string Printer::fold(ReduceKind kind, DType dtype, const std::string& x) {
  bool fp = is_floating(dtype);
  auto by = [&](const char* function) { return "tl.reduce(" + x + ", 1, " + helper(function) + ", keep_dims=True)"; };
  switch (kind) {
    case ReduceKind::Sum: {
      // Narrow integers are summed in 32 bits.
      std::string s = "tl.sum(" + x + ", 1, keep_dims=True)";
      return !fp && size_of(dtype) < 4 ? s + ".to(" + compute_type(dtype) + ")" : s;
    }
    case ReduceKind::Prod: return by("product");
    case ReduceKind::Any: return "(tl.max(" + x + ", 1, keep_dims=True) != 0)";
    case ReduceKind::All: return "(tl.min(" + x + ", 1, keep_dims=True) != 0)";
    case ReduceKind::Max: return by(fp ? "either_max" : "larger");
    case ReduceKind::Min: return by(fp ? "either_min" : "smaller");
    default: throw InternalError("no such reduction of one value");
  }
}

void Printer::update_reduction(Accumulator& a) {
  const LoopOp& op = *a.op;
  ReduceKind kind = on_bool(op.reduce, op.dtype);
  Val x = values_[op.args[0].index];
  if (is_choice(kind))
    x = {(x.dtype == DType::Bool ? x.s : "(" + x.s + " != 0)") + ".to(tl.int32)", x.dims, DType::I32};
  else if (is_index(kind))
    x = x.dtype == DType::Bool ? Val{x.s + ".to(tl.int32)", x.dims, DType::I32} : x;
  else
    x = {cast(x, op.dtype), x.dims, op.dtype};
  std::string value = whole({x.s, x.dims});
  bool at_once = a.parts.empty();
  auto masked = [&](const std::string& v, const std::string& otherwise) {
    return second_mask_.empty() ? v : "tl.where(" + second_mask_ + ", " + v + ", " + otherwise + ")";
  };
  if (at_once) {
    if (is_index(kind)) {
      std::string most = wide_ ? std::to_string(INT64_MAX) : std::to_string(INT32_MAX);
      std::string v = assign("acc", masked(value, identity(kind, x.dtype))),
                  at = assign("acc", masked(whole({position_, kSecond}), most));
      std::string best = fresh("best"), where = fresh("where");
      line(best + ", " + where + " = tl.reduce((" + v + ", " + at + "), 1, " +
           helper(kind == ReduceKind::ArgMax ? "arg_max" : "arg_min") + ", keep_dims=True)");
      set(op, where + ".to(" + compute_type(op.dtype) + ")", kFirst);
      return;
    }
    if (is_moment(kind)) {
      // Over what is in registers: the mean, what its rounding left of it, then the deviations.
      for (const Accumulator& other : accumulators_) {
        if (&other == &a) break;
        if (!is_moment(other.op->reduce) || other.op->args[0] != op.args[0]) continue;
        set(op, other.parts.empty() ? "" : other.parts[op.reduce == ReduceKind::WelfordM2 ? 1 : 0], kFirst);
        return;
      }
      std::string type = compute_type(op.dtype), n;
      Expr total = arena_.constant(1);
      for (const loop::Axis& axis : stage_->axes) total = arena_.mul(total, axis.extent);
      if (auto c = arena_.as_const(total))
        n = "tl.full([1, 1], " + literal(op.dtype, static_cast<double>(std::max<int64_t>(1, *c))) + ", " + type + ")";
      else
        n = "tl.maximum(" + index(total).s + ", 1).to(" + type + ")";
      n = assign("count", n);
      std::string mean = assign("mean", "tl.sum(" + masked(value, "0.0") + ", 1, keep_dims=True) / " + n);
      std::string off = assign("off", masked(value + " - " + mean, "0.0"));
      std::string left = assign("left", "tl.sum(" + off + ", 1, keep_dims=True) / " + n);
      off = assign("off", masked(off + " - " + left, "0.0"));
      a.parts = {assign("mean", mean + " + " + left),
                 assign("squares", "tl.sum(" + off + " * " + off + ", 1, keep_dims=True)")};
      set(op, a.parts[op.reduce == ReduceKind::WelfordM2 ? 1 : 0], kFirst);
      return;
    }
    if (is_exponent(kind)) {
      std::string all = assign("exponent", masked(value, identity(kind, x.dtype)));
      std::string top = assign("top", fold(ReduceKind::Max, x.dtype, all));
      set(op, "tl.sum(tl.exp(" + all + " - " + top + "), 1, keep_dims=True)", kFirst);
      return;
    }
    set(op, fold(kind, x.dtype, masked(value, identity(kind, x.dtype))), kFirst);
    return;
  }
  if (a.shared) return;
  auto update = [&](size_t part, const std::string& next) {
    line(a.parts[part] + " = " + masked(next, a.parts[part]));
  };
  const std::string& acc = a.parts[0];
  if (is_index(kind)) {
    std::string best = fresh("best"), where = fresh("where");
    line(best + ", " + where + " = " + helper(kind == ReduceKind::ArgMax ? "arg_max" : "arg_min") + "(" + acc + ", " +
         a.parts[1] + ", " + value + ", " + whole({position_, kSecond}) + ")");
    update(0, best);
    update(1, where);
    return;
  }
  if (is_moment(kind)) {
    // Of the distances to the first value: a mean far from zero would be rounded by more than the deviations are worth.
    update(3, "tl.where(" + a.parts[2] + " == 0, " + value + ", " + a.parts[3] + ")");
    std::string near = assign("near", value + " - " + a.parts[3]);
    std::string count = assign("count", a.parts[2] + " + 1.0"), off = assign("off", near + " - " + acc);
    std::string mean = assign("mean", acc + " + " + off + " / " + count);
    update(1, a.parts[1] + " + " + off + " * (" + near + " - " + mean + ")");
    update(0, mean);
    update(2, count);
    return;
  }
  if (is_exponent(kind)) {
    std::string top = assign("top", "tl.maximum(" + acc + ", " + value + ", propagate_nan=tl.PropagateNan.ALL)");
    std::string base = assign("base", "tl.where(" + top + " == float(\"-inf\"), 0.0, " + top + ")");
    update(1, a.parts[1] + " * tl.exp(" + acc + " - " + base + ") + tl.exp(" + value + " - " + base + ")");
    update(0, top);
    return;
  }
  bool fp = is_floating(op.dtype);
  std::string nan = fp ? ", propagate_nan=tl.PropagateNan.ALL)" : ")";
  switch (kind) {
    case ReduceKind::Sum: update(0, acc + " + " + value); return;
    case ReduceKind::Prod: update(0, acc + " * " + value); return;
    case ReduceKind::Any: update(0, acc + " | " + value); return;
    case ReduceKind::All: update(0, acc + " & " + value); return;
    case ReduceKind::Max: update(0, "tl.maximum(" + acc + ", " + value + nan); return;
    case ReduceKind::Min: update(0, "tl.minimum(" + acc + ", " + value + nan); return;
    default: throw InternalError("no such reduction of one value");
  }
}

// After the turns: what the elements of the block have becomes one value per outer point.
void Printer::finish_reductions() {
  for (Accumulator& a : accumulators_) {
    const LoopOp& op = *a.op;
    ReduceKind kind = on_bool(op.reduce, op.dtype);
    if (is_index(kind)) {
      std::string best = fresh("best"), where = fresh("where");
      line(best + ", " + where + " = tl.reduce((" + a.parts[0] + ", " + a.parts[1] + "), 1, " +
           helper(kind == ReduceKind::ArgMax ? "arg_max" : "arg_min") + ", keep_dims=True)");
      set(op, where + ".to(" + compute_type(op.dtype) + ")", kFirst);
    } else if (is_moment(kind)) {
      if (!a.shared) {
        std::vector<std::string> out = {fresh("mean"), fresh("squares"), fresh("count"), fresh("shift")};
        auto list = [](const std::vector<std::string>& v) { return v[0] + ", " + v[1] + ", " + v[2] + ", " + v[3]; };
        line(list(out) + " = tl.reduce((" + list(a.parts) + "), 1, " + helper("welford") + ", keep_dims=True)");
        out[0] = assign("mean", out[0] + " + " + out[3]);
        for (Accumulator& other : accumulators_)
          if (&other != &a && other.shared && other.op->args[0] == op.args[0]) other.parts = out;
        a.parts = out;
      }
      set(op, a.parts[op.reduce == ReduceKind::WelfordM2 ? 1 : 0], kFirst);
    } else if (is_exponent(kind)) {
      std::vector<std::string> out = {fresh("top"), fresh("sum")};
      line(out[0] + ", " + out[1] + " = tl.reduce((" + a.parts[0] + ", " + a.parts[1] + "), 1, " + helper("exp_sums") +
           ", keep_dims=True)");
      for (Accumulator& other : accumulators_)
        if (other.shared && other.op->reduce == ReduceKind::Max && other.parts == a.parts) other.parts = out;
      set(op, "tl.where(" + out[0] + " == float(\"-inf\"), float(\"nan\"), " + out[1] + ")", kFirst);
    } else if (a.shared) {  // a maximum that was found with the exponents
      set(op, a.parts[0], kFirst);
    } else {
      set(op, fold(kind, is_choice(kind) ? DType::I32 : op.dtype, a.parts[0]), kFirst);
    }
  }
  accumulators_.clear();
}

// Over no axis: the value itself.
void Printer::reduce_nothing(const LoopOp& op) {
  const Val& x = values_[op.args[0].index];
  if (is_exponent(op.reduce)) {
    set(op, "tl.exp(" + x.s + " - " + x.s + ")", x.dims);
    return;
  }
  if (!is_index(op.reduce) && op.reduce != ReduceKind::WelfordM2) {
    set(op, cast(x, op.dtype), x.dims);
    return;
  }
  set(op, x.s + ".to(" + compute_type(op.dtype) + ") * 0", x.dims);
}

}  // namespace braze::codegen::triton
