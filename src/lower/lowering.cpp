#include "lower/lowering.h"

#include <algorithm>

#include "base/check.h"
#include "graph/depthwise.h"
#include "graph/narrow_product.h"
#include "graph/pointwise_convolution.h"
#include "graph/raises.h"
#include "graph/shape.h"
#include "lower/realise.h"
#include "lower/rules.h"
#include "lower/scatter.h"

namespace braze::lower {

loop::Program lower(const graph::Graph& graph, const Options& options, const Targets& targets) {
  return Lowering(graph, options, targets).run();
}
loop::Program lower_to_calls(const graph::Graph& graph, const Options& options, const Targets& targets) {
  return Lowering(graph, options, targets, Lowering::Rules::None).run();
}
loop::Program lower_inlined(const graph::Graph& graph, const Options& options, const Targets& targets) {
  return Lowering(graph, options, targets, Lowering::Rules::Inlined).run();
}

namespace {

void merge(std::vector<uint32_t>& into, const std::vector<uint32_t>& from) {
  if (from.empty()) return;
  std::vector<uint32_t> out;
  out.reserve(into.size() + from.size());
  std::set_union(into.begin(), into.end(), from.begin(), from.end(), std::back_inserter(out));
  into = std::move(out);
}

void insert(std::vector<uint32_t>& into, uint32_t x) {
  auto it = std::lower_bound(into.begin(), into.end(), x);
  if (it == into.end() || *it != x) into.insert(it, x);
}

bool has_arithmetic(DType t) { return !is_complex(t) && t != DType::Opaque; }

}  // namespace

Lowering::Lowering(const graph::Graph& g, const Options& o, const Targets& t, Rules rules)
    : source(g),
      targets(t),
      arena(g.arena()),
      symbols(g.arena()),
      indexing(g.arena(), symbols),
      program(g.shared_arena()),
      options_(o),
      rules_(rules) {}

loop::Program Lowering::run() {
  program.size_symbols = source.size_symbols;
  program.locations = source.locations();
  states_.resize(source.values().size());
  ways_.reserve(source.nodes().size());
  for (const graph::Node& n : source.nodes()) ways_.push_back(way_of(n));
  count_uses();
  for (size_t i = 0; i < source.inputs.size(); ++i) {
    const graph::Input& in = source.inputs[i];
    const TensorType& t = source.type(in.value);
    loop::Buffer b;
    b.name = "arg" + std::to_string(i);
    b.dtype = t.dtype;
    b.device = t.device;
    b.kind = in.kind == graph::InputKind::Constant ? loop::BufferKind::Constant : loop::BufferKind::Input;
    b.sizes = t.sizes;
    b.strides = t.strides;
    b.offset = arena.constant(0);
    b.input = static_cast<uint32_t>(i);
    BufferId id = program.buffers.add(std::move(b));
    states_[in.value.index].view = View{id, t.sizes, t.strides, arena.constant(0), t.dtype};
  }
  for (size_t i = 0; i < source.nodes().size(); ++i) lower_node(NodeId(i));
  lower_outputs();
  return std::move(program);
}

Lowering::Way Lowering::way_of(const graph::Node& node) const {
  if (is_view(source, node)) return Way::View;
  if (node.op == graph::Op::check) return Way::Check;
  bool plain = !node.outputs.empty();
  const Device* device = nullptr;
  auto check = [&](ValueId v) {
    const TensorType& t = source.type(v);
    plain = plain && has_arithmetic(t.dtype) && (!device || *device == t.device);
    device = &t.device;
  };
  for (ValueId v : node.outputs)
    if (v.valid()) check(v);
  graph::Graph::for_each_operand(node, check);
  plain = plain && !source.leaves_float8(node);
  if (!plain || (rules_ == Rules::None && !takes_random(node))) return Way::Extern;
  if (graph::is_narrow_product(source, node, targets)) return Way::Product;
  if (graph::is_depthwise_kernel(source, node, targets)) return Way::Depthwise;
  if (graph::is_pointwise_convolution_kernel(source, node, targets)) return Way::PointwiseConvolution;
  if (takes_scan(source, node)) return Way::Scan;
  switch (graph::op_class(node.op)) {
    case graph::OpClass::Pointwise: return takes_pointwise(source, node) ? Way::Element : Way::Extern;
    case graph::OpClass::Factory: return takes_factory(source, node) ? Way::Element : Way::Extern;
    case graph::OpClass::Random: return takes_random(node) ? Way::Element : Way::Extern;
    case graph::OpClass::Reduction: return takes_reduction(source, node) ? Way::Reduction : Way::Extern;
    case graph::OpClass::Index:
      if (index_rule(node.op) && takes_index(source, node)) return Way::Element;
      return takes_writes(source, node) ? Way::Writes : Way::Extern;
    default: return Way::Extern;
  }
}

void Lowering::count_uses() {
  auto want = [&](ValueId v) {
    if (!v.valid()) return;
    ++states_[v.index].uses;
    states_[v.index].wanted = true;
  };
  for (ValueId v : source.outputs) want(v);
  for (const graph::Writeback& w : source.writebacks) want(w.value);
  for (size_t i = source.nodes().size(); i-- > 0;) {
    const graph::Node& node = source.node(NodeId(i));
    if (ways_[i] == Way::View) {
      State& operand = states_[std::get<ValueId>(node.args[0]).index];
      bool partial = view_map(*this, node, 0).partial;
      for (ValueId v : node.outputs) {
        if (!v.valid()) continue;
        operand.uses += states_[v.index].uses;
        // A slice alone is computed by itself; several of one value share its buffer.
        if (states_[v.index].wanted && (!partial || operand.uses > states_[v.index].uses)) operand.wanted = true;
      }
    } else {
      size_t place = 0;
      graph::Graph::for_each_operand(node, [&](ValueId v) {
        const size_t at = place++;
        if (ways_[i] == Way::Extern && filled_result(source, node, at, v)) return;
        ++states_[v.index].uses;
        if (ways_[i] == Way::Extern) states_[v.index].wanted = true;
      });
    }
  }
}

void Lowering::lower_node(NodeId n) {
  const graph::Node& node = source.node(n);
  auto dead = [&] {
    return std::all_of(node.outputs.begin(), node.outputs.end(), [&](ValueId v) { return !v.valid() || unused(v); });
  };
  switch (ways_[n.index]) {
    case Way::Element:
      for (ValueId v : node.outputs) {
        if (!v.valid() || unused(v)) continue;
        account(n, v);
        if (should_realise(states_[v.index])) realise(v);
      }
      return;
    case Way::View:
      for (ValueId v : node.outputs)
        if (v.valid() && !unused(v)) lower_view(n, v);
      return;
    case Way::Reduction:
      if (dead() || lower_reduction(*this, n)) return;
      break;
    case Way::Scan:
      if (!dead()) lower_scan(*this, n);
      return;
    case Way::Product:
      if (dead() || lower_product(*this, n)) return;
      break;
    case Way::Depthwise:
      if (!dead()) lower_depthwise(*this, n);
      return;
    case Way::PointwiseConvolution:
      if (!dead()) lower_pointwise_convolution(*this, n);
      return;
    case Way::Writes:
      if (dead() || lower_writes(*this, n)) return;
      break;
    case Way::Check: lower_check(*this, n); return;
    case Way::Extern: break;
  }
  bool defines =
      std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId v) { return v.valid() && binds_symbol(v); });
  bool effect = graph::op_traits(node.op) & graph::kEffect || graph::may_raise(source, node);
  if (node.op != graph::Op::Extern && !effect && dead() && !defines) return;
  lower_extern(*this, n);
}

