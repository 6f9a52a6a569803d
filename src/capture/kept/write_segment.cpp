#include <algorithm>

#include "capture/kept/segment_bytes.h"
#include "capture/kept/segment_fields.h"
#include "graph/user_kernel.h"
#include "launch/tensor_spec.h"
#include "trace/literal.h"

namespace braze::capture {
namespace {

// Operators of PyTorch and of Braze mean the same in each process that loads them; those that a program registers need
// not.
bool is_known_operator(const std::string& name) {
  return name.starts_with("aten::") || name.starts_with("prims::") ||
         (name.starts_with("braze::") && name != graph::kLaunchKernel);
}

void refuse_graph(const Segment& s) {
  const graph::Graph& g = s.captured.graph;
  for (const graph::Node& n : g.nodes()) {
    if (n.op == graph::Op::Extern && !is_known_operator(n.extern_name)) throw NotKept{"the operator " + n.extern_name};
    for (const graph::Arg& a : n.args)
      if (std::holds_alternative<graph::OpaqueArg>(a)) throw NotKept{"objects in the graph"};
  }
}

class Writer {
 public:
  Writer(const Segment& s, const trace::TorchLevel* level, ObjectTable& objects, sym::Packer& out)
      : s_(s), level_(level), objects_(objects), out_(out) {}

  void run() {
    number_sources();
    out_(order_.size());
    for (SourceId id : order_) {
      const Source& source = (*s_.sources)[id];
      out_(source.kind, this->source(source.base), source.index, object(source.key), s_.sources->label(id));
    }
    out_(s_.guards.size());
    for (const Guard& g : s_.guards.items()) guard(g);
    recipe();
    out_(s_.stop.has_value());
    if (s_.stop) stop(*s_.stop);
    out_(s_.global_state, s_.num_integers, sources(s_.inputs), s_.numbers, s_.num_outputs, s_.num_calls,
         sources(s_.locks), s_.inference);
    graph();
    sizes();
    out_(s_.gradients);
    calls();
  }

 private:
  // Those that something is asked of, with what they hang off.
  void number_sources() {
    ids_.assign(s_.sources->size(), 0);
    std::vector<char> used(s_.sources->size());
    auto use = [&](SourceId id) {
      for (; id.valid() && !used[id.index]; id = (*s_.sources)[id].base) used[id.index] = 1;
    };
    for (const Guard& g : s_.guards.items()) {
      use(g.source), use(g.other);
      for (SourceId id : g.group) use(id);
      if (g.floats)
        for (SourceId id : g.floats->sources) use(id);
    }
    for (SourceId id : s_.inputs) use(id);
    for (SourceId id : s_.locks) use(id);
    for (const Step& step : s_.recipe.steps())
      if (step.kind == StepKind::Load) use(step.source);
    for (auto [id, writes] : s_.recipe.written) use(id);
    for (const SizeGuards::Place& p : s_.sizes.places) use(p.source);
    for (uint32_t i = 0; i < used.size(); ++i) {
      if (!used[i]) continue;
      order_.push_back(SourceId(i));
      ids_[i] = static_cast<uint32_t>(order_.size());
    }
  }
  uint32_t source(SourceId id) const { return id.valid() ? ids_[id.index] : 0; }
  std::vector<uint32_t> sources(const std::vector<SourceId>& list) const {
    std::vector<uint32_t> out;
    for (SourceId id : list) out.push_back(source(id));
    return out;
  }
  uint32_t object(const LooseRef& o) { return objects_.number(o.get()); }
  void line(const UserLine& l) { out_(objects_.known(reinterpret_cast<PyObject*>(l.code)), l.line); }

  void guard(const Guard& g) {
    // An object by whose address something is compared, but which is not held, is one of this process.
    if (g.kind == GuardKind::WeakIdentity) throw NotKept{"an object of one call"};
    for (const LooseRef* o : {&g.object, &g.type})
      if (g.kind == GuardKind::Identity || g.kind == GuardKind::TypeIs || o == &g.type) objects_.is_led_to(o->get());
    std::vector<uint32_t> members;
    for (const LooseRef& m : g.members) {
      if (g.kind == GuardKind::DictKeys) objects_.is_led_to(m.get());
      members.push_back(object(m));
    }
    out_(g.kind, source(g.source), source(g.other), g.number, object(g.object), object(g.type), members,
         sources(g.group), g.symbolic);
    line(g.line);
    out_(g.tensor != nullptr);
    if (g.tensor) {
      auto* type = reinterpret_cast<PyObject*>(launch::class_of(*g.tensor));
      objects_.is_led_to(type);
      ByteWriter spec;
      launch::pack(spec, *g.tensor);
      out_(objects_.number(type), spec.take());
    }
    out_(g.floats != nullptr);
    if (g.floats) out_(g.floats->steps, sources(g.floats->sources), g.floats->expected);
  }

