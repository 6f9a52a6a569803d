#include "graph/interpret.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "base/check.h"
#include "base/hash.h"
#include "graph/interpret_rules.h"

namespace braze::graph {
namespace host {

int64_t count(const Dims& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

double rounded(double v, DType d) {
  if (d == DType::F64 || d == DType::C128) return v;
  if (auto* f = float8(d)) return from_float8(*f, to_float8(*f, static_cast<float>(v)));
  if (is_floating(d) || is_complex(d)) return static_cast<float>(v);
  if (d == DType::Bool) return v != 0;
  return std::trunc(v);
}

size_t flat_index(const Dims& sizes, const Dims& index) {
  int64_t flat = 0;
  for (size_t d = 0; d < sizes.size(); ++d) flat = flat * sizes[d] + index[d];
  return static_cast<size_t>(flat);
}

double at(const HostTensor& t, const Dims& index) {
  int64_t flat = 0;
  size_t shift = index.size() - t.sizes.size();
  for (size_t d = 0; d < t.sizes.size(); ++d) flat = flat * t.sizes[d] + (t.sizes[d] == 1 ? 0 : index[shift + d]);
  return t.data.at(static_cast<size_t>(flat));
}

double sum(const Numbers& v) { return std::accumulate(v.begin(), v.end(), 0.0); }
double mean(const Numbers& v) { return sum(v) / static_cast<double>(v.size()); }
double variance(const Numbers& v, double correction) {
  double m = mean(v), s = 0;
  for (double x : v) s += (x - m) * (x - m);
  return s / std::max(0.0, static_cast<double>(v.size()) - correction);
}
double extreme(const Numbers& v, bool max) {
  double best = v.at(0);
  for (double x : v)
    if (std::isnan(x) || (!std::isnan(best) && (max ? x > best : x < best))) best = x;
  return best;
}
Dims broadcast(const std::vector<const HostTensor*>& tensors) {
  Dims out;
  for (const HostTensor* t : tensors) {
    if (t->sizes.size() > out.size()) out.insert(out.begin(), t->sizes.size() - out.size(), 1);
    for (size_t d = 0; d < t->sizes.size(); ++d) {
      int64_t& size = out[out.size() - t->sizes.size() + d];
      if (size == 1) size = t->sizes[d];
    }
  }
  return out;
}
double sigmoid(double v) { return 1 / (1 + std::exp(-v)); }

int64_t State::eval(Expr e) const {
  if (auto c = graph.arena().as_const(e)) return *c;
  return graph.arena().evaluate(e, [&](Expr symbol) {
    auto found = unbacked.find(symbol.id);
    return found != unbacked.end() ? found->second : given(symbol);
  });
}

std::vector<const HostTensor*> HostCall::tensors(size_t i) const {
  std::vector<const HostTensor*> out;
  for (ValueId v : std::get<TensorList>(node.args.at(i))) out.push_back(v.valid() ? &of(v) : nullptr);
  return out;
}

double HostCall::number(size_t i) const {
  const Arg& a = node.args.at(i);
  if (auto* d = std::get_if<double>(&a)) return *d;
  if (auto* b = std::get_if<bool>(&a)) return *b;
  return static_cast<double>(eval(std::get<Expr>(a)));
}

HostTensor HostCall::operand(size_t i) const {
  if (has(i)) return tensor(i);
  return {DType::F64, {}, {number(i)}};
}

Dims HostCall::integers(size_t i) const {
  Dims out;
  for (Expr e : std::get<IntList>(node.args.at(i)).v) out.push_back(eval(e));
  return out;
}

std::vector<bool> HostCall::dims(size_t i, size_t rank) const {
  Dims named;
  if (!none(i)) named = std::holds_alternative<Expr>(node.args[i]) ? Dims{integer(i)} : integers(i);
  std::vector<bool> out(rank, named.empty());
  for (int64_t d : named)
    if (rank) out.at(wrapped(d, rank)) = true;
  return out;
}

bool HostCall::flag(size_t i) const {
  auto* b = i < node.args.size() ? std::get_if<bool>(&node.args[i]) : nullptr;
  return b && *b;
}

std::string HostCall::text(size_t i) const {
  auto* s = i < node.args.size() ? std::get_if<std::string>(&node.args[i]) : nullptr;
  return s ? *s : std::string();
}

Dims HostCall::sizes(size_t k) const {
  Dims out;
  for (Expr e : state_.graph.type(node.outputs.at(k)).sizes) out.push_back(eval(e));
  return out;
}

void HostCall::give(size_t k, Numbers elements) {
  if (!wants(k)) return;
  HostTensor t{dtype(k), sizes(k), std::move(elements)};
  BRAZE_CHECK(t.data.size() == static_cast<size_t>(count(t.sizes)) * (is_complex(t.dtype) ? 2 : 1),
              "as many elements as the result's sizes say");
  for (double& v : t.data) v = rounded(v, t.dtype);
  state_.values[node.outputs[k].index] = std::move(t);
}

void HostCall::leave_undefined(size_t k) {
  if (wants(k)) state_.values[node.outputs[k].index] = {dtype(k), sizes(k), {}};
}

void HostCall::bind(Expr symbol, int64_t value) {
  if (!state_.graph.arena().as_const(symbol)) state_.unbacked[symbol.id] = value;
}

double HostCall::draw() {
  Hasher h;
  h.add(++state_.draws);
  return static_cast<double>(static_cast<int64_t>(h.value()));
}

Rule rule_of(Op op) {
  using Family = Rule (*)(Op);
  for (Family family :
       {Family(pointwise_rule), Family(reduce_rule), Family(view_rule), Family(index_rule), Family(matmul_rule),
        Family(conv_rule), Family(factory_rule), Family(norm_rule), Family(loss_rule), Family(misc_rule),
        Family(quantize_rule), Family(distance_rule), Family(search_rule)})
    if (Rule rule = family(op)) return rule;
  return nullptr;
}

}  // namespace host

std::vector<HostTensor> interpret(const Graph& g, const std::vector<HostTensor>& inputs, const sym::Env& symbols) {
  BRAZE_CHECK(inputs.size() == g.inputs.size(), "one tensor per input");
  host::State state{g, symbols, {}, std::vector<HostTensor>(g.values().size())};
  for (size_t i = 0; i < inputs.size(); ++i) state.values[g.inputs[i].value.index] = inputs[i];
  for (const Node& n : g.nodes()) {
    if (host::interpret_complex(state, n)) continue;
    host::Rule rule = n.op == Op::Extern ? host::extern_rule(n.extern_name) : host::rule_of(n.op);
    if (!rule)
      throw InternalError("the graph interpreter does not know " +
                          std::string(n.op == Op::Extern ? n.extern_name : op_name(n.op)));
    host::HostCall call(state, n);
    rule(call);
  }
  std::vector<HostTensor> out;
  for (ValueId v : g.outputs) out.push_back(v.valid() ? state.values[v.index] : HostTensor{});
  for (const Writeback& w : g.writebacks) out.push_back(state.values[w.value.index]);
  return out;
}

}  // namespace braze::graph