// What emitting v costs: the nodes and buffers that it goes through. Operands that a broadcast would compute many times
// are realised first.
void Lowering::account(NodeId n, ValueId v) {
  const graph::Node& node = source.node(n);
  State& s = states_[v.index];
  const TensorType& type = source.type(v);
  graph::Graph::for_each_operand(node, [&](ValueId u) {
    State& o = states_[u.index];
    if (!o.view && !o.inlined.empty() && graph::op_class(node.op) == graph::OpClass::Pointwise) {
      const auto& sizes = source.type(u).sizes;
      bool broadcast = false;
      for (size_t d = 0; d < type.sizes.size(); ++d) {
        bool there = d + sizes.size() >= type.sizes.size();
        Expr have = there ? sizes[d + sizes.size() - type.sizes.size()] : arena.constant(1);
        broadcast |= indexing.is_one(have) && !indexing.is_one(type.sizes[d]);
      }
      if (broadcast && costs_more_again(u)) realise_for_broadcast(u);
    }
    // Read several times for each element.
    if (!o.view && o.expensive && !o.reads.empty() && window_rule(node.op)) realise(u);
    if (o.view) {
      insert(s.reads, o.view->buffer.index);
    } else {
      merge(s.inlined, o.inlined);
      merge(s.reads, o.reads);
      s.expensive |= o.expensive;
    }
  });
  insert(s.inlined, n.index);
  s.expensive |= graph::op_row(node.op).cost >= graph::Cost::Expensive;
}

