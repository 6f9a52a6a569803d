// The text form, as parse.cpp reads it:
//
//   graph {
//     symbol s0 size 2 1024
//     loc 0 "model.py" 12 "forward" "y = x + 1"
//     %0: f32[4,s0] = input argument "x"
//     size s0 %0 1
//     %1: f32[4,s0]{1,4} = aten::add.Tensor(%0, 1.0, 1)  # loc 0
//     %2: f32[4,s0] = aten::sin(%1) checkpoint 1 must_recompute
//     return %2, none
//     writeback %0 %1
//   }
//
// Values are numbered in the order of definition. Strides are left out when contiguous, the offset when 0, the device
// when it is the CPU. Kinds of arguments: none, %1, tensors[%1, none], true, 12, s0, (4*s0), 1.5, inf, "text",
// dtype.f32, device.cuda:0, format.0, layout.0, [1, 2], doubles[1.5], bools[true], opaque.0.
#include <array>
#include <charconv>
#include <cmath>

#include "graph/graph.h"
#include "graph/text.h"
#include "symbolic/given_symbol.h"

namespace braze::graph {
namespace text {

std::string quoted(std::string_view s) {
  std::string out = "\"";
  for (char c : s) {
    if (c == '"' || c == '\\')
      out += '\\', out += c;
    else if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  return out + "\"";
}

std::string number(double v) {
  if (std::isnan(v)) return "nan";
  if (std::isinf(v)) return v > 0 ? "inf" : "-inf";
  std::array<char, 64> buffer;
  auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), v).ptr;
  std::string s(buffer.data(), end);
  if (s.find_first_of(".e") == std::string::npos) s += ".0";
  return s;
}

std::string device(Device d) {
  std::string s(kDeviceNames[static_cast<size_t>(d.type)]);
  if (d.index >= 0) s += ":" + std::to_string(d.index);
  return s;
}

}  // namespace text

namespace {

class Printer {
 public:
  explicit Printer(const Graph& g) : g_(g), arena_(g.arena()), number_(g.values().size(), -1) {}

  std::string run() {
    for (const Input& in : g_.inputs) define(in.value);
    for (const Node& n : g_.nodes())
      for (ValueId v : n.outputs)
        if (v.valid()) define(v);
    std::string body;
    std::swap(body, out_);
    body_lines();
    std::swap(body, out_);
    out_ = "graph {\n";
    for (Expr s : symbols_) {
      sym::Range r = arena_.range(s);
      out_ += "  symbol " + std::string(arena_.symbol_name(s)) + " " +
              std::string(text::kSymbolKinds[static_cast<size_t>(arena_.symbol_kind(s))]) + " " + std::to_string(r.lo) +
              " " + std::to_string(r.hi) + "\n";
    }
    return out_ + body + "}\n";
  }

 private:
  void define(ValueId v) { number_[v.index] = next_++; }

  void body_lines() {
    size_t i = 0;
    for (const Location& l : g_.locations())
      out_ += "  loc " + std::to_string(i++) + " " + text::quoted(l.file) + " " + std::to_string(l.line) + " " +
              text::quoted(l.function) + " " + text::quoted(l.text) + "\n";
    for (const Input& in : g_.inputs) {
      const Value& v = g_.value(in.value);
      out_ += "  ";
      definition(in.value);
      out_ += " = input " + std::string(text::kInputKinds[static_cast<size_t>(in.kind)]);
      if (!v.name.empty()) out_ += " " + text::quoted(v.name);
      out_ += "\n";
    }
    for (const auto& [symbol, where] : g_.size_symbols) {
      auto [input, dim] = where;
      if (input == sym::kGivenSymbol) {
        out_ += "  given ";
        expr(symbol);
        out_ += "\n";
        continue;
      }
      out_ += dim >= 0 ? "  size " : "  stride ";
      expr(symbol);
      out_ += " ";
      value(g_.inputs[input].value);
      out_ += " " + std::to_string(dim >= 0 ? dim : ~dim) + "\n";
    }
    for (const Node& n : g_.nodes()) node(n);
    out_ += "  return";
    for (size_t k = 0; k < g_.outputs.size(); ++k) {
      out_ += k ? ", " : " ";
      value(g_.outputs[k]);
    }
    out_ += "\n";
    for (const Writeback& w : g_.writebacks) {
      out_ += "  writeback ";
      value(w.input);
      out_ += " ";
      value(w.value);
      out_ += "\n";
    }
  }

