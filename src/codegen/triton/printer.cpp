#include "codegen/triton/printer.h"

#include <algorithm>

#include "base/check.h"
#include "codegen/triton/helpers.h"
#include "schedule/index.h"

namespace braze::codegen::triton {

using loop::Axis;
using loop::BufferKind;
using loop::OpCode;
using loop::Stage;

namespace {

std::string call(const std::string& name, const std::string& argument) { return name + "(" + argument + ")"; }

// Names that the text uses itself, and Python's keywords as far as a symbol or tensor may be called so.
const char* const kReserved[] = {
    "tl",    "triton", "libdevice", "range", "float",    "error", "XBLOCK", "YBLOCK", "and",      "as",     "assert",
    "async", "await",  "break",     "class", "continue", "def",   "del",    "elif",   "else",     "except", "finally",
    "for",   "from",   "global",    "if",    "import",   "in",    "is",     "lambda", "nonlocal", "not",    "or",
    "pass",  "raise",  "return",    "try",   "while",    "with",  "yield",  "None",   "True",     "False"};

}  // namespace

Printer::Printer(const Program& program, const Nest& nest, const Signature& signature, const Blocks& blocks, int sm)
    : program_(program),
      nest_(nest),
      signature_(signature),
      blocks_(blocks),
      sm_(sm),
      arena_(*program.arena),
      values_(nest.values) {
  taken_.insert(std::begin(kReserved), std::end(kReserved));
  for (const Helper& h : kHelpers) taken_.insert(h.name);
}

std::string Printer::run(const std::string& symbol) {
  taken_.insert(symbol);
  wide_ = needs_i64();
  declare_parameters();
  switch (blocks_.way) {
    case Blocks::Way::Points: begin_points(); break;
    case Blocks::Way::Tiles: begin_tiles(); break;
    case Blocks::Way::Rows: begin_rows(); break;
  }
  for (const Stage& s : nest_.stages) run_stage(s);

  std::string head = "import triton\nimport triton.language as tl\nfrom triton.language.extra import libdevice\n\n\n",
              list, open;
  for (const Helper& h : kHelpers)
    if (helpers_.contains(h.name)) head += std::string("@triton.jit\n") + h.text + "\n\n";
  for (const Parameter& p : parameters_) list += (list.empty() ? "" : ", ") + p.name;
  for (const std::string& s : open_sizes_) open += (open.empty() ? "\"" : ", \"") + s + "\"";
  return head + "@triton.jit" + (open.empty() ? "" : "(do_not_specialize=[" + open + "])") + "\ndef " + symbol + "(" +
         list + "):\n" + body_;
}

// A name made from `name` that nothing else has.
std::string Printer::fresh(const std::string& name) {
  std::string base;
  for (char c : name) base += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  if (base.empty() || std::isdigit(static_cast<unsigned char>(base[0]))) base = "n" + base;
  base = prefix_ + base;
  std::string found = base;
  for (int n = 1; !taken_.insert(found).second; ++n) found = base + "_" + std::to_string(n);
  return found;
}

std::string Printer::assign(const std::string& name, const std::string& value) {
  std::string n = fresh(name);
  line(n + " = " + value);
  return n;
}

std::string Printer::helper(const std::string& name) {
  helpers_.insert(name);
  return name;
}

std::string pointer_type(DType t) {
  switch (t) {
    case DType::Bool: return "*i1";
    case DType::F8E4M3:
    case DType::F8E5M2:
    case DType::U8: return "*u8";
    case DType::I8: return "*i8";
    case DType::I16: return "*i16";
    case DType::I32: return "*i32";
    case DType::I64: return "*i64";
    case DType::F16: return "*fp16";
    case DType::BF16: return "*bf16";
    case DType::F32: return "*fp32";
    case DType::F64: return "*fp64";
    default: throw Inexpressible("dtype " + std::string(name(t)));
  }
}

void Printer::declare_parameters() {
  for (BufferId b : signature_.buffers) {
    const loop::Buffer& buffer = program_.buffers[b];
    const char* prefix = buffer.kind == BufferKind::Output ? "out_" : buffer.kind == BufferKind::Temp ? "tmp_" : "in_";
    parameters_.push_back({names_of_buffers_[b.index] = fresh(prefix + buffer.name), pointer_type(buffer.dtype)});
  }
  for (Expr s : signature_.sizes) {
    std::string n = fresh(std::string(arena_.symbol_name(s)));
    parameters_.push_back({n, "i64"});
    open_sizes_.push_back(n);
    symbols_[s.id] = {n};
    if (!wide_) line(n + " = " + n + ".to(tl.int32)");
  }
  parameters_.push_back({"error", "*i32"});
}

// Binds the axes to the digits of a position that counts their points, the last axis fastest.
void Printer::decode(const std::string& position, unsigned dims, const std::vector<Axis>& axes) {
  Expr inner = arena_.constant(1);
  size_t first = 0;
  while (first < axes.size() && arena_.is_const(axes[first].extent, 1)) ++first;
  for (size_t i = axes.size(); i-- > 0;) {
    if (arena_.is_const(axes[i].extent, 1)) {
      symbols_[axes[i].var.id] = {"0"};
      continue;
    }
    std::string digit = position;
    auto append = [&](const char* op, Expr e) {
      Text t = index(e);
      digit += std::string(" ") + op + " " + (t.atom ? t.s : call("", t.s));
    };
    if (!arena_.is_const(inner, 1)) append("//", inner);
    if (i != first) append("%", axes[i].extent);
    // Scheduled axes are called after their place and extent: i0_1024.
    std::string name(arena_.symbol_name(axes[i].var));
    symbols_[axes[i].var.id] = {digit == position ? position : assign(name.substr(0, name.find('_')), digit), dims};
    inner = arena_.mul(inner, axes[i].extent);
  }
}

namespace {

std::string program_number(bool wide) { return wide ? "tl.program_id(0).to(tl.int64)" : "tl.program_id(0)"; }

}  // namespace

void Printer::begin_points() {
  Expr all = schedule::volume(arena_, nest_.outer);
  line("XBLOCK: tl.constexpr = " + std::to_string(blocks_.x));
  std::string x = assign("xindex", program_number(wide_) + " * XBLOCK + tl.arange(0, XBLOCK)");
  if (!arena_.known_multiple(all, blocks_.x)) first_mask_ = assign("xmask", x + " < " + index(all).s);
  decode(x, kFirst, nest_.outer);
}

void Printer::begin_tiles() {
  size_t n = nest_.outer.size();
  const Axis &row = nest_.outer[n - 2], &column = nest_.outer[n - 1];
  std::vector<Axis> leading(nest_.outer.begin(), nest_.outer.end() - 2);
  auto parens = [](const Text& t) { return t.atom ? t.s : call("", t.s); };
  Expr ytiles = arena_.ceildiv(row.extent, arena_.constant(blocks_.y)),
       xtiles = arena_.ceildiv(column.extent, arena_.constant(blocks_.x));
  line("YBLOCK: tl.constexpr = " + std::to_string(blocks_.y));
  line("XBLOCK: tl.constexpr = " + std::to_string(blocks_.x));
  std::string tile = assign("tile", program_number(wide_));
  std::string columns = parens(index(xtiles)), all = parens(index(arena_.mul(xtiles, ytiles)));
  std::string down = tile + (leading.empty() ? "" : " % " + all) + " // " + columns;
  std::string y = assign("yindex", down + " * YBLOCK + tl.arange(0, YBLOCK)[:, None]");
  std::string x = assign("xindex", tile + " % " + columns + " * XBLOCK + tl.arange(0, XBLOCK)[None, :]");
  if (!arena_.known_multiple(row.extent, blocks_.y))
    first_mask_ = assign("ymask", y + " < " + parens(index(row.extent)));
  if (!arena_.known_multiple(column.extent, blocks_.x))
    second_mask_ = assign("xmask", x + " < " + parens(index(column.extent)));
  symbols_[row.var.id] = {y, kFirst};
  symbols_[column.var.id] = {x, kSecond};
  if (!leading.empty()) decode(assign("batch", tile + " // " + all), 0, leading);
}

void Printer::begin_rows() {
  Expr all = schedule::volume(arena_, nest_.outer);
  line("XBLOCK: tl.constexpr = " + std::to_string(blocks_.x));
  std::string x = assign("xindex", program_number(wide_) + " * XBLOCK + tl.arange(0, XBLOCK)[:, None]");
  if (!arena_.known_multiple(all, blocks_.x)) first_mask_ = assign("xmask", x + " < " + index(all).s);
  decode(x, kFirst, nest_.outer);
}

// Loads of what an earlier stage stored, where no value stands for it, wait for all threads.
void Printer::meet(const Stage& stage) {
  for (const LoopOp& op : stage.ops) {
    if (op.code != OpCode::Load || std::find(written_.begin(), written_.end(), op.buffer) == written_.end()) continue;
    if (known_.contains({op.buffer.index, op.index.id})) continue;
    line("tl.debug_barrier()");
    written_.clear();
    return;
  }
}

void Printer::run_stage(const Stage& stage) {
  stage_ = &stage;
  if (stage.axes.empty()) {
    meet(stage);
    run_ops(stage);
    return;
  }
  StageBlock block = stage_block(arena_, stage, blocks_);
  if (block.whole)
    run_at_once(stage, block.size);
  else
    run_in_turns(stage, block.size);
}

void Printer::run_at_once(const Stage& stage, int block) {
  if (!placed_ || placed_block_ != block || !schedule::same_axes(placed_->axes, stage.axes)) {
    std::erase_if(known_, [&](auto& entry) {
      if (entry.second.dims & kSecond) return true;
      return std::any_of(stage.axes.begin(), stage.axes.end(),
                         [&](const Axis& a) { return arena_.contains(Expr{entry.first.second}, a.var); });
    });
    place(stage, "", block);
    placed_ = &stage;
    placed_block_ = block;
  }
  meet(stage);
  begin_reductions(stage, true);
  run_ops(stage);
}

void Printer::run_in_turns(const Stage& stage, int block) {
  placed_ = nullptr;
  // What holds inside the loop is what holds in every turn.
  std::erase_if(known_, [&](auto& entry) {
    bool stored = std::any_of(stage.ops.begin(), stage.ops.end(), [&](const LoopOp& op) {
      return op.code == OpCode::Store && op.buffer.index == entry.first.first;
    });
    return stored || entry.second.dims & kSecond;
  });
  meet(stage);
  std::string size = fresh("RBLOCK"), start = fresh("start");
  line(size + ": tl.constexpr = " + std::to_string(block));
  auto before = known_;
  begin_reductions(stage, false);
  line("for " + start + " in range(0, " + index(schedule::volume(arena_, stage.axes)).s + ", " + size + "):");
  ++indent_;
  place(stage, start, block);
  run_ops(stage);
  --indent_;
  known_ = std::move(before);
  finish_reductions();
  second_mask_.clear();
}

void Printer::place(const Stage& stage, const std::string& start, int block) {
  Expr all = schedule::volume(arena_, stage.axes);
  std::string arange = "tl.arange(0, " + std::to_string(block) + ")[None, :]";
  if (wide_) arange += ".to(tl.int64)";
  position_ = assign("rindex", start.empty() ? arange : start + " + " + arange);
  auto known = arena_.as_const(all);
  bool exact = start.empty() ? known == block : arena_.known_multiple(all, block);
  second_mask_ = exact ? "" : assign("rmask", position_ + " < " + index(all).s);
  decode(position_, kSecond, stage.axes);
}

void Printer::run_ops(const Stage& stage) {
  size_t reductions = 0;
  for (const LoopOp& op : stage.ops) {
    if (op.code != OpCode::Reduce)
      emit_op(op);
    else if (stage.axes.empty())
      reduce_nothing(op);
    else
      update_reduction(accumulators_[reductions++]);
  }
}

}  // namespace braze::codegen::triton