bool Lowering::should_realise(const State& s) const {
  if (s.view) return false;
  if (s.wanted) return true;
  if (rules_ == Rules::Inlined) return false;
  if (!options_.inlining && !s.inlined.empty() && !s.reads.empty()) return true;
  if (s.inlined.size() > kMaxInlinedOps || s.reads.size() > kMaxReads) return true;
  if (s.uses <= 1 || s.reads.empty()) return false;
  return s.expensive || s.inlined.size() > kMaxSharedOps || s.reads.size() > kMaxSharedReads;
}

void Lowering::lower_view(NodeId n, ValueId v) {
  const graph::Node& node = source.node(n);
  ValueId u = std::get<ValueId>(node.args[0]);
  State& s = states_[v.index];
  if (view_map(*this, node, source.value(v).index).kind == ViewMap::Kind::None) {
    // By the recorded layout: the operand's storage as eager has it, of which it may be a part.
    const TensorType& t = source.type(v);
    Expr start = t.offset;
    if (node.op == graph::Op::as_strided)
      start = std::holds_alternative<Expr>(node.args[3]) ? std::get<Expr>(node.args[3]) : source.type(u).offset;
    if (node.op != graph::Op::view_dtype) u = storage_of(u);
    View base = realise_exact(u);
    const TensorType& ut = source.type(u);
    if (const int from = size_of(ut.dtype), to = size_of(t.dtype); node.op == graph::Op::view_dtype && from != to) {
      base.offset = from < to ? arena.floordiv(base.offset, arena.constant(to / from))
                              : arena.mul(base.offset, arena.constant(from / to));
      start = ut.offset;
    }
    s.view = View{base.buffer, t.sizes, t.strides, arena.add(base.offset, arena.sub(start, ut.offset)), t.dtype};
    return;
  }
  if (!is_realised(u)) {
    bool expands = false;
    const auto &from = source.type(u).sizes, &to = source.type(v).sizes;
    if (node.op == graph::Op::expand)
      for (size_t d = 0; d < to.size(); ++d) {
        bool there = d + from.size() >= to.size();
        expands |= !indexing.is_one(to[d]) && (!there || indexing.is_one(from[d + from.size() - to.size()]));
      }
    if (expands && costs_more_again(u)) realise_for_broadcast(u);
    if (node.op == graph::Op::view && turns(source, u)) realise(u);
  }
  if (is_realised(u)) s.view = window(v);
  if (s.view) return;
  if (states_[u.index].view)
    insert(s.reads, states_[u.index].view->buffer.index);
  else
    s.inlined = states_[u.index].inlined, s.reads = states_[u.index].reads, s.expensive = states_[u.index].expensive;
  if (should_realise(s)) realise(v);
}

std::optional<View> Lowering::window(ValueId v) {
  const graph::Node& node = source.node(source.value(v).node);
  const View& base = *states_[std::get<ValueId>(node.args[0]).index].view;
  const TensorType& type = source.type(v);
  ViewMap map = view_map(*this, node, source.value(v).index);
  View out{base.buffer, type.sizes, {}, base.offset, base.dtype};
  switch (map.kind) {
    case ViewMap::Kind::Bits:
      out.strides = base.strides;
      out.dtype = type.dtype;
      return out;
    case ViewMap::Kind::Reshape: {
      auto strides = indexing.reshape_strides(base.sizes, base.strides, type.sizes);
      // A view of memory that is laid out as recorded is one, whatever can be proved of its sizes.
      if (!strides && node.op != graph::Op::reshape && promised(std::get<ValueId>(node.args[0]), base))
        strides = type.strides;
      if (!strides) return std::nullopt;
      out.strides = std::move(*strides);
      return out;
    }
    case ViewMap::Kind::Dims:
      out.strides.assign(type.sizes.size(), arena.constant(0));
      for (size_t j = 0; j < map.dims.size(); ++j) {
        out.offset = arena.add(out.offset, arena.mul(map.dims[j].start, base.strides[j]));
        for (const DimMap::Term& t : map.dims[j].terms)
          if (t.dim >= 0) out.strides[t.dim] = arena.add(out.strides[t.dim], arena.mul(t.step, base.strides[j]));
      }
      return out;
    case ViewMap::Kind::None: break;
  }
  return std::nullopt;
}