  void recipe() {
    const Recipe& r = s_.recipe;
    out_(r.steps().size());
    for (const Step& s : r.steps()) {
      // The table of a set follows from hashes, which are those of this process.
      if (s.kind == StepKind::Set || s.kind == StepKind::FrozenSet || s.kind == StepKind::SetAssign)
        throw NotKept{"a set"};
      out_(s.kind, s.dst, source(s.source), s.number, object(s.object), s.args);
    }
    out_(r.num_registers(), r.result, r.released, r.handled, r.frames.size());
    for (const FrameImage& f : r.frames)
      out_(objects_.number(reinterpret_cast<PyObject*>(f.code)), f.function, f.instruction, f.locals, f.stack,
           f.handled, f.kw_names, f.raises);
    out_(r.written.size());
    for (auto [id, writes] : r.written) out_(source(id), writes);
  }

  void stop(const BreakInfo& b) {
    out_(static_cast<uint64_t>(b.reason), b.detail);
    line(b.line);
    out_(b.stack.size());
    for (const UserLine& l : b.stack) line(l);
  }

  void graph() {
    const trace::Captured& c = s_.captured;
    std::vector<graph::Location> locations(c.graph.locations().begin(), c.graph.locations().end());
    out_(locations);
    graph::pack(out_, c.graph);
    std::vector<std::string> constants;
    for (PyObject* o : c.constants) {
      ByteWriter bytes;
      if (!s_.tracer->is_literal(o) || !trace::pack_literal(bytes, o))
        throw NotKept{"tensors of the program's that are constants of the graph"};
      constants.push_back(bytes.take());
    }
    out_(constants);
    out_(c.needs_grad, c.write_counts, c.size_symbols, c.symbol_values, c.views, c.lazy);
  }

  void sizes() {
    const SizeGuards& z = s_.sizes;
    out_(z.arena != nullptr, z.symbols, z.places.size());
    for (const SizeGuards::Place& p : z.places) out_(source(p.source), p.symbol, p.dim, p.integer);
    out_(z.conditions.size());
    for (const SizeGuards::Condition& c : z.conditions) out_(c.condition), line(c.line);
    out_(z.values);
  }

  void calls() {
    out_(level_ != nullptr);
    if (!level_) return;
    const trace::TorchLevel& level = *level_;
    out_(level.calls, level.inputs, level.outputs, level.symbols, level.outside, level.num_tensors);
    std::vector<uint32_t> objects;
    for (PyObject* o : level.objects) objects.push_back(objects_.number(o));
    out_(objects);
  }

  const Segment& s_;
  const trace::TorchLevel* level_;  // nullptr: nothing will ask for it
  ObjectTable& objects_;
  sym::Packer& out_;
  std::vector<uint32_t> ids_;  // by source: its number here, from 1
  std::vector<SourceId> order_;
};

std::vector<Brought> brought(const Segment& s) {
  std::vector<Brought> out;
  for (const Guard& g : s.guards.items()) {
    if (g.kind != GuardKind::Tensor) continue;
    Brought b;
    SourceId at = g.source;
    for (; (*s.sources)[at].base.valid(); at = (*s.sources)[at].base) {
      const Source& part = (*s.sources)[at];
      const char* key = part.kind == SourceKind::DictItem && PyUnicode_CheckExact(part.key.get())
                            ? PyUnicode_AsUTF8(part.key.get())
                            : nullptr;
      if (part.kind != SourceKind::TupleItem && !key) break;
      b.path.emplace(b.path.begin(), key ? -1 : part.index, key ? key : "");
    }
    if ((*s.sources)[at].kind != SourceKind::Local) continue;
    b.slot = (*s.sources)[at].index;
    ByteWriter spec;
    launch::pack(spec, *g.tensor);
    b.spec = spec.take();
    out.push_back(std::move(b));
  }
  PyErr_Clear();
  return out;
}

}  // namespace

std::string pack(const Segment& s, const FrameView& frame, bool calls) {
  if (!s.draws.empty()) throw NotKept{"numbers that the run draws"};
  if (s.without_torch_functions) throw NotKept{"torch functions that are off"};
  if (s.no_gradients || (s.captured.needs_grad && !s.gradients)) throw NotKept{"what has no backward"};
  if (s.here_only) throw NotKept{s.here_only};
  sym::ExprArena& arena = s.captured.graph.arena();
  if (s.sizes.arena && s.sizes.arena.get() != &arena) throw NotKept{"sizes of another arena"};
  refuse_graph(s);
  std::optional<trace::TorchLevel> level;
  if (calls || s.gradients) {
    if (!s.tracer->has_torch_level()) throw NotKept{"a region that torch's functions alone do not express"};
    if (s.tracer->has_unbacked()) throw NotKept{"sizes that depend on data"};
    level = s.tracer->torch_level();
  }
  ObjectTable objects(frame, s.signatures);
  objects.is_led_to(reinterpret_cast<PyObject*>(frame.bytecode->code));
  sym::Symbols symbols;
  {
    sym::Packer noting(arena, symbols);
    Writer(s, level ? &*level : nullptr, objects, noting).run();
  }
  objects.check();
  sym::Packer body(arena, symbols.list());
  Writer(s, level ? &*level : nullptr, objects, body).run();
  ByteWriter out;
  out.number(!s.captured.size_symbols.empty());
  sym::Packer tensors(arena, std::vector<sym::Expr>());
  tensors(brought(s));
  out.text(tensors.take());
  out.text(objects.take());
  ByteWriter known;
  symbols.describe(arena, known);
  out.text(known.take());
  out.text(body.take());
  return out.take();
}

}  // namespace braze::capture
