// Reads the text form that print.cpp describes. Whole-line comments start with // or #.
#include <cctype>
#include <charconv>
#include <limits>

#include "base/check.h"
#include "graph/graph.h"
#include "graph/text.h"
#include "symbolic/given_symbol.h"

namespace braze::graph {
namespace {

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text), graph_(std::make_shared<sym::ExprArena>()) {}

  Graph run() {
    lines();
    expect("graph");
    expect("{");
    while (lines(), !take("}")) line();
    lines();
    if (at_ != text_.size()) fail("text after the graph");
    return std::move(graph_);
  }

 private:
  sym::ExprArena& arena() { return graph_.arena(); }

  [[noreturn]] void fail(const std::string& what) {
    size_t line = 1, start = 0;
    for (size_t i = 0; i < at_ && i < text_.size(); ++i)
      if (text_[i] == '\n') ++line, start = i + 1;
    throw InternalError("graph text, line " + std::to_string(line) + ", column " + std::to_string(at_ - start + 1) +
                        ": " + what);
  }

  char here() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void space() {
    while (here() == ' ' || here() == '\t') ++at_;
  }
  void lines() {  // white space, line ends and whole-line comments
    while (true) {
      while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(here()))) ++at_;
      if (!text_.substr(at_).starts_with("//") && here() != '#') return;
      while (at_ < text_.size() && here() != '\n') ++at_;
    }
  }
  bool take(std::string_view token) {
    space();
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }
  void expect(std::string_view token) {
    if (!take(token)) fail("expected '" + std::string(token) + "'");
  }
  static bool word_char(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == ':';
  }
  std::string_view word() {
    space();
    size_t start = at_;
    while (word_char(here())) ++at_;
    if (start == at_) fail("expected a word");
    return text_.substr(start, at_ - start);
  }
  bool peek_word(std::string_view w) {
    space();
    return text_.substr(at_).starts_with(w) && (at_ + w.size() >= text_.size() || !word_char(text_[at_ + w.size()]));
  }
  bool take_word(std::string_view w) {
    if (!peek_word(w)) return false;
    at_ += w.size();
    return true;
  }
  int64_t integer() {
    space();
    int64_t v = 0;
    auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), v);
    if (error != std::errc()) fail("expected an integer");
    at_ = static_cast<size_t>(end - text_.data());
    return v;
  }
  std::string string() {
    expect("\"");
    std::string out;
    while (here() != '"') {
      if (at_ >= text_.size()) fail("unfinished string");
      char c = text_[at_++];
      if (c == '\\') c = text_[at_++] == 'n' ? '\n' : text_[at_ - 1];
      out += c;
    }
    ++at_;
    return out;
  }
  template <size_t N>
  size_t one_of(const std::string_view (&words)[N]) {
    size_t start = at_;
    std::string_view w = word();
    for (size_t i = 0; i < N; ++i)
      if (w == words[i]) return i;
    at_ = start;
    fail("unknown word");
  }

  Expr expr() {
    space();
    if (here() == '(') {
      size_t start = at_ + 1, depth = 0;
      do {
        if (at_ >= text_.size()) fail("unbalanced parenthesis");
        if (here() == '(') ++depth;
        if (here() == ')') --depth;
        ++at_;
      } while (depth);
      return arena().parse(text_.substr(start, at_ - 1 - start));
    }
    if (here() == '-' || std::isdigit(static_cast<unsigned char>(here()))) return arena().constant(integer());
    return arena().parse(word());
  }
  std::vector<Expr> exprs(std::string_view close) {
    std::vector<Expr> out;
    if (take(close)) return out;
    do out.push_back(expr());
    while (take(","));
    expect(close);
    return out;
  }

  Device device(std::string_view w) {
    size_t colon = w.find(':');
    Device d;
    if (colon != std::string_view::npos) d.index = static_cast<int8_t>(std::stoi(std::string(w.substr(colon + 1))));
    std::string_view base = w.substr(0, colon);
    for (size_t i = 0; i < std::size(text::kDeviceNames); ++i)
      if (text::kDeviceNames[i] == base) {
        d.type = static_cast<DeviceType>(i);
        return d;
      }
    fail("unknown device '" + std::string(w) + "'");
  }

  TensorType type() {
    TensorType t;
    auto d = dtype_from_name(word());
    if (!d) fail("unknown dtype");
    t.dtype = *d;
    expect("[");
    t.sizes = exprs("]");
    t.strides = take("{") ? exprs("}") : contiguous_strides(arena(), t.sizes);
    if (t.strides.size() != t.sizes.size()) fail("as many strides as sizes are needed");
    t.offset = take_word("offset") ? expr() : arena().constant(0);
    if (take_word("on")) t.device = device(word());
    return t;
  }

  ValueId value() {
    if (take_word("none")) return {};
    expect("%");
    int64_t n = integer();
    if (n < 0 || static_cast<size_t>(n) >= graph_.values().size())
      fail("value %" + std::to_string(n) + " is not defined above");
    return ValueId(static_cast<size_t>(n));
  }

  Arg argument() {
    space();
    char c = here();
    if (c == '%') return value();
    if (c == '"') return string();
    if (c == '[') {
      ++at_;
      return IntList{exprs("]")};
    }
    if (c == '(') return expr();
    if (take("tensors[")) {
      TensorList l;
      list([&] { l.push_back(value()); });
      return l;
    }
    if (take("doubles[")) {
      DoubleList l;
      list([&] { l.v.push_back(std::get<double>(number())); });
      return l;
    }
    if (take("bools[")) {
      BoolList l;
      list([&] { l.v.push_back(word() == "true"); });
      return l;
    }
    if (c == '-' || std::isdigit(static_cast<unsigned char>(c)) || peek_word("inf") || peek_word("nan"))
      return number();
    size_t start = at_;
    std::string_view w = word();
    if (w == "none") return NoneArg{};
    if (w == "true") return true;
    if (w == "false") return false;
    auto rest = [&](std::string_view prefix) { return w.substr(prefix.size()); };
    auto small = [&](std::string_view prefix) { return std::stoi(std::string(rest(prefix))); };
    if (w.starts_with("dtype.")) {
      auto d = dtype_from_name(rest("dtype."));
      if (!d) fail("unknown dtype");
      return *d;
    }
    if (w.starts_with("device.")) return device(rest("device."));
    if (w.starts_with("format.")) return MemoryFormatArg{static_cast<int8_t>(small("format."))};
    if (w.starts_with("layout.")) return LayoutArg{static_cast<int8_t>(small("layout."))};
    if (w.starts_with("opaque.")) return OpaqueArg{static_cast<uint32_t>(small("opaque."))};
    at_ = start;
    return expr();
  }
  template <class F>
  void list(F&& one) {
    if (take("]")) return;
    do one();
    while (take(","));
    expect("]");
  }
  Arg number() {  // a double when it is written as one, else an integer
    space();
    size_t end = at_;
    if (text_[end] == '-') ++end;
    bool is_double = text_.substr(end).starts_with("inf") || text_.substr(end).starts_with("nan");
    if (!is_double) {
      while (end < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[end])) || text_[end] == '.' ||
                                    ((text_[end] == '-' || text_[end] == '+') && text_[end - 1] == 'e')))
        ++end;
      is_double = text_.substr(at_, end - at_).find_first_of(".e") != std::string_view::npos;
    }
    if (!is_double) return arena().constant(integer());
    double v = 0;
    auto [p, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), v);
    if (error != std::errc()) fail("bad number");
    at_ = static_cast<size_t>(p - text_.data());
    return v;
  }

  void line() {
    if (take_word("symbol")) {
      std::string name(word());
      auto kind = static_cast<sym::SymbolKind>(one_of(text::kSymbolKinds));
      int64_t lo = integer(), hi = integer();
      arena().symbol(name, kind, {lo, hi});
    } else if (take_word("loc")) {
      integer();
      Location l;
      l.file = string();
      l.line = static_cast<int>(integer());
      l.function = string();
      l.text = string();
      graph_.add_location(std::move(l));
    } else if (take_word("given")) {
      graph_.size_symbols.push_back({expr(), {sym::kGivenSymbol, 0}});
    } else if (peek_word("size") || peek_word("stride")) {
      bool is_size = word() == "size";
      Expr symbol = expr();
      ValueId v = value();
      if (!v.valid() || graph_.value(v).node.valid()) fail("a symbol is bound to an input");
      auto dim = static_cast<int32_t>(integer());
      graph_.size_symbols.push_back({symbol, {graph_.value(v).index, is_size ? dim : ~dim}});
    } else if (take_word("return")) {
      space();
      if (here() == '\n') return;
      do graph_.outputs.push_back(value());
      while (take(","));
    } else if (take_word("writeback")) {
      ValueId input = value(), v = value();
      graph_.writebacks.push_back({input, v});
    } else {
      definition();
    }
  }

  void definition() {
    std::vector<TensorType> types;
    std::vector<bool> defined;
    size_t next = graph_.values().size();
    if (!take("=")) {
      do {
        if (take_word("none")) {
          defined.push_back(false);
          continue;
        }
        expect("%");
        if (integer() != static_cast<int64_t>(next++))
          fail("values are numbered in order: %" + std::to_string(next - 1) + " is next");
        expect(":");
        types.push_back(type());
        defined.push_back(true);
      } while (take(","));
      expect("=");
    }
    if (take_word("input")) {
      if (types.size() != 1) fail("an input defines one value");
      auto kind = static_cast<InputKind>(one_of(text::kInputKinds));
      space();
      graph_.add_input(std::move(types[0]), kind, here() == '"' ? string() : std::string());
      return;
    }
    std::string name(word());
    expect("(");
    std::vector<Arg> args;
    if (!take(")")) {
      do args.push_back(argument());
      while (take(","));
      expect(")");
    }
    std::vector<int32_t> list_sizes;
    if (take_word("lists"))
      while (space(), here() == '-' || std::isdigit(static_cast<unsigned char>(here())))
        list_sizes.push_back(static_cast<int32_t>(integer()));
    else
      list_sizes.assign(defined.size(), -1);
    Origin origin;
    if (take_word("checkpoint")) {
      origin.checkpoint.region = static_cast<uint32_t>(integer());
      origin.checkpoint.keep = static_cast<Keep>(one_of(text::kKeeps));
      origin.checkpoint.again = take_word("again");
    }
    if (take("#")) {
      expect("loc");
      origin.loc = LocId(static_cast<size_t>(integer()));
      if (origin.loc.index >= graph_.locations().size()) fail("no location of this number is declared");
    }
    Op op = op_from_name(name);
    NodeId id = graph_.add_node(op, std::move(args), std::move(types), origin, op == Op::Extern ? name : std::string(),
                                list_sizes);
    std::vector<ValueId> outputs;
    size_t k = 0;
    for (size_t i = 0; i < defined.size(); ++i) {
      ValueId v = defined[i] ? graph_.node(id).outputs[k++] : ValueId();
      if (v.valid()) graph_.value(v).index = static_cast<uint32_t>(i);
      outputs.push_back(v);
    }
    graph_.node(id).outputs = std::move(outputs);
  }

  std::string_view text_;
  size_t at_ = 0;
  Graph graph_;
};

}  // namespace

Graph parse(std::string_view text) { return Parser(text).run(); }

}  // namespace braze::graph