ValId Lowering::emit(Body& body, ValueId v, std::span<const Expr> index) {
  if (ValId known = body.remembered(v.index, index); known.valid()) return known;
  const State& s = states_[v.index];
  ValId out;
  if (s.view) {
    const View& w = *s.view;
    BRAZE_CHECK(has_arithmetic(w.dtype), "element of a tensor without arithmetic");
    out = load_as(body, program.buffers[w.buffer].dtype, w, indexing.dot(index, w.strides, w.offset));
  } else {
    NodeId n = source.value(v).node;
    const graph::Node& node = source.node(n);
    if (ways_[n.index] == Way::View) {
      out = emit_view(body, v, index);
    } else {
      ElementRule rule = nullptr;
      switch (graph::op_class(node.op)) {
        case graph::OpClass::Pointwise: rule = pointwise_rule(node.op); break;
        case graph::OpClass::Index: rule = index_rule(node.op); break;
        case graph::OpClass::Factory: rule = factory_rule(node.op); break;
        case graph::OpClass::Random: rule = random_rule(node.op); break;
        default: break;
      }
      BRAZE_CHECK(ways_[n.index] == Way::Element && rule,
                  "value is not computed yet: " + std::string(graph::op_name(node.op)));
      out = rule(Point{*this, body, node, v, index}).id;
    }
  }
  out = body.cast(out, compute_dtype(source.type(v).dtype));
  body.remember(v.index, index, out);
  return out;
}

ValId Lowering::emit_view(Body& body, ValueId v, std::span<const Expr> index) {
  const graph::Node& node = source.node(source.value(v).node);
  ValueId u = std::get<ValueId>(node.args[0]);
  ViewMap map = view_map(*this, node, source.value(v).index);
  switch (map.kind) {
    case ViewMap::Kind::Bits:
      return body.bitcast(body.cast(emit(body, u, index), source.type(u).dtype), source.type(v).dtype);
    case ViewMap::Kind::Reshape:
      return emit(body, u, indexing.reshape(index, source.type(v).sizes, source.type(u).sizes));
    default: break;
  }
  std::vector<Expr> inner;
  inner.reserve(map.dims.size());
  for (const DimMap& d : map.dims) {
    Expr e = d.start;
    for (const DimMap::Term& t : d.terms)
      if (t.dim >= 0) e = arena.add(e, arena.mul(t.step, index[t.dim]));
    inner.push_back(e);
  }
  return emit(body, u, inner);
}

ValId Lowering::emit_broadcast(Body& body, ValueId v, std::span<const Expr> index, const std::vector<Expr>& sizes) {
  const auto& own = source.type(v).sizes;
  if (own.size() == index.size() && own == sizes) return emit(body, v, index);
  BRAZE_CHECK(own.size() <= index.size(), "operand with more dimensions than the result");
  std::vector<Expr> inner(own.size());
  size_t skip = index.size() - own.size();
  for (size_t d = 0; d < own.size(); ++d) inner[d] = indexing.is_one(own[d]) ? arena.constant(0) : index[d + skip];
  return emit(body, v, inner);
}

// Whether computing v for every element that it is broadcast to costs more than a buffer of it. What comes of factories
// alone has no memory to read: cheap ones, and single elements, which loops compute once, stay in place.
bool Lowering::costs_more_again(ValueId v) const {
  const State& s = states_[v.index];
  if (!s.reads.empty()) return s.expensive || s.inlined.size() > kMaxBroadcastOps;
  const auto& sizes = source.type(v).sizes;
  return s.expensive && !std::all_of(sizes.begin(), sizes.end(), [&](Expr e) { return indexing.is_one(e); });
}

// Where a cast made the value wider, what was cast takes less to store and to read again.
void Lowering::realise_for_broadcast(ValueId v) {
  NodeId n = source.value(v).node;
  const graph::Node& node = source.node(n);
  auto* from = node.op == graph::Op::_to_copy ? std::get_if<ValueId>(&node.args[0]) : nullptr;
  const TensorType& wide = source.type(v);
  if (!from || size_of(source.type(*from).dtype) >= size_of(wide.dtype) || source.type(*from).device != wide.device) {
    realise(v);
    return;
  }
  State& s = states_[v.index];
  s.reads = {realise(*from).buffer.index};
  s.inlined = {n.index};
  s.expensive = false;
}