  void node(const Node& n) {
    out_ += "  ";
    bool first = true;
    for (ValueId v : n.outputs) {
      if (!first) out_ += ", ";
      first = false;
      v.valid() ? definition(v) : value(v);
    }
    out_ += n.outputs.empty() ? "= " : " = ";
    out_ += n.op == Op::Extern ? n.extern_name : op_name(n.op);
    out_ += "(";
    for (size_t i = 0; i < n.args.size(); ++i) {
      if (i) out_ += ", ";
      arg(n.args[i]);
    }
    out_ += ")";
    bool plain = n.list_sizes.size() == n.outputs.size();
    for (int32_t s : n.list_sizes) plain &= s == -1;
    if (!plain) {
      out_ += " lists";
      for (int32_t s : n.list_sizes) out_ += " " + std::to_string(s);
    }
    if (n.checkpoint.region)
      out_ += " checkpoint " + std::to_string(n.checkpoint.region) + " " +
              std::string(text::kKeeps[static_cast<size_t>(n.checkpoint.keep)]) + (n.checkpoint.again ? " again" : "");
    if (n.loc.valid()) out_ += "  # loc " + std::to_string(n.loc.index);
    out_ += "\n";
  }

  void value(ValueId v) {
    if (!v.valid())
      out_ += "none";
    else if (v.index >= number_.size() || number_[v.index] < 0)
      out_ += "%undefined";
    else
      out_ += "%" + std::to_string(number_[v.index]);
  }
  void definition(ValueId v) {
    value(v);
    out_ += ": ";
    type(g_.type(v));
  }
  void type(const TensorType& t) {
    out_ += name(t.dtype);
    exprs('[', ']', t.sizes, ",");
    if (t.strides != contiguous_strides(arena_, t.sizes)) exprs('{', '}', t.strides, ",");
    if (!arena_.is_const(t.offset, 0)) out_ += " offset ", expr(t.offset);
    if (t.device != Device{}) out_ += " on " + text::device(t.device);
  }
  void exprs(char open, char close, const std::vector<Expr>& list, std::string_view separator) {
    out_ += open;
    for (size_t i = 0; i < list.size(); ++i) {
      if (i) out_ += separator;
      expr(list[i]);
    }
    out_ += close;
  }
  void expr(Expr e) {
    if (auto c = arena_.as_const(e)) {
      out_ += std::to_string(*c);
      return;
    }
    arena_.collect_symbols(e, symbols_);
    if (arena_.kind(e) == sym::Kind::Symbol)
      out_ += arena_.symbol_name(e);
    else
      out_ += "(" + arena_.print(e) + ")";
  }

  template <class L, class F>
  void list(std::string_view open, const L& l, F&& one) {
    out_ += open;
    for (size_t i = 0; i < l.size(); ++i) {
      if (i) out_ += ", ";
      one(l[i]);
    }
    out_ += "]";
  }

  void arg(const Arg& a) {
    struct Visit {
      Printer& p;
      std::string& o;
      void operator()(NoneArg) { o += "none"; }
      void operator()(ValueId v) { p.value(v); }
      void operator()(const TensorList& l) {
        p.list("tensors[", l, [&](ValueId v) { p.value(v); });
      }
      void operator()(bool b) { o += b ? "true" : "false"; }
      void operator()(Expr e) { p.expr(e); }
      void operator()(double d) { o += text::number(d); }
      void operator()(const std::string& s) { o += text::quoted(s); }
      void operator()(DType d) { o += "dtype.", o += name(d); }
      void operator()(Device d) { o += "device." + text::device(d); }
      void operator()(MemoryFormatArg m) { o += "format." + std::to_string(m.value); }
      void operator()(LayoutArg l) { o += "layout." + std::to_string(l.value); }
      void operator()(const IntList& l) { p.exprs('[', ']', l.v, ", "); }
      void operator()(const DoubleList& l) {
        p.list("doubles[", l.v, [&](double d) { o += text::number(d); });
      }
      void operator()(const BoolList& l) {
        p.list("bools[", l.v, [&](bool b) { o += b ? "true" : "false"; });
      }
      void operator()(OpaqueArg q) { o += "opaque." + std::to_string(q.index); }
    };
    std::visit(Visit{*this, out_}, a);
  }

  const Graph& g_;
  sym::ExprArena& arena_;
  std::vector<int32_t> number_;
  int32_t next_ = 0;
  std::vector<Expr> symbols_;
  std::string out_;
};

}  // namespace

std::string print(const Graph& g) { return Printer(g).run(); }

}  // namespace braze::graph
