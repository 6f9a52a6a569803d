// The inverse of print.cpp. A recursive-descent reader over the text; errors name line and column.
#include <algorithm>
#include <cstdlib>

#include "base/check.h"
#include "loop/loop.h"
#include "loop/text.h"
#include "symbolic/given_symbol.h"

namespace braze::loop {
namespace {

class Parser {
 public:
  explicit Parser(std::string_view text)
      : text_(text), program_(std::make_shared<sym::ExprArena>()), arena_(*program_.arena) {}

  Program run() {
    expect("program");
    while (!at_end()) item();
    return std::move(program_);
  }

 private:
  // --- characters
  [[noreturn]] void fail(const std::string& what) {
    size_t line = 1 + static_cast<size_t>(std::count(text_.begin(), text_.begin() + static_cast<long>(pos_), '\n'));
    size_t begin = text_.rfind('\n', pos_ ? pos_ - 1 : 0);
    size_t col = begin == std::string_view::npos || pos_ == 0 ? pos_ + 1 : pos_ - begin;
    throw InternalError("loop program, line " + std::to_string(line) + ", column " + std::to_string(col) + ": " + what);
  }

  void skip() {
    while (pos_ < text_.size()) {
      char c = text_[pos_];
      if (c == ' ' || c == '\n' || c == '\t' || c == '\r')
        ++pos_;
      else if (text_.substr(pos_, 2) == "//") {
        while (pos_ < text_.size() && text_[pos_] != '\n') ++pos_;
      } else
        break;
    }
  }
  bool at_end() {
    skip();
    return pos_ >= text_.size();
  }
  static bool word_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.'; }

  bool accept(std::string_view token) {
    skip();
    if (text_.substr(pos_, token.size()) != token) return false;
    size_t after = pos_ + token.size();
    if (word_char(token.back()) && after < text_.size() && word_char(text_[after])) return false;
    pos_ = after;
    return true;
  }
  void expect(std::string_view token) {
    if (!accept(token)) fail("expected '" + std::string(token) + "'");
  }
  std::string_view word() {
    skip();
    size_t b = pos_;
    while (pos_ < text_.size() && word_char(text_[pos_])) ++pos_;
    if (b == pos_) fail("expected a name");
    return text_.substr(b, pos_ - b);
  }
  int64_t integer() {
    skip();
    size_t b = pos_;
    if (pos_ < text_.size() && text_[pos_] == '-') ++pos_;
    while (pos_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[pos_]))) ++pos_;
    if (b == pos_) fail("expected an integer");
    return std::strtoll(std::string(text_.substr(b, pos_ - b)).c_str(), nullptr, 10);
  }
  double number() {
    skip();
    size_t b = pos_;
    while (pos_ < text_.size() && (word_char(text_[pos_]) || text_[pos_] == '-' || text_[pos_] == '+')) ++pos_;
    std::string s(text_.substr(b, pos_ - b));
    char* end = nullptr;
    double d = std::strtod(s.c_str(), &end);
    if (s.empty() || *end) fail("expected a number");
    return d;
  }
  std::string string() {
    expect("\"");
    std::string r;
    while (pos_ < text_.size() && text_[pos_] != '"') {
      if (text_[pos_] == '\\') {
        ++pos_;
        r += pos_ < text_.size() && text_[pos_] == 'n' ? '\n' : text_[pos_];
      } else
        r += text_[pos_];
      ++pos_;
    }
    if (pos_ >= text_.size()) fail("unterminated string");
    ++pos_;
    return r;
  }

  // An expression ends before ',', ']', ')', '}' or ':' outside its own parentheses, or at the line's end.
  Expr expr() {
    skip();
    size_t b = pos_;
    int depth = 0;
    for (; pos_ < text_.size(); ++pos_) {
      char c = text_[pos_];
      if (c == '(') ++depth;
      if (c == '\n') break;
      if (depth == 0 && (c == ',' || c == ']' || c == ')' || c == '}' || c == ':')) break;
      if (c == ')') --depth;
    }
    std::string_view s = text_.substr(b, pos_ - b);
    while (!s.empty() && (s.back() == ' ' || s.back() == '\r')) s.remove_suffix(1);
    if (s.empty()) fail("expected an expression");
    return arena_.parse(s);
  }

  std::vector<Expr> exprs() {
    expect("[");
    std::vector<Expr> v;
    if (accept("]")) return v;
    do v.push_back(expr());
    while (accept(","));
    expect("]");
    return v;
  }
  template <class F>
  void list(F&& f) {
    expect("[");
    if (accept("]")) return;
    do f();
    while (accept(","));
    expect("]");
  }