View Lowering::realise(ValueId v) {
  State& s = states_[v.index];
  if (s.view) return *s.view;
  NodeId n = source.value(v).node;
  BRAZE_CHECK(n.valid(), "input without a buffer");
  const graph::Node& node = source.node(n);
  if (ways_[n.index] == Way::View) {
    ViewMap map = view_map(*this, node, source.value(v).index);
    ValueId u = std::get<ValueId>(node.args[0]);
    if (!map.partial || is_realised(u)) {
      realise(u);
      if ((s.view = window(v))) return *s.view;
    }
  }
  return realise_into(v, fresh_buffer(source.type(v), false));
}

View Lowering::realise_exact(ValueId v) {
  View view = realise(v);
  if (promised(v, view)) return view;
  // A view stays on its operand's memory, which is laid out as recorded, then.
  if (NodeId n = source.value(v).node; n.valid() && ways_[n.index] == Way::View) {
    realise_exact(std::get<ValueId>(source.node(n).args[0]));
    if (auto w = window(v); w && promised(v, *w)) return *(states_[v.index].view = w);
  }
  return realise_into(v, fresh_buffer(source.type(v), true));
}

ValueId Lowering::storage_of(ValueId v) {
  for (;;) {
    NodeId n = source.value(v).node;
    if (!n.valid() || ways_[n.index] != Way::View) return v;
    const graph::Node& node = source.node(n);
    ValueId u = std::get<ValueId>(node.args[0]);
    const TensorType &t = source.type(v), &ut = source.type(u);
    if (size_of(t.dtype) != size_of(ut.dtype)) return v;  // it counts in other elements
    // Where there is no view of the new shape, a reshape is a copy.
    if (node.op == graph::Op::reshape &&
        (!indexing.reshape_strides(ut.sizes, ut.strides, t.sizes) || !arena.known_equal(t.offset, ut.offset)))
      return v;
    v = u;
  }
}

View Lowering::operand(ValueId v, bool exact) {
  View view = exact ? realise_exact(v) : realise(v);
  if (promised(v, view)) view.strides = source.type(v).strides;
  return view;
}

bool Lowering::promised(ValueId v, const View& view) {
  const TensorType& t = source.type(v);
  // Of sizes that may be 0, where strides no longer matter.
  auto same = [&](Expr recorded, Expr stride) {
    return arena.known_equal(recorded, stride) ||
           (!arena.as_const(stride) && arena.known_equal(recorded, arena.max(arena.constant(1), stride)));
  };
  for (size_t d = 0; d < t.sizes.size(); ++d)
    if (!indexing.is_one(t.sizes[d]) && !same(t.strides[d], view.strides[d])) {
      for (Expr size : t.sizes)
        if (indexing.is_zero(size)) return true;
      return false;
    }
  return true;
}

// Computes v into a window. A reshape or permutation of something that is computed here is undone on the window's side,
// so that the nest iterates over the dimensions of what is computed.
View Lowering::realise_into(ValueId v, View target) {
  View t = target;
  ValueId cur = v;
  while (!is_realised(cur)) {
    NodeId n = source.value(cur).node;
    if (ways_[n.index] != Way::View) break;
    const graph::Node& node = source.node(n);
    ViewMap map = view_map(*this, node, source.value(cur).index);
    ValueId u = std::get<ValueId>(node.args[0]);
    const auto& inner = source.type(u).sizes;
    if (map.kind == ViewMap::Kind::Reshape) {
      auto strides = indexing.reshape_strides(t.sizes, t.strides, inner);
      if (!strides) break;
      t.strides = std::move(*strides);
    } else if (map.kind == ViewMap::Kind::Dims && !map.partial) {
      std::vector<Expr> strides(inner.size(), arena.constant(1));
      std::vector<bool> covered(t.sizes.size(), false);
      bool plain = true;
      for (size_t j = 0; j < inner.size() && plain; ++j) {
        const DimMap& d = map.dims[j];
        plain = indexing.is_zero(d.start) && d.terms[1].dim < 0;
        if (d.terms[0].dim < 0) continue;
        plain = plain && indexing.is_one(d.terms[0].step) && !covered[d.terms[0].dim];
        strides[j] = t.strides[d.terms[0].dim];
        covered[d.terms[0].dim] = true;
      }
      for (size_t d = 0; d < covered.size(); ++d) plain = plain && (covered[d] || indexing.is_one(t.sizes[d]));
      if (!plain) break;
      t.strides = std::move(strides);
    } else {
      break;
    }
    t.sizes = inner;
    cur = u;
  }
  NodeId from = source.value(v).node;
  std::string name = from.valid() && ways_[from.index] == Way::Element ? nest_name(source.node(from)) : "copy";
  pointwise_nest(name, t, locs_of(v), [&](Body& b, std::span<const Expr> index) { return emit(b, cur, index); });
  states_[v.index].view = target;
  return target;
}

