#include "graph/archive.h"

#include "symbolic/given_symbol.h"

namespace braze::graph {

namespace {

// Values are numbered in the order of their definition, as in the text form; of nodes, one that is not defined has no
// number.
class GraphPacker {
 public:
  GraphPacker(sym::Packer& out, const Graph& g) : out_(out), g_(g), number_(g.values().size()) {}

  void run() {
    out_(g_.inputs.size());
    for (const Input& in : g_.inputs) {
      const Value& v = g_.value(in.value);
      out_(in.kind, v.type, v.name);
      define(in.value);
    }
    out_(g_.size_symbols, g_.locations().size(), g_.nodes().size());
    for (const Node& n : g_.nodes()) node(n);
    values(g_.outputs);
    out_(g_.writebacks.size());
    for (const Writeback& w : g_.writebacks) value(w.input), value(w.value);
  }

 private:
  void define(ValueId v) { number_[v.index] = ValueId(next_++); }
  void value(ValueId v) { out_(v.valid() ? number_.at(v.index) : v); }
  void values(const std::vector<ValueId>& list) {
    out_(list.size());
    for (ValueId v : list) value(v);
  }

  void node(const Node& n) {
    const auto& [op, extern_name, args, outputs, list_sizes, loc, checkpoint] = n;
    out_(op, extern_name, args.size());
    for (const Arg& a : args) {
      out_(a.index());
      std::visit([&](const auto& x) { argument(x); }, a);
    }
    out_(list_sizes, loc, checkpoint, outputs.size());
    for (ValueId v : outputs) {
      out_(v.valid());
      if (!v.valid()) continue;
      out_(g_.type(v), g_.value(v).name);
      define(v);
    }
  }
  template <class T>
  void argument(const T& x) {
    out_(x);
  }
  void argument(ValueId v) { value(v); }
  void argument(const TensorList& l) { values(l); }

  sym::Packer& out_;
  const Graph& g_;
  std::vector<ValueId> number_;
  size_t next_ = 0;
};

class GraphUnpacker {
 public:
  GraphUnpacker(sym::Unpacker& in, const Graph& like) : in_(in), g_(like.shared_arena()) {
    for (const Location& l : like.locations()) g_.add_location(l);
  }

  Graph run() {
    for (size_t n = in_.count(); n > 0; --n) {
      auto kind = in_.get<InputKind>();
      auto type = in_.get<TensorType>();
      g_.add_input(std::move(type), kind, in_.get<std::string>());
    }
    in_(g_.size_symbols);
    for (const auto& [symbol, where] : g_.size_symbols) {
      if (g_.arena().kind(symbol) != sym::Kind::Symbol) damaged("a size that is no symbol");
      if (where.first != sym::kGivenSymbol && where.first >= g_.inputs.size()) damaged("a size of no input");
    }
    if (in_.get<size_t>() != g_.locations().size()) damaged("other lines of the program");
    for (size_t n = in_.count(); n > 0; --n) node();
    g_.outputs = values();
    for (size_t n = in_.count(); n > 0; --n) {
      ValueId to = value(), from = value();
      g_.writebacks.push_back({to, from});
    }
    verify(g_);
    return std::move(g_);
  }

 private:
  ValueId value() {
    auto v = in_.get<ValueId>();
    if (v.valid() && v.index >= g_.values().size()) damaged("a value before its definition");
    return v;
  }
  std::vector<ValueId> values() {
    std::vector<ValueId> out(in_.count());
    for (ValueId& v : out) v = value();
    return out;
  }

  void node() {
    auto op = in_.get<Op>();
    auto name = in_.get<std::string>();
    std::vector<Arg> args(in_.count());
    for (Arg& a : args) argument(a, in_.get<size_t>(), std::make_index_sequence<std::variant_size_v<Arg>>());
    auto lists = in_.get<std::vector<int32_t>>();
    Origin origin{in_.get<LocId>(), {}};
    in_(origin.checkpoint);
    if (origin.loc.valid() && origin.loc.index >= g_.locations().size()) damaged("no such line of the program");
    std::vector<TensorType> types;
    std::vector<std::string> names;
    std::vector<bool> defined(in_.count());
    for (size_t i = 0; i < defined.size(); ++i) {
      if (!(defined[i] = in_.get<bool>())) continue;
      types.push_back(in_.get<TensorType>());
      names.push_back(in_.get<std::string>());
    }
    NodeId id = g_.add_node(op, std::move(args), std::move(types), origin, std::move(name));
    g_.node(id).list_sizes = std::move(lists);
    std::vector<ValueId> outputs;
    size_t k = 0;
    for (size_t i = 0; i < defined.size(); ++i) {
      ValueId v = defined[i] ? g_.node(id).outputs[k] : ValueId();
      if (v.valid()) {
        g_.value(v).index = static_cast<uint32_t>(i);
        g_.value(v).name = std::move(names[k++]);
      }
      outputs.push_back(v);
    }
    g_.node(id).outputs = std::move(outputs);
  }

  template <size_t... i>
  void argument(Arg& a, size_t which, std::index_sequence<i...>) {
    if (which >= sizeof...(i)) damaged("an unknown kind of argument");
    ((which == i ? read(a.template emplace<i>()) : void()), ...);
  }
  template <class T>
  void read(T& x) {
    in_(x);
  }
  void read(ValueId& v) { v = value(); }
  void read(TensorList& l) { l = values(); }

  sym::Unpacker& in_;
  Graph g_;
};

}  // namespace

void pack(sym::Packer& out, const Graph& g) { GraphPacker(out, g).run(); }

Graph unpack(sym::Unpacker& in, const Graph& like) { return GraphUnpacker(in, like).run(); }

}  // namespace braze::graph