  template <class T, size_t N>
  T one_of(const char* const (&names)[N], std::string_view what) {
    std::string_view w = word();
    for (size_t i = 0; i < N; ++i)
      if (w == names[i]) return static_cast<T>(i);
    fail("unknown " + std::string(what) + " '" + std::string(w) + "'");
  }
  ReduceKind reduction() {
    std::string_view w = word();
    for (size_t i = 0; i < std::size(kReduceRows); ++i)
      if (w == kReduceRows[i].name) return static_cast<ReduceKind>(i);
    fail("unknown reduction '" + std::string(w) + "'");
  }
  DType dtype() {
    std::string_view w = word();
    auto d = dtype_from_name(w);
    if (!d) fail("unknown dtype '" + std::string(w) + "'");
    return *d;
  }
  Device device() {
    Device d;
    d.type = one_of<DeviceType>(text::kDeviceNames, "device");
    if (accept(":")) d.index = static_cast<int8_t>(integer());
    return d;
  }
  BufferId buffer_ref() {
    expect("%");
    int64_t i = integer();
    if (i < 0 || static_cast<size_t>(i) >= program_.buffers.size()) fail("unknown buffer");
    return BufferId(static_cast<size_t>(i));
  }
  ValId value_ref() {
    std::string_view w = word();
    if (w.size() < 2 || w[0] != 'v') fail("expected a value");
    return ValId(static_cast<size_t>(std::strtoull(std::string(w.substr(1)).c_str(), nullptr, 10)));
  }
  Expr symbol_named(std::string_view name, sym::SymbolKind kind, Expr extent) {
    if (auto s = arena_.find_symbol(name)) return *s;
    int64_t hi = arena_.range(extent).hi;
    return arena_.symbol(std::string(name), kind, {0, hi == INT64_MAX ? hi : std::max<int64_t>(hi - 1, 0)});
  }

  // --- items
  void item() {
    if (accept("symbol")) return symbol();
    if (accept("location")) {
      graph::Location l;
      l.file = string();
      l.function = string();
      l.line = static_cast<int>(integer());
      l.text = string();
      program_.locations.add(std::move(l));
      return;
    }
    if (accept("buffer")) return buffer();
    if (accept("nest")) return nest();
    if (accept("extern")) return call();
    if (accept("output")) return output();
    if (accept("writeback")) {
      Writeback w;
      w.input = static_cast<uint32_t>(integer());
      if ((w.in_place = accept("in"))) expect("place");
      expect("view");
      w.from = view();
      program_.writebacks.push_back(std::move(w));
      return;
    }
    fail("expected symbol, location, buffer, nest, extern, output or writeback");
  }

  void symbol() {
    std::string name(word());
    auto kind = one_of<sym::SymbolKind>(text::kSymbolKinds, "kind of symbol");
    expect("[");
    sym::Range r;
    r.lo = integer();
    expect(",");
    r.hi = integer();
    expect("]");
    Expr s = arena_.symbol(name, kind, r);
    if (accept("=")) {
      if (accept("given")) {
        program_.size_symbols.push_back({s, {sym::kGivenSymbol, 0}});
        return;
      }
      expect("input");
      auto input = static_cast<uint32_t>(integer());
      expect("dim");
      program_.size_symbols.push_back({s, {input, static_cast<int32_t>(integer())}});
    }
  }

  void buffer() {
    expect("%");
    int64_t id = integer();
    if (static_cast<size_t>(id) != program_.buffers.size()) fail("buffers are numbered in order");
    Buffer b;
    b.name = string();
    b.dtype = dtype();
    b.device = device();
    b.kind = one_of<BufferKind>(text::kBufferKinds, "kind of buffer");
    if (b.kind == BufferKind::Input || b.kind == BufferKind::Constant) b.input = static_cast<uint32_t>(integer());
    expect("sizes");
    b.sizes = exprs();
    expect("strides");
    b.strides = exprs();
    b.offset = accept("offset") ? expr() : arena_.constant(0);
    program_.buffers.add(std::move(b));
  }

  std::vector<Axis> axes() {
    std::vector<Axis> v;
    list([&] {
      std::string name(word());
      expect(":");
      Axis a;
      a.extent = expr();
      a.var = symbol_named(name, sym::SymbolKind::LoopVar, a.extent);
      v.push_back(a);
    });
    return v;
  }
  std::vector<graph::LocId> locs() {
    std::vector<graph::LocId> v;
    expect("locs");
    list([&] { v.push_back(graph::LocId(static_cast<size_t>(integer()))); });
    return v;
  }

  void nest() {
    Nest n;
    n.name = string();
    expect("outer");
    n.outer = axes();
    if (accept("vector")) n.mapping.vector = one_of<Mapping::Vector>(text::kVectorNames, "vector mapping");
    if (accept("tile")) n.mapping.tile = static_cast<int>(integer());
    if (accept("grain")) n.mapping.grain = integer();
    n.mapping.ahead = accept("ahead");
    n.commits = accept("commits");
    skip();
    if (text_.substr(pos_, 4) == "locs") n.locs = locs();
    expect("{");
    while (accept("stage")) {
      Stage s;
      s.axes = axes();
      expect("{");
      while (!accept("}")) s.ops.push_back(loop_op(n));
      n.stages.push_back(std::move(s));
    }
    expect("}");
    program_.items.push_back(std::move(n));
  }

  void element(LoopOp& op) {
    op.buffer = buffer_ref();
    expect("[");
    op.index = expr();
    expect("]");
  }

