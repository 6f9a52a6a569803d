#include <cinttypes>
#include <cmath>
#include <cstdio>

#include "loop/analysis.h"
#include "loop/loop.h"
#include "loop/text.h"
#include "symbolic/given_symbol.h"

namespace braze::loop {
namespace {

std::string number(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d < 0 ? "-inf" : "inf";
  char buf[40];
  std::snprintf(buf, sizeof buf, "%.17g", d);
  if (std::strtod(buf, nullptr) == d) {  // the shortest form that reads back
    for (int digits = 1; digits < 17; ++digits) {
      char shorter[40];
      std::snprintf(shorter, sizeof shorter, "%.*g", digits, d);
      if (std::strtod(shorter, nullptr) == d) return shorter;
    }
  }
  return buf;
}

std::string quote(std::string_view s) {
  std::string r = "\"";
  for (char c : s) {
    if (c == '\n') {
      r += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') r += '\\';
    r += c;
  }
  return r + '"';
}

std::string device(Device d) {
  std::string r = text::kDeviceNames[static_cast<int>(d.type)];
  if (d.index >= 0) r += ":" + std::to_string(d.index);
  return r;
}

class Printer {
 public:
  explicit Printer(const Program& p) : p_(p), arena_(*p.arena) {}

  std::string program() {
    out_ = "program\n";
    symbols();
    for (size_t i = 0; i < p_.locations.size(); ++i) {
      const graph::Location& l = p_.locations[graph::LocId(i)];
      out_ += "location " + quote(l.file) + " " + quote(l.function) + " " + std::to_string(l.line) + " " +
              quote(l.text) + "\n";
    }
    for (size_t i = 0; i < p_.buffers.size(); ++i) buffer(BufferId(i));
    for (const Item& item : p_.items) {
      if (auto* n = std::get_if<Nest>(&item))
        nest(*n);
      else
        call(std::get<ExternCall>(item));
    }
    for (const Output& o : p_.outputs) {
      if (o.kind == Output::Kind::None) out_ += "output none\n";
      if (o.kind == Output::Kind::Input) out_ += "output input " + std::to_string(o.input) + "\n";
      if (o.kind == Output::Kind::View) out_ += "output view " + view(o.view) + "\n";
    }
    for (const Writeback& w : p_.writebacks)
      out_ +=
          "writeback " + std::to_string(w.input) + (w.in_place ? " in place view " : " view ") + view(w.from) + "\n";
    return std::move(out_);
  }

  std::string one(const Nest& n) {
    nest(n);
    return std::move(out_);
  }

 private:
  std::string expr(Expr e) { return arena_.print(e); }

  std::string list(const std::vector<Expr>& v) {
    std::string r = "[";
    for (size_t i = 0; i < v.size(); ++i) r += (i ? ", " : "") + expr(v[i]);
    return r + "]";
  }

  void symbols() {
    std::vector<Expr> found;
    for (const auto& [s, where] : p_.size_symbols) {
      symbol(s);
      if (where.first == sym::kGivenSymbol)
        out_ += " = given\n";
      else
        out_ += " = input " + std::to_string(where.first) + " dim " + std::to_string(where.second) + "\n";
      found.push_back(s);
    }
    std::vector<Expr> all;
    for_each_expr(p_, [&](Expr e) { arena_.collect_symbols(e, all); });
    for (Expr s : all) {
      auto kind = arena_.symbol_kind(s);
      if (kind != sym::SymbolKind::Size && kind != sym::SymbolKind::Unbacked) continue;
      bool seen = false;
      for (Expr f : found) seen |= f == s;
      if (seen) continue;
      symbol(s);
      out_ += "\n";
    }
  }

  void symbol(Expr s) {
    sym::Range r = arena_.range(s);
    out_ += "symbol " + std::string(arena_.symbol_name(s)) + " " +
            text::kSymbolKinds[static_cast<int>(arena_.symbol_kind(s))] + " [" + std::to_string(r.lo) + ", " +
            std::to_string(r.hi) + "]";
  }

  void buffer(BufferId id) {
    const Buffer& b = p_.buffers[id];
    out_ += "buffer %" + std::to_string(id.index) + " " + quote(b.name) + " " + std::string(name(b.dtype)) + " " +
            device(b.device) + " " + text::kBufferKinds[static_cast<int>(b.kind)];
    if (b.kind == BufferKind::Input || b.kind == BufferKind::Constant) out_ += " " + std::to_string(b.input);
    out_ += " sizes " + list(b.sizes) + " strides " + list(b.strides);
    if (!arena_.is_const(b.offset, 0)) out_ += " offset " + expr(b.offset);
    out_ += "\n";
  }

  std::string axes(const std::vector<Axis>& v) {
    std::string r = "[";
    for (size_t i = 0; i < v.size(); ++i) r += (i ? ", " : "") + expr(v[i].var) + ": " + expr(v[i].extent);
    return r + "]";
  }

  void nest(const Nest& n) {
    out_ += "nest " + quote(n.name) + " outer " + axes(n.outer) + " vector " +
            text::kVectorNames[static_cast<int>(n.mapping.vector)] + " tile " + std::to_string(n.mapping.tile) +
            " grain " + std::to_string(n.mapping.grain) + (n.mapping.ahead ? " ahead" : "") +
            (n.commits ? " commits" : "") + " locs [";
    for (size_t i = 0; i < n.locs.size(); ++i) out_ += (i ? ", " : "") + std::to_string(n.locs[i].index);
    out_ += "] {\n";
    for (const Stage& s : n.stages) {
      out_ += "  stage " + axes(s.axes) + " {\n";
      for (const LoopOp& op : s.ops) {
        out_ += "    ";
        loop_op(op);
        out_ += "\n";
      }
      out_ += "  }\n";
    }
    out_ += "}\n";
  }

  static std::string value(ValId v) { return v.valid() ? "v" + std::to_string(v.index) : "v?"; }

  void loop_op(const LoopOp& op) {
    const OpRow& row = op_row(op.code);
    if (op.code == OpCode::Store) {
      out_ += std::string(op.atomic_add ? "store_add %" : "store %") + std::to_string(op.buffer.index) + "[" +
              expr(op.index) + "] = " + value(op.args[0]);
      return;
    }
    if (op.code == OpCode::Indirect) {
      out_ += "indirect " + expr(op.index) + " = " + value(op.args[0]);
      if (op.check != loop::IndexCheck{}) {
        out_ += " check " + std::string(name(op.check.fault)) + " " + std::to_string(op.check.dim);
        if (!op.check.wrap) out_ += " nonnegative";
      }
      out_ += " bound " + expr(op.bound);
      return;
    }
    out_ += value(op.result) + " = " + text::lower(row.name) + " " + std::string(name(op.dtype));
    switch (op.code) {
      case OpCode::Load: out_ += " %" + std::to_string(op.buffer.index) + "[" + expr(op.index) + "]"; return;
      case OpCode::Const:
        out_ += " " + (is_floating(op.dtype) ? number(op.number) : std::to_string(op.integer));
        return;
      case OpCode::Index: out_ += " " + expr(op.index); return;
      case OpCode::Reduce:
      case OpCode::Scan: out_ += std::string(" ") + reduce_row(op.reduce).name; break;
      default: break;
    }
    for (int i = 0; i < row.arity; ++i) out_ += (i ? ", " : " ") + value(op.args[static_cast<size_t>(i)]);
  }

  std::string view(const View& v) {
    return "%" + std::to_string(v.buffer.index) + " " + std::string(name(v.dtype)) + " sizes " + list(v.sizes) +
           " strides " + list(v.strides) + " offset " + expr(v.offset);
  }

  std::string arg(const ExternArg& a) {
    struct V {
      Printer& p;
      std::string operator()(graph::NoneArg) { return "none"; }
      std::string operator()(ViewRef v) { return "view(" + ref(v) + ")"; }
      std::string operator()(const std::vector<ViewRef>& v) {
        std::string r = "views[";
        for (size_t i = 0; i < v.size(); ++i) r += (i ? ", " : "") + ref(v[i]);
        return r + "]";
      }
      std::string operator()(bool b) { return b ? "true" : "false"; }
      std::string operator()(Expr e) { return "int(" + p.expr(e) + ")"; }
      std::string operator()(double d) { return "float(" + number(d) + ")"; }
      std::string operator()(const std::string& s) { return quote(s); }
      std::string operator()(DType d) { return "dtype(" + std::string(name(d)) + ")"; }
      std::string operator()(Device d) { return "device(" + device(d) + ")"; }
      std::string operator()(graph::MemoryFormatArg m) { return "memory_format(" + std::to_string(m.value) + ")"; }
      std::string operator()(graph::LayoutArg m) { return "layout(" + std::to_string(m.value) + ")"; }
      std::string operator()(const graph::IntList& l) { return "ints" + p.list(l.v); }
      std::string operator()(const graph::DoubleList& l) {
        std::string r = "floats[";
        for (size_t i = 0; i < l.v.size(); ++i) r += (i ? ", " : "") + number(l.v[i]);
        return r + "]";
      }
      std::string operator()(const graph::BoolList& l) {
        std::string r = "bools[";
        for (size_t i = 0; i < l.v.size(); ++i) r += std::string(i ? ", " : "") + (l.v[i] ? "true" : "false");
        return r + "]";
      }
      std::string operator()(graph::OpaqueArg o) { return "opaque(" + std::to_string(o.index) + ")"; }
      static std::string ref(ViewRef v) { return v.valid() ? std::to_string(v.index) : "none"; }
    };
    return std::visit(V{*this}, a);
  }

  void call(const ExternCall& c) {
    out_ += "extern " + quote(c.name) + (c.preallocated ? " preallocated" : " allocates") + " (";
    for (size_t i = 0; i < c.args.size(); ++i) out_ += (i ? ", " : "") + arg(c.args[i]);
    out_ += ") lists [";
    for (size_t i = 0; i < c.list_sizes.size(); ++i) out_ += (i ? ", " : "") + std::to_string(c.list_sizes[i]);
    out_ += "] locs [";
    for (size_t i = 0; i < c.locs.size(); ++i) out_ += (i ? ", " : "") + std::to_string(c.locs[i].index);
    out_ += "] {\n";
    for (const View& v : c.views) out_ += "  view " + view(v) + "\n";
    for (const View& v : c.outputs)
      out_ += v.buffer.valid() ? "  result " + view(v) + "\n" : std::string("  result none\n");
    out_ += "}\n";
  }

  const Program& p_;
  sym::ExprArena& arena_;
  std::string out_;
};

}  // namespace

std::string print(const Program& p) { return Printer(p).program(); }
std::string print(const Program& p, const Nest& n) { return Printer(p).one(n); }

}  // namespace braze::loop
