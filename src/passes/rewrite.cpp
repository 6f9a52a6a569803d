#include "passes/rewrite.h"

#include <bit>
#include <cmath>

#include "base/hash.h"

namespace braze::passes {

Rewriter::Rewriter(const Graph& from) : Rewriter(from, from.inputs) { out_.size_symbols = from.size_symbols; }

Rewriter::Rewriter(const Graph& from, const std::vector<graph::Input>& inputs)
    : from_(from), out_(from.shared_arena()), map_(from.values().size()) {
  for (const graph::Location& l : from.locations()) out_.add_location(l);
  for (const graph::Input& in : inputs) {
    const graph::Value& v = from.value(in.value);
    map_[in.value.index] = out_.add_input(v.type, in.kind, v.name);
  }
}

std::vector<Arg> Rewriter::map_args(const Node& node) const {
  std::vector<Arg> args = node.args;
  for (Arg& a : args) {
    if (auto* v = std::get_if<ValueId>(&a)) *v = map(*v);
    if (auto* l = std::get_if<TensorList>(&a))
      for (ValueId& v : *l) v = map(v);
  }
  return args;
}

NodeId Rewriter::copy(const Node& node) { return copy(node, map_args(node)); }

NodeId Rewriter::copy(const Node& node, std::vector<Arg> args) {
  std::vector<TensorType> types;
  types.reserve(node.outputs.size());
  bool all = true;
  for (ValueId v : node.outputs) {
    all &= v.valid();
    if (v.valid()) types.push_back(from_.type(v));
  }
  NodeId id =
      out_.add_node(node.op, std::move(args), std::move(types), node.origin(), node.extern_name, node.list_sizes);
  Node& made = out_.node(id);
  if (!all) {
    std::vector<ValueId> outputs;
    size_t k = 0;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      ValueId v = node.outputs[i].valid() ? made.outputs[k++] : ValueId();
      if (v.valid()) out_.value(v).index = static_cast<uint32_t>(i);
      outputs.push_back(v);
    }
    made.outputs = std::move(outputs);
  }
  for (size_t i = 0; i < node.outputs.size(); ++i)
    if (node.outputs[i].valid()) {
      map_[node.outputs[i].index] = made.outputs[i];
      out_.value(made.outputs[i]).name = from_.value(node.outputs[i]).name;
    }
  return id;
}

Graph Rewriter::finish() {
  for (ValueId v : from_.outputs) out_.outputs.push_back(map(v));
  for (const graph::Writeback& w : from_.writebacks) out_.writebacks.push_back({map(w.input), map(w.value)});
  return std::move(out_);
}

std::vector<bool> escaping(const Graph& g) {
  std::vector<bool> out(g.values().size(), false);
  for (ValueId v : g.outputs)
    if (v.valid()) out[v.index] = true;
  for (const graph::Writeback& w : g.writebacks) out[w.value.index] = true;
  for (size_t i = g.nodes().size(); i-- > 0;) {
    const Node& n = g.node(NodeId(i));
    if (graph::op_class(n.op) != graph::OpClass::View) continue;
    bool any = false;
    for (ValueId v : n.outputs) any |= v.valid() && out[v.index];
    if (any) Graph::for_each_operand(n, [&](ValueId v) { out[v.index] = true; });
  }
  return out;
}

bool is_number(const Graph& g, const Arg& a, double value) {
  if (auto* d = std::get_if<double>(&a)) return *d == value && std::signbit(*d) == std::signbit(value);
  if (auto* e = std::get_if<sym::Expr>(&a)) return g.arena().is_const(*e, static_cast<int64_t>(value));
  return false;
}

bool is_one(const Graph& g, const Arg& a) { return is_number(g, a, 1); }
bool is_one_or_absent(const Graph& g, const Node& n, size_t i) { return i >= n.args.size() || is_one(g, n.args[i]); }

std::vector<uint32_t> use_counts(const Graph& g) {
  std::vector<uint32_t> uses(g.values().size(), 0);
  for (const Node& n : g.nodes()) Graph::for_each_operand(n, [&](ValueId v) { ++uses[v.index]; });
  for (ValueId v : g.outputs)
    if (v.valid()) ++uses[v.index];
  for (const graph::Writeback& w : g.writebacks) ++uses[w.value.index];
  return uses;
}

uint64_t hash_of(const std::vector<Arg>& args) {
  Hasher h;
  struct Visit {
    Hasher& h;
    void operator()(graph::NoneArg) {}
    void operator()(ValueId v) { h.add(v.index); }
    void operator()(const TensorList& l) {
      for (ValueId v : l) h.add(v.index);
    }
    void operator()(bool b) { h.add(b); }
    void operator()(sym::Expr e) { h.add(e.id); }
    void operator()(double d) { h.add(d); }
    void operator()(const std::string& s) { h.add(std::string_view(s)); }
    void operator()(DType d) { h.add(d); }
    void operator()(Device d) { h.add(d.type), h.add(d.index); }
    void operator()(graph::MemoryFormatArg m) { h.add(m.value); }
    void operator()(graph::LayoutArg l) { h.add(l.value); }
    void operator()(const graph::IntList& l) {
      for (sym::Expr e : l.v) h.add(e.id);
    }
    void operator()(const graph::DoubleList& l) {
      for (double d : l.v) h.add(d);
    }
    void operator()(const graph::BoolList& l) {
      for (bool b : l.v) h.add(b);
    }
    void operator()(graph::OpaqueArg q) { h.add(q.index); }
  };
  for (const Arg& a : args) {
    h.add(a.index());
    std::visit(Visit{h}, a);
  }
  return h.value();
}

bool same_args(const std::vector<Arg>& a, const std::vector<Arg>& b) {
  auto bits = [](double d) { return std::bit_cast<uint64_t>(d); };
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].index() != b[i].index()) return false;
    if (auto* d = std::get_if<double>(&a[i])) {
      if (bits(*d) != bits(std::get<double>(b[i]))) return false;
    } else if (auto* l = std::get_if<graph::DoubleList>(&a[i])) {
      const auto& m = std::get<graph::DoubleList>(b[i]);
      if (l->v.size() != m.v.size()) return false;
      for (size_t k = 0; k < l->v.size(); ++k)
        if (bits(l->v[k]) != bits(m.v[k])) return false;
    } else if (a[i] != b[i]) {
      return false;
    }
  }
  return true;
}

bool holds_all_of(DType wide, DType narrow) {
  if (wide == narrow) return true;
  if (narrow == DType::Bool) return !is_complex(wide);
  if (narrow == DType::BF16 || narrow == DType::F16) return wide == DType::F32 || wide == DType::F64;
  if (narrow == DType::F32) return wide == DType::F64;
  if (narrow == DType::U8 || narrow == DType::I8 || narrow == DType::I16)
    return wide == DType::I32 || wide == DType::I64 || wide == DType::F32 || wide == DType::F64;
  return narrow == DType::I32 && (wide == DType::I64 || wide == DType::F64);
}

bool is_reshape(Op op) { return op == Op::view || op == Op::_unsafe_view || op == Op::reshape; }

bool same_type(const TensorType& a, const TensorType& b) {
  return a.dtype == b.dtype && a.device == b.device && a.sizes == b.sizes && a.strides == b.strides &&
         a.offset == b.offset;
}

}  // namespace braze::passes
