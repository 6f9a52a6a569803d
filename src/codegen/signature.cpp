#include "codegen/signature.h"

#include <algorithm>
#include <unordered_map>

#include "base/check.h"
#include "loop/analysis.h"

namespace braze::codegen {
namespace {

using loop::BufferId;
using sym::Expr;
using sym::Kind;

class Printer {
 public:
  Printer(const loop::Program& program, Signature& out) : program_(program), arena_(*program.arena), out_(out) {}

  void run(const loop::Nest& nest) {
    text("vector ");
    number(static_cast<int>(nest.mapping.vector));
    number(nest.mapping.tile);
    number(nest.mapping.grain);
    number(nest.mapping.ahead);
    text("outer");
    axes(nest.outer);
    for (const loop::Stage& stage : nest.stages) {
      text("\nstage");
      axes(stage.axes);
      for (const loop::LoopOp& op : stage.ops) operation(op);
    }
    // Proofs about sizes and indices use the ranges of their symbols.
    for (Expr s : symbols_) {
      sym::Range r = arena_.range(s);
      text("\nrange");
      number(r.lo);
      number(r.hi);
    }
    out_.key += details_;
  }

 private:
  void text(std::string_view s) { out_.key += s; }
  void number(int64_t n) { out_.key += ' ', out_.key += std::to_string(n); }

  void axes(const std::vector<loop::Axis>& list) {
    for (const loop::Axis& a : list) {
      name(a.var, "v" + std::to_string(loop_vars_++));
      text(" ");
      text(names_[a.var.id]);
      text("<");
      text(expr(a.extent));
    }
  }

  void operation(const loop::LoopOp& op) {
    text("\n");
    number(static_cast<int>(op.code));
    number(static_cast<int>(op.dtype));
    for (loop::ValId a : op.args)
      if (a.valid()) text(" %"), text(value(a));
    if (op.result.valid()) text(" ="), text(value(op.result));
    switch (op.code) {
      case loop::OpCode::Load: text(" "), text(buffer(op.buffer)), text("["), text(expr(op.index)), text("]"); break;
      case loop::OpCode::Store:
        text(op.atomic_add ? " +" : " "), text(buffer(op.buffer)), text("["), text(expr(op.index)), text("]");
        if (loop::of_caller(program_, op.buffer)) text(" given");
        break;
      case loop::OpCode::Index: text(" "), text(expr(op.index)); break;
      case loop::OpCode::Indirect:
        name(op.index, "i" + std::to_string(indirects_++));
        text(" "), text(names_[op.index.id]), text("<"), text(expr(op.bound));
        number(static_cast<int>(op.check.fault)), number(op.check.dim), number(op.check.wrap);
        break;
      case loop::OpCode::Const: number(op.integer); break;  // a double by its bits
      case loop::OpCode::Reduce:
      case loop::OpCode::Scan: number(static_cast<int>(op.reduce)); break;
      default: break;
    }
  }

  const std::string& name(Expr symbol, std::string text) {
    auto [it, fresh] = names_.try_emplace(symbol.id);
    if (fresh) symbols_.push_back(symbol);
    return it->second = std::move(text);
  }

  std::string value(loop::ValId v) {
    auto [it, fresh] = values_.try_emplace(v.index, values_.size());
    return std::to_string(it->second);
  }

  std::string buffer(BufferId b) {
    const loop::Buffer& buf = program_.buffers[b];
    bool local = buf.kind == loop::BufferKind::Local;
    auto [it, fresh] = buffers_.try_emplace(b.index, buffers_.size());
    if (fresh) {
      if (!local) out_.buffers.push_back(b);
      details_ += "\nbuffer " + std::to_string(static_cast<int>(buf.dtype)) + (local ? " local" : "");
      if (local)
        for (Expr s : buf.sizes) details_ += " " + expr(s);
    }
    return "b" + std::to_string(it->second);
  }

  std::string expr(Expr e) {
    Kind kind = arena_.kind(e);
    if (kind == Kind::Const) return std::to_string(*arena_.as_const(e));
    if (kind == Kind::Symbol) {
      auto it = names_.find(e.id);
      if (it != names_.end()) return it->second;
      auto k = arena_.symbol_kind(e);
      BRAZE_CHECK(k == sym::SymbolKind::Size || k == sym::SymbolKind::Unbacked,
                  "loop variable that no axis binds: " + arena_.print(e));
      out_.sizes.push_back(e);
      return name(e, "s" + std::to_string(out_.sizes.size() - 1));
    }
    std::vector<std::string> parts;
    for (Expr o : arena_.operands(e)) parts.push_back(expr(o));
    // The arena orders by age, which differs between equal nests.
    if (kind == Kind::Add || kind == Kind::Mul || kind == Kind::Min || kind == Kind::Max || kind == Kind::And ||
        kind == Kind::Or)
      std::sort(parts.begin(), parts.end());
    std::string out = "(" + std::to_string(static_cast<int>(kind));
    for (const std::string& p : parts) out += " " + p;
    return out + ")";
  }

  const loop::Program& program_;
  sym::ExprArena& arena_;
  Signature& out_;
  std::string details_;
  std::unordered_map<uint32_t, std::string> names_;
  std::vector<Expr> symbols_;  // that have names
  std::unordered_map<uint32_t, size_t> values_, buffers_;
  int loop_vars_ = 0, indirects_ = 0;
};

}  // namespace

Signature signature_of(const loop::Program& program, const loop::Nest& nest) {
  Signature out;
  Printer(program, out).run(nest);
  return out;
}

}  // namespace braze::codegen