View Lowering::fresh_buffer(const TensorType& type, bool exact) {
  loop::Buffer b;
  b.name = "buf" + std::to_string(program.buffers.size() - source.inputs.size());
  b.dtype = type.dtype;
  b.device = type.device;
  b.kind = loop::BufferKind::Temp;
  b.sizes = type.sizes;
  b.strides =
      exact || graph::is_non_overlapping_and_dense(arena, type) ? type.strides : contiguous_strides(arena, type.sizes);
  b.offset = arena.constant(0);
  bool empty = std::ranges::any_of(b.sizes, [&](Expr s) { return indexing.is_zero(s); });
  for (size_t d = 0; d < b.sizes.size() && !empty; ++d)
    if (indexing.is_zero(b.strides[d]) && !indexing.is_one(b.sizes[d]) && arena.range(b.sizes[d]).lo >= 2)
      throw Unsupported(Reason::UnsupportedOp, "a new tensor whose elements share memory");
  View view{{}, b.sizes, b.strides, b.offset, b.dtype};
  view.buffer = program.buffers.add(std::move(b));
  return view;
}

View Lowering::allocate(ValueId v, bool exact) {
  View view = fresh_buffer(source.type(v), exact);
  states_[v.index].view = view;
  return view;
}

std::vector<loop::Axis> Lowering::axes(std::span<const Expr> sizes, std::span<const Expr> strides,
                                       std::vector<Expr>& index) {
  std::vector<loop::Axis> out;
  index.assign(sizes.size(), arena.constant(0));
  for (int d : indexing.by_stride(sizes, strides)) {
    // One point writes what all along a dimension of stride 0 share, unless there is none.
    if (indexing.is_one(sizes[d]) || (indexing.is_zero(strides[d]) && arena.range(sizes[d]).lo >= 1)) continue;
    Expr var = symbols.loop_var('i', static_cast<int>(out.size()), sizes[d]);
    index[d] = var;
    out.push_back({var, sizes[d]});
  }
  return out;
}

void Lowering::add(loop::Nest nest, std::vector<graph::LocId> locs) {
  nest.locs = std::move(locs);
  program.items.emplace_back(std::move(nest));
}

std::vector<graph::LocId> Lowering::locs_of(ValueId v) const {
  std::vector<graph::LocId> out;
  auto add = [&](NodeId n) {
    graph::LocId l = source.node(n).loc;
    if (l.valid() && std::find(out.begin(), out.end(), l) == out.end()) out.push_back(l);
  };
  for (uint32_t n : states_[v.index].inlined) add(NodeId(n));
  if (source.value(v).node.valid()) add(source.value(v).node);
  return out;
}

std::string Lowering::nest_name(const graph::Node& node) const {
  std::string_view name = graph::op_name(node.op);
  if (size_t colon = name.rfind(':'); colon != name.npos) name.remove_prefix(colon + 1);
  return std::string(name.substr(0, name.find('.')));
}

// A view is on its operand's memory as it is now: a result may have needed that in another layout than the views before
// it.
void Lowering::follow(ValueId v) {
  NodeId n = source.value(v).node;
  if (!n.valid() || ways_[n.index] != Way::View) return;
  ValueId u = std::get<ValueId>(source.node(n).args[0]);
  follow(u);
  if (!is_realised(u)) return;
  if (auto w = window(v); w && promised(v, *w)) states_[v.index].view = w;
}

void Lowering::lower_outputs() {
  for (ValueId v : source.outputs)
    if (v.valid() && source.value(v).node.valid()) realise_exact(v);
  for (ValueId v : source.outputs) {
    loop::Output o;
    if (!v.valid()) {
      o.kind = loop::Output::Kind::None;
    } else if (!source.value(v).node.valid()) {
      o.kind = loop::Output::Kind::Input;
      o.input = source.value(v).index;
    } else {
      follow(v);
      o.view = *states_[v.index].view;
      o.view.strides = source.type(v).strides;
      auto& kind = program.buffers[o.view.buffer].kind;
      if (kind == loop::BufferKind::Temp) kind = loop::BufferKind::Output;
    }
    program.outputs.push_back(std::move(o));
  }
  for (const graph::Writeback& w : source.writebacks)
    program.writebacks.push_back({realise(w.value), source.value(w.input).index});
}

}  // namespace braze::lower
