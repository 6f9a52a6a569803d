#include "passes/upload_scalars.h"

#include <algorithm>
#include <map>

#include "passes/builder.h"
#include "passes/symbols.h"

namespace braze::passes {
namespace {

using graph::OpClass;

bool on_gpu(const TensorType& t) { return t.device.type == DeviceType::CUDA; }

// What is computed on the CPU from nothing of another device's, nor from a number that was read back: it may run first.
class Host {
 public:
  explicit Host(const Graph& g) : g_(g), values_(g.values().size()), nodes_(g.nodes().size()) {
    for (const graph::Input& i : g.inputs) values_[i.value.index] = g.type(i.value).device.type == DeviceType::CPU;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const Node& n = g.node(graph::NodeId(i));
      if (!(nodes_[i] = may_run_first(n))) continue;
      for (ValueId v : n.outputs)
        if (v.valid()) values_[v.index] = true;
    }
  }

  bool has(size_t node) const { return nodes_[node]; }
  // A number that a node made.
  bool is_scalar(ValueId v) const {
    return v.valid() && values_[v.index] && g_.type(v).dim() == 0 && g_.value(v).node.valid();
  }

 private:
  bool may_run_first(const Node& n) const {
    OpClass c = n.op == Op::Extern ? OpClass::Extern : graph::op_class(n.op);
    bool plain = c == OpClass::Pointwise || c == OpClass::View || c == OpClass::Factory || n.op == Op::stack;
    if (!plain || (graph::op_traits(n.op) & (graph::kEffect | graph::kNondeterministic))) return false;
    for (ValueId v : n.outputs) plain = plain && (!v.valid() || g_.type(v).device.type == DeviceType::CPU);
    Graph::for_each_operand(n, [&](ValueId v) { plain = plain && v.valid() && values_[v.index]; });
    return plain && symbols_of(g_, n).empty();
  }

  const Graph& g_;
  std::vector<bool> values_, nodes_;
};

}  // namespace

Graph upload_scalars(const Graph& g) {
  auto gpu = [&](const graph::Value& v) { return on_gpu(v.type); };
  if (std::none_of(g.values().begin(), g.values().end(), gpu)) return g;
  Host host(g);
  // By dtype and GPU: what its kernels read, each once, and who reads it first.
  struct Group {
    std::vector<ValueId> values;
    const Node* reader;
    Device device;
  };
  std::map<std::pair<DType, int>, Group> groups;
  std::map<std::pair<uint32_t, int>, ValueId> moved;
  auto reads = [&](const Node& n, auto f) {
    if (n.op == Op::Extern || graph::op_class(n.op) != OpClass::Pointwise || n.op == Op::_to_copy) return;
    if (n.outputs.size() != 1 || !n.outputs[0].valid() || !on_gpu(g.type(n.outputs[0]))) return;
    Device d = g.type(n.outputs[0]).device;
    Graph::for_each_operand(n, [&](ValueId v) {
      if (host.is_scalar(v)) f(v, d);
    });
  };
  for (const Node& n : g.nodes())
    reads(n, [&](ValueId v, Device d) {
      if (!moved.try_emplace({v.index, d.index}).second) return;
      Group& group = groups.try_emplace({g.type(v).dtype, d.index}, Group{{}, &n, d}).first->second;
      group.values.push_back(v);
    });
  if (groups.empty()) return g;
  Rewriter r(g);
  for (size_t i = 0; i < g.nodes().size(); ++i)
    if (host.has(i)) r.copy(g.node(graph::NodeId(i)));
  for (const auto& [key, group] : groups) {
    Builder b(r.out(), *group.reader, {}, g);
    std::vector<ValueId> values;
    for (ValueId v : group.values) values.push_back(r.map(v));
    bool one = values.size() == 1;
    ValueId all = one ? values[0] : b.call(Op::stack, {values, b.k(0)});
    all = b.call(Op::_to_copy, {all, NoneArg{}, NoneArg{}, group.device, NoneArg{}, true, NoneArg{}});
    for (size_t i = 0; i < values.size(); ++i)
      moved[{group.values[i].index, group.device.index}] =
          one ? all : b.call(Op::select_int, {all, b.k(0), b.k(static_cast<int64_t>(i))});
  }
  for (size_t i = 0; i < g.nodes().size(); ++i) {
    if (host.has(i)) continue;
    const Node& n = g.node(graph::NodeId(i));
    std::map<uint32_t, ValueId> here;
    reads(n, [&](ValueId v, Device d) { here[r.map(v).index] = moved.at({v.index, d.index}); });
    std::vector<Arg> args = r.map_args(n);
    for (Arg& a : args)
      if (auto* v = std::get_if<ValueId>(&a); v && v->valid() && here.count(v->index)) *v = here[v->index];
    r.copy(n, std::move(args));
  }
  return r.finish();
}

}  // namespace braze::passes
