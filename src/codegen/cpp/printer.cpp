#include "codegen/cpp/printer.h"

#include <algorithm>
#include <set>

#include "base/check.h"
#include "loop/analysis.h"
#include "schedule/mapping.h"

namespace braze::codegen::cpp {

using loop::BufferKind;
using loop::Mapping;
using loop::OpCode;
using loop::ReduceKind;
using loop::Stage;

namespace {

int cost_of(const Stage& stage) {
  int cost = 0;
  for (const LoopOp& op : stage.ops) cost += loop::op_row(op.code).instructions;
  return cost;
}

std::string str(int64_t n) { return std::to_string(n); }

Expr elements_of(sym::ExprArena& arena, const loop::Buffer& b) {
  Expr elements = arena.constant(1);
  for (size_t d = 0; d < b.sizes.size(); ++d)
    elements = arena.add(elements, arena.mul(arena.sub(b.sizes[d], arena.constant(1)), b.strides[d]));
  return elements;
}

}  // namespace

bool keeps_much(const Program& program, const Nest& nest) {
  constexpr int64_t kMost = 64 << 10;
  std::set<uint32_t> seen;
  int64_t bytes = 0;
  for (const Stage& stage : nest.stages)
    for (const LoopOp& op : stage.ops) {
      if (!op.buffer.valid() || program.buffers[op.buffer].kind != BufferKind::Local) continue;
      if (!seen.insert(op.buffer.index).second) continue;
      auto known = program.arena->as_const(elements_of(*program.arena, program.buffers[op.buffer]));
      if (!known) return true;
      bytes += *known * size_of(program.buffers[op.buffer].dtype);
    }
  return bytes > kMost;
}

Shape choose_shape(const Target& target, const Program& program, const Nest& nest) {
  Shape s;
  bool wide = false, local = false, reduces = false, loops = false;
  int cost = 0;
  for (const Stage& stage : nest.stages) {
    cost += cost_of(stage);
    loops |= !stage.axes.empty();
    for (const LoopOp& op : stage.ops) {
      if (op.code != OpCode::Indirect) wide |= op.dtype == DType::F64 || op.dtype == DType::I64;
      reduces |= op.code == OpCode::Reduce && !stage.axes.empty();
      if (op.buffer.valid()) local |= program.buffers[op.buffer].kind == BufferKind::Local;
    }
  }
  s.mask_bytes = wide ? 8 : 4;
  s.lanes = std::max(2, target.lanes(s.mask_bytes));
  Mapping::Vector way = nest.mapping.vector;
  if (way == Mapping::Vector::Outer && (nest.outer.empty() || local)) way = Mapping::Vector::None;
  if (way == Mapping::Vector::None) return s;
  const sym::ExprArena& arena = *program.arena;
  std::optional<int64_t> extent;
  if (way == Mapping::Vector::Outer) {
    extent = arena.as_const(nest.outer.back().extent);
  } else {
    extent = 1;
    for (const Stage& stage : nest.stages)
      if (!stage.axes.empty()) {
        auto n = arena.as_const(stage.axes.back().extent);
        extent = n && extent ? std::optional<int64_t>(std::max(*extent, *n)) : std::nullopt;
      }
  }
  if (extent && *extent < 2) return s;
  while (extent && s.lanes > 2 && s.lanes > *extent) s.lanes /= 2;
  int copies = cost <= 10 ? 4 : cost <= 26 ? 2 : 1;
  while (extent && copies > 1 && (*extent < int64_t{copies} * s.lanes || *extent % (int64_t{copies} * s.lanes)))
    copies /= 2;
  s.group = s.lanes * copies;
  s.outer = way == Mapping::Vector::Outer;
  if (s.outer) s.block = reduces ? s.group : loops ? 256 : 2048;
  return s;
}

Printer::Printer(const Target& target, const Program& program, const Nest& nest, const Signature& signature)
    : target_(target),
      program_(program),
      nest_(nest),
      signature_(signature),
      arena_(*program.arena),
      shape_(choose_shape(target, program, nest)),
      values_(nest.values) {}

std::string Printer::fresh(const std::string& name) {
  std::string base;
  for (char c : name) base += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  int& n = taken_[base];
  return base + "_" + str(n++);
}

std::string Printer::run(const std::string& symbol) {
  for (size_t i = 0; i < signature_.buffers.size(); ++i) {
    const loop::Buffer& b = program_.buffers[signature_.buffers[i]];
    const char* prefix = b.kind == BufferKind::Output ? "out_" : b.kind == BufferKind::Temp ? "tmp_" : "in_";
    std::string name = buffers_[signature_.buffers[i].index] = fresh(prefix + b.name);
    line("auto* const " + name + " = static_cast<" + memory_type(b.dtype) + "*>(pointers[" + str(i) + "]);");
  }
  for (size_t i = 0; i < signature_.sizes.size(); ++i) {
    std::string name = fresh("size");
    line("[[maybe_unused]] const int64_t " + name + " = sizes[" + str(i) + "];");
    symbols_[signature_.sizes[i].id] = {name, false};
  }
  std::vector<Expr> extents;
  for (const loop::Axis& a : nest_.outer) extents.push_back(a.extent);
  if (shape_.outer) extents.back() = arena_.ceildiv(extents.back(), arena_.constant(shape_.block));
  line("parallel_for(" + index(arena_.product(extents)) + ", " + grain() + ", [=](int64_t begin, int64_t end) {");
  ++indent_;
  for (const Stage& stage : nest_.stages)
    for (const LoopOp& op : stage.ops) {
      if (!op.buffer.valid() || buffers_.contains(op.buffer.index)) continue;
      const loop::Buffer& b = program_.buffers[op.buffer];
      auto known = arena_.as_const(elements_of(arena_, b));
      BRAZE_CHECK(known, "a private buffer of the C++ target of unknown size");
      std::string name = buffers_[op.buffer.index] = fresh("local_" + b.name);
      line("alignas(64) " + memory_type(b.dtype) + " " + name + "[" + str(std::max<int64_t>(1, *known)) + "];");
    }
  line("for (int64_t unit = begin; unit < end; ++unit) {");
  ++indent_;
  std::string rest = "unit";
  std::vector<std::string> digits(extents.size(), "0");
  size_t first = 0;  // that moves: what is left of the unit's number
  while (first < extents.size() && arena_.is_const(extents[first], 1)) ++first;
  for (size_t i = extents.size(); i-- > first;) {
    if (arena_.is_const(extents[i], 1)) continue;
    digits[i] = fresh("i");
    if (i == first) {
      line("const int64_t " + digits[i] + " = " + rest + ";");
      continue;
    }
    std::string n = index(extents[i]);
    line("const int64_t " + digits[i] + " = " + rest + " % " + n + ";");
    std::string above = fresh("rest");
    line("const int64_t " + above + " = " + rest + " / " + n + ";");
    rest = above;
  }
  for (size_t i = 0; i < nest_.outer.size(); ++i) symbols_[nest_.outer[i].var.id] = {digits[i], false};
  if (shape_.outer) {
    const loop::Axis& axis = nest_.outer.back();
    std::string first = fresh("first"), i = fresh("i");
    line("const int64_t " + first + " = " + str(shape_.block) + " * " + digits.back() + ";");
    line("along<" + str(shape_.group) + ">(" + first + ", least(" + first + " + " + str(shape_.block) + ", " +
         index(axis.extent) + "), [&](auto lanes, int64_t " + i + ") {");
    ++indent_;
    vector_ = axis.var;
    symbols_[axis.var.id] = {i, false};
    lanes_ = "lanes";
    print_stages();
    --indent_;
    line("});");
  } else {
    print_stages();
  }
  for (const char* end : {"}", "});"}) --indent_, line(end);
  return "extern \"C\" void " + symbol +
         "(void* const* pointers, [[maybe_unused]] const int64_t* sizes) {\n  using namespace braze;\n" + body_ + "}\n";
}

std::string Printer::grain() {
  int64_t lanes = shape_.outer ? target_.lanes(shape_.mask_bytes) : 1;
  std::string points = str(std::max<int64_t>(1, nest_.mapping.grain));
  if (Expr work = schedule::point_work(arena_, nest_); !arena_.as_const(work))
    points = "most(1, " + str(schedule::task_cost(target_, nest_)) + " / most(1, " + index(work) + "))";
  if (shape_.block == 1) return points;
  return "(" + points + " * " + str(lanes) + " + " + str(shape_.block - 1) + ") / " + str(shape_.block);
}

void Printer::print_stages() {
  for (const Stage& s : nest_.stages) print_stage(s);
}

void Printer::print_stage(const Stage& stage) {
  stage_ = &stage;
  if (stage.axes.empty()) {
    print_ops(stage);
    return;
  }
  open_reductions(stage);
  print_axes(stage, 0);
  close_reductions(stage);
}

void Printer::print_axes(const Stage& stage, size_t k) {
  const loop::Axis& axis = stage.axes[k];
  std::string r = fresh("r"), end = index(axis.extent);
  bool lanes = k + 1 == stage.axes.size() && !shape_.outer && shape_.group > 1;
  line(lanes ? "along<" + str(shape_.group) + ">(0, " + end + ", [&](auto lanes, int64_t " + r + ") {"
             : "for (int64_t " + r + " = 0; " + r + " < " + end + "; ++" + r + ") {");
  ++indent_;
  symbols_[axis.var.id] = {r, false};
  if (lanes) vector_ = axis.var, lanes_ = "lanes";
  if (k + 1 < stage.axes.size())
    print_axes(stage, k + 1);
  else
    print_ops(stage);
  if (lanes) vector_.reset(), lanes_ = "Lanes<1>()";
  --indent_;
  line(lanes ? "});" : "}");
}

void Printer::print_ops(const Stage& stage) {
  for (const LoopOp& op : stage.ops) {
    if (op.code == OpCode::Scan && !stage.axes.empty())
      print_scan(op);
    else if (!loop::accumulates(op.code))
      print_op(op);
    else if (stage.axes.empty())
      reduce_nothing(op);
    else
      update_reduction(op);
  }
}

namespace {

// The kind as the header has it; of bool all are choices.
std::string way_of(ReduceKind kind, DType dtype) {
  const bool choice = dtype == DType::Bool;
  switch (kind) {
    case ReduceKind::Sum: return choice ? "AnyOf" : "Sum";
    case ReduceKind::Prod: return choice ? "AllOf" : "Product";
    case ReduceKind::Max: return choice ? "AnyOf" : "Largest";
    case ReduceKind::Min: return choice ? "AllOf" : "Smallest";
    case ReduceKind::LogAdd: return "LogSum";
    case ReduceKind::Any: return "AnyOf";
    case ReduceKind::All: return "AllOf";
    default: throw InternalError("no such reduction of one value");
  }
}

DType compared(DType dtype) { return dtype == DType::Bool ? DType::U8 : dtype; }

}  // namespace

void Printer::open_reductions(const Stage& stage) {
  accumulators_.clear();
  std::string lanes = shape_.outer ? "decltype(lanes)::count" : str(shape_.group);
  for (const LoopOp& op : stage.ops) {
    if (op.code == OpCode::Scan) {
      std::string& name = accumulators_[&op] = fresh("running_" + std::string(loop::reduce_row(op.reduce).name));
      const std::string of = way_of(op.reduce, op.dtype) + ", " + register_type(op.dtype);
      line(shape_.outer ? "Running<" + of + ", " + lanes + "> " + name + ";" : "RunningRow<" + of + "> " + name + ";");
      continue;
    }
    if (op.code != OpCode::Reduce) continue;
    std::string& name = accumulators_[&op];
    for (const LoopOp& other : stage.ops) {  // the pair of moments, and a maximum that exponents have
      if (&other == &op) break;
      if (other.code != OpCode::Reduce || other.args[0] != op.args[0] || other.dtype != op.dtype) continue;
      bool pair = is_moment(op.reduce) && is_moment(other.reduce);
      if (pair || (op.reduce == ReduceKind::Max && is_exponent(other.reduce))) name = accumulators_.at(&other);
    }
    if (!name.empty()) continue;
    DType operand = compared(values_[op.args[0].index].dtype);
    if (auto t = loop::dtype_of(nest_, op.args[0])) operand = compared(*t);
    std::string type = register_type(is_index(op.reduce) ? operand : op.dtype);
    name = fresh(loop::reduce_row(op.reduce).name);
    std::string what = is_index(op.reduce)
                           ? std::string("Place<") + (op.reduce == ReduceKind::ArgMax ? "true, " : "false, ")
                       : is_moment(op.reduce)   ? (shape_.outer ? "Moments<" : "RowMoments<")
                       : is_exponent(op.reduce) ? "Exponents<"
                                                : "Reduction<" + way_of(op.reduce, op.dtype) + ", ";
    line(what + type + ", " + lanes + "> " + name + ";");
  }
}

void Printer::print_scan(const LoopOp& op) {
  const Val& v = values_[op.args[0].index];
  set(op, accumulators_.at(&op) + ".next(spread(" + lanes_ + ", " + cast(v, op.dtype) + "))",
      shape_.outer || vector_.has_value());
}

void Printer::update_reduction(const LoopOp& op) {
  const std::string& name = accumulators_.at(&op);
  for (const LoopOp& other : stage_->ops) {  // shared: taken once
    if (&other == &op) break;
    if (other.code == OpCode::Reduce && accumulators_.at(&other) == name) return;
  }
  const Val& v = values_[op.args[0].index];
  auto spread = [&](const std::string& x) { return "spread(" + lanes_ + ", " + x + ")"; };
  if (!is_index(op.reduce)) {
    line(name + ".take(" + spread(cast(v, op.dtype)) + ");");
    return;
  }
  Expr flat = arena_.constant(0);
  for (const loop::Axis& a : stage_->axes) flat = arena_.add(arena_.mul(flat, a.extent), a.var);
  line(name + ".take(" + spread(cast(v, compared(v.dtype))) + ", " + spread(lane_numbers(flat)) + ");");
}

void Printer::close_reductions(const Stage& stage) {
  for (const LoopOp& op : stage.ops) {
    if (op.code != OpCode::Reduce) continue;
    const std::string& name = accumulators_.at(&op);
    std::string of = shape_.outer ? ".result" : ".total";
    bool top = op.reduce == ReduceKind::Max && name.starts_with("exp_sum");
    std::string text = name + of + (top ? "_top()" : "()");
    if (is_moment(op.reduce)) text += op.reduce == ReduceKind::WelfordM2 ? ".squares" : ".mean";
    if (is_index(op.reduce)) text = cast({text, DType::I64, shape_.outer, nullptr}, op.dtype);
    set(op, text, shape_.outer);
  }
}

// Over no axis: the value itself.
void Printer::reduce_nothing(const LoopOp& op) {
  const Val& v = values_[op.args[0].index];
  std::string x = cast(v, op.dtype), zero = "sub(" + x + ", " + x + ")";
  switch (loop::reduce_row(op.reduce).alone) {
    case loop::ReduceAlone::Itself: break;
    case loop::ReduceAlone::Zero: x = register_type(op.dtype) + "(0)"; break;
    case loop::ReduceAlone::Deviation: x = zero; break;
    case loop::ReduceAlone::Unit: x = "add(" + zero + ", " + register_type(op.dtype) + "(1))"; break;
  }
  set(op, x, v.vec);
}

}  // namespace braze::codegen::cpp