  LoopOp loop_op(Nest& n) {
    LoopOp op;
    bool add = accept("store_add");
    if (add || accept("store")) {
      op.code = OpCode::Store;
      op.atomic_add = add;
      element(op);
      op.dtype = program_.buffers[op.buffer].dtype;
      expect("=");
      op.args[0] = value_ref();
      return op;
    }
    if (accept("indirect")) {
      op.code = OpCode::Indirect;
      op.dtype = DType::I64;
      std::string name(word());
      expect("=");
      op.args[0] = value_ref();
      if (accept("check")) {
        std::string_view named = word();
        auto fault = fault_of(named);
        if (!fault) fail("no fault " + std::string(named));
        op.check.fault = *fault;
        op.check.dim = static_cast<uint8_t>(integer());
        op.check.wrap = !accept("nonnegative");
      }
      expect("bound");
      op.bound = expr();
      op.index = symbol_named(name, sym::SymbolKind::Indirect, op.bound);
      return op;
    }
    op.result = value_ref();
    n.values = std::max(n.values, op.result.index + 1);
    expect("=");
    std::string_view w = word();
    size_t row = 0;
    while (row < std::size(kOpRows) && text::lower(kOpRows[row].name) != w) ++row;
    if (row == std::size(kOpRows)) fail("unknown operation '" + std::string(w) + "'");
    op.code = static_cast<OpCode>(row);
    op.dtype = dtype();
    switch (op.code) {
      case OpCode::Load: element(op); return op;
      case OpCode::Const:
        if (is_floating(op.dtype))
          op.number = number();
        else
          op.integer = integer();
        return op;
      case OpCode::Index: op.index = expr(); return op;
      case OpCode::Reduce:
      case OpCode::Scan: op.reduce = reduction(); break;
      default: break;
    }
    for (int i = 0; i < kOpRows[row].arity; ++i) {
      if (i) expect(",");
      op.args[static_cast<size_t>(i)] = value_ref();
    }
    return op;
  }

  View view() {
    View v;
    v.buffer = buffer_ref();
    v.dtype = dtype();
    expect("sizes");
    v.sizes = exprs();
    expect("strides");
    v.strides = exprs();
    expect("offset");
    v.offset = expr();
    return v;
  }

  ViewRef view_ref() { return accept("none") ? ViewRef() : ViewRef(static_cast<size_t>(integer())); }

  ExternArg arg() {
    skip();
    if (pos_ < text_.size() && text_[pos_] == '"') return string();
    std::string_view w = word();
    if (w == "none") return graph::NoneArg{};
    if (w == "true") return true;
    if (w == "false") return false;
    if (w == "views") {
      std::vector<ViewRef> v;
      list([&] { v.push_back(view_ref()); });
      return v;
    }
    if (w == "ints") return graph::IntList{exprs()};
    if (w == "floats") {
      graph::DoubleList l;
      list([&] { l.v.push_back(number()); });
      return l;
    }
    if (w == "bools") {
      graph::BoolList l;
      list([&] {
        bool t = accept("true");
        if (!t) expect("false");
        l.v.push_back(t);
      });
      return l;
    }
    expect("(");
    ExternArg a;
    if (w == "view")
      a = view_ref();
    else if (w == "int")
      a = expr();
    else if (w == "float")
      a = number();
    else if (w == "dtype")
      a = dtype();
    else if (w == "device")
      a = device();
    else if (w == "memory_format")
      a = graph::MemoryFormatArg{static_cast<int8_t>(integer())};
    else if (w == "layout")
      a = graph::LayoutArg{static_cast<int8_t>(integer())};
    else if (w == "opaque")
      a = graph::OpaqueArg{static_cast<uint32_t>(integer())};
    else
      fail("unknown kind of argument '" + std::string(w) + "'");
    expect(")");
    return a;
  }

  void call() {
    ExternCall c;
    c.name = string();
    c.op = graph::op_from_name(c.name);
    c.preallocated = accept("preallocated");
    if (!c.preallocated) expect("allocates");
    expect("(");
    if (!accept(")")) {
      do c.args.push_back(arg());
      while (accept(","));
      expect(")");
    }
    expect("lists");
    list([&] { c.list_sizes.push_back(static_cast<int32_t>(integer())); });
    c.locs = locs();
    expect("{");
    while (!accept("}")) {
      if (accept("view"))
        c.views.push_back(view());
      else {
        expect("result");
        c.outputs.push_back(accept("none") ? View{} : view());
      }
    }
    program_.items.push_back(std::move(c));
  }

  void output() {
    Output o;
    if (accept("none"))
      o.kind = Output::Kind::None;
    else if (accept("input")) {
      o.kind = Output::Kind::Input;
      o.input = static_cast<uint32_t>(integer());
    } else {
      expect("view");
      o.kind = Output::Kind::View;
      o.view = view();
    }
    program_.outputs.push_back(std::move(o));
  }

  std::string_view text_;
  size_t pos_ = 0;
  Program program_;
  sym::ExprArena& arena_;
};

}  // namespace

Program parse(std::string_view text) { return Parser(text).run(); }

}  // namespace braze::loop
