#include "passes/upload_scalars.h"

#include <map>

#include "passes/builder.h"

namespace braze::passes {
namespace {

using graph::OpClass;

bool on_gpu(const TensorType& t) { return t.device.type == DeviceType::CUDA; }

// Per value: whether a node made it on the CPU from nothing of another device's. Such nodes may run first.
class Host {
 public:
  explicit Host(const Graph& g) : g_(g), known_(g.values().size(), 0) {
    for (const graph::Input& i : g.inputs)
      if (g.type(i.value).device.type == DeviceType::CPU) known_[i.value.index] = 1;
    for (const Node& n : g.nodes())
      if (is_host(n))
        for (ValueId v : n.outputs)
          if (v.valid()) known_[v.index] = 1;
  }

  bool is_host(const Node& n) const {
    OpClass c = n.op == Op::Extern ? OpClass::Extern : graph::op_class(n.op);
    bool plain = c == OpClass::Pointwise || c == OpClass::View || c == OpClass::Factory || n.op == Op::stack;
    if (!plain || (graph::op_traits(n.op) & (graph::kEffect | graph::kNondeterministic))) return false;
    for (ValueId v : n.outputs) plain = plain && (!v.valid() || g_.type(v).device.type == DeviceType::CPU);
    Graph::for_each_operand(n, [&](ValueId v) { plain = plain && v.valid() && known_[v.index]; });
    return plain;
  }

  // A number that a node made.
  bool is_scalar(ValueId v) const {
    return v.valid() && known_[v.index] && g_.type(v).dim() == 0 && g_.value(v).node.valid();
  }

 private:
  const Graph& g_;
  std::vector<char> known_;
};

}  // namespace

Graph upload_scalars(const Graph& g) {
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
  Rewriter r(g);
  for (const Node& n : g.nodes())
    if (groups.empty() || host.is_host(n)) r.copy(n);
  if (groups.empty()) return r.finish();
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
  for (const Node& n : g.nodes()) {
    if (host.is_host(n)) continue;
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
