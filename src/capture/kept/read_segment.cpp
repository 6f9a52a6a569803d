#include <algorithm>
#include <unordered_set>

#include "base/check.h"
#include "base/log_topics.h"
#include "capture/code/bytecode.h"
#include "capture/cpython/dict.h"
#include "capture/eval/library_objects.h"
#include "capture/guards/guard_eval.h"
#include "capture/kept/segment_bytes.h"
#include "capture/kept/segment_fields.h"
#include "capture/recipe/recipe.h"
#include "launch/tensor_spec.h"
#include "trace/literal.h"

#include <structmember.h>

namespace braze::capture {
namespace {

// What is read at such a source does not stay: nothing is learnt from it about other objects.
bool is_lasting(SourceKind k) { return !is_fleeting(k) && k != SourceKind::Handled; }

// Thrown where something is not found as it was.
struct Other {
  std::string what;
};

class Reader {
 public:
  Reader(sym::Unpacker& in, FoundObjects& objects, const FrameView& frame)
      : in_(in), objects_(objects), frame_(frame), locals_(static_cast<size_t>(frame.bytecode->num_locals_plus)) {}

  Segment run() {
    read_sources();
    std::vector<RawGuard> guards(in_.count());
    for (RawGuard& g : guards) guard(g);
    find_objects(guards);
    make_sources();
    make_guards(guards);
    recipe();
    if (in_.get<bool>()) s_.stop = stop();
    std::vector<uint32_t> inputs, locks;
    in_(s_.global_state, s_.num_integers, inputs, s_.numbers, s_.num_outputs, s_.num_calls, locks, s_.inference);
    s_.inputs = sources(inputs), s_.locks = sources(locks);
    graph();
    sizes();
    in_(s_.gradients);
    calls();
    for (Ref& t : constants_) s_.captured.constants.push_back(t.release());
    return std::move(s_);
  }

 private:
  struct RawSource {
    SourceKind kind = SourceKind::Local;
    uint32_t base = 0;
    int64_t index = 0;
    uint32_t key = 0;
    std::string label;
  };
  struct RawGuard {
    GuardKind kind = GuardKind::Exists;
    uint32_t source = 0, other = 0;
    int64_t number = 0;
    uint32_t object = 0, type = 0;
    std::vector<uint32_t> members, group;
    std::vector<trace::SymbolicDim> symbolic;
    uint32_t line_code = 0;
    int line = 0;
    uint32_t tensor_type = 0;
    std::string spec;
    std::optional<FloatCondition> floats;
    std::vector<uint32_t> float_sources;
  };

  SourceId source(uint32_t n) const {
    if (n > raw_.size()) damaged("no such source");
    return n ? SourceId(n - 1) : SourceId();
  }
  std::vector<SourceId> sources(const std::vector<uint32_t>& list) const {
    std::vector<SourceId> out;
    for (uint32_t n : list) out.push_back(source(n));
    return out;
  }
  PyObject* object(uint32_t n) const {
    if (n > objects_.size()) damaged("no such object");
    PyObject* o = objects_.get(n);
    if (n && !o) throw Other{objects_.print(n) + " is not found"};
    return o;
  }
  Ref ref(uint32_t n) const { return Ref::borrow(object(n)); }
  UserLine line_of(uint32_t code, int line) const {
    PyObject* o = code <= objects_.size() ? objects_.get(code) : nullptr;
    if (!o || !PyCode_Check(o)) return {};
    return {lasting(reinterpret_cast<PyCodeObject*>(o)), line};
  }
  UserLine line() {
    auto code = in_.get<uint32_t>();
    return line_of(code, in_.get<int>());
  }
  // Lines name code without holding it.
  static PyCodeObject* lasting(PyCodeObject* code) {
    static auto* held = new std::unordered_set<PyCodeObject*>();
    if (held->insert(code).second) Py_INCREF(code);
    return code;
  }

  void read_sources() {
    raw_.resize(in_.count());
    for (RawSource& r : raw_) {
      in_(r.kind, r.base, r.index, r.key, r.label);
      if (r.base > static_cast<size_t>(&r - raw_.data())) damaged("a source before what it hangs off");
    }
  }

  void guard(RawGuard& g) {
    in_(g.kind, g.source, g.other, g.number, g.object, g.type, g.members, g.group, g.symbolic, g.line_code, g.line);
    if (in_.get<bool>()) in_(g.tensor_type, g.spec);
    if (!in_.get<bool>()) return;
    g.floats.emplace();
    in_(g.floats->steps, g.float_sources, g.floats->expected);
  }

  // ---- which objects of this process they are ----

  // What is there now; nullptr: nothing, or not known yet.
  PyObject* value(uint32_t n) {
    if (n == 0 || n > raw_.size()) return nullptr;
    if (values_[n - 1]) return values_[n - 1].get();
    const RawSource& r = raw_[n - 1];
    if (!is_lasting(r.kind)) return nullptr;
    Source s{r.kind, {}, r.index, {}};
    if (r.key) {
      PyObject* key = objects_.get(r.key);
      if (!key) return nullptr;
      s.key = Ref::borrow(key);
    }
    if (r.kind == SourceKind::Local && (r.index < 0 || static_cast<size_t>(r.index) >= locals_)) throw Other{"a local"};
    if (r.kind == SourceKind::Stack && (r.index < 0 || r.index >= frame_.depth)) throw Other{"the stack"};
    PyObject* base = value(r.base);
    if (r.base && !base) return nullptr;
    if (r.kind == SourceKind::Slot && !is_slot(base, r))
      throw Other{"a field of " + std::string(Py_TYPE(base)->tp_name)};
    PyObject* v = step(s, base, frame_.slots, locals_);
    if (v) values_[n - 1] = Ref::borrow(v);
    return v;
  }
  // Whether the field lies there.
  bool is_slot(PyObject* base, const RawSource& r) const {
    // Those of classes in C are the build's; those of __slots__ are in an order of their own.
    PyTypeObject* in_c = Py_TYPE(base);
    while (in_c->tp_flags & Py_TPFLAGS_HEAPTYPE) in_c = in_c->tp_base;
    if (r.index < in_c->tp_basicsize) return true;
    PyObject* name = objects_.get(r.key);
    PyObject* descr = name ? _PyType_Lookup(Py_TYPE(base), name) : nullptr;
    return descr && Py_TYPE(descr) == &PyMemberDescr_Type &&
           reinterpret_cast<PyMemberDescrObject*>(descr)->d_member->offset == r.index;
  }

  // For the log.
  std::string describe(const RawGuard& g) const {
    std::string path;
    for (uint32_t n = g.source; n; n = raw_[n - 1].base) {
      const RawSource& r = raw_[n - 1];
      path =
          "/" +
          (r.key ? objects_.print(r.key) : std::to_string(static_cast<int>(r.kind)) + "#" + std::to_string(r.index)) +
          path;
    }
    return path;
  }

  // False: nothing is there yet.
  bool learn(const RawGuard& g) {
    PyObject* v = value(g.source);
    if (!v) return false;
    auto bind = [&](uint32_t n, PyObject* o) {
      if (!objects_.bind(n, o)) throw Other{describe(g) + " leads to another object than " + objects_.print(n)};
    };
    auto* type = reinterpret_cast<PyObject*>(Py_TYPE(v));
    if (g.type) bind(g.type, type);
    switch (g.kind) {
      case GuardKind::Identity: bind(g.object, v); break;
      case GuardKind::TypeIs: bind(g.object, type); break;
      case GuardKind::Tensor: bind(g.tensor_type, type); break;
      case GuardKind::DictKeys: {
        Ref keys = Ref::steal(PyDict_Check(v) ? cpython::keys_in_order(v) : nullptr);
        if (!keys || static_cast<size_t>(PyTuple_GET_SIZE(keys.get())) != g.members.size()) {
          PyErr_Clear();
          throw Other{describe(g) + " has other keys"};
        }
        for (size_t i = 0; i < g.members.size(); ++i)
          bind(g.members[i], PyTuple_GET_ITEM(keys.get(), static_cast<Py_ssize_t>(i)));
        break;
      }
      default: break;
    }
    return true;
  }

  void find_objects(const std::vector<RawGuard>& guards) {
    if (objects_.differs()) throw Other{"what a name leads to is made of other parts"};
    values_.resize(raw_.size());
    std::vector<char> learnt(guards.size());
    for (bool more = true; std::exchange(more, false);) {
      for (size_t i = 0; i < guards.size(); ++i)
        if (!learnt[i] && learn(guards[i])) learnt[i] = more = true;
      objects_.make_values();
    }
  }

  void make_sources() {
    s_.sources = std::make_shared<Sources>(frame_.bytecode->code);
    for (const RawSource& r : raw_) {
      SourceId id = r.kind == SourceKind::Const ? s_.sources->constant(object(r.key), r.label)
                                                : s_.sources->add(r.kind, source(r.base), r.index, object(r.key));
      if (id.index != static_cast<size_t>(&r - raw_.data())) throw Other{"two paths are one"};
    }
  }

  void make_guards(std::vector<RawGuard>& raw) {
    std::vector<Guard> guards;
    guards.reserve(raw.size() + 16);
    for (RawGuard& r : raw) {
      Guard g{
          r.kind, source(r.source), source(r.other), r.number, ref(r.object), nullptr, line_of(r.line_code, r.line)};
      g.symbolic = std::move(r.symbolic);
      g.group = sources(r.group);
      for (uint32_t m : r.members) g.members.push_back(ref(m));
      if (r.type) g.type = ref(r.type);
      if (r.tensor_type) {
        ByteReader spec(r.spec);
        g.tensor = launch::unpack_spec(spec, reinterpret_cast<PyTypeObject*>(object(r.tensor_type)));
      }
      if ((g.kind == GuardKind::Tensor) != (g.tensor != nullptr)) damaged("a guard on a tensor");
      if (r.floats) {
        r.floats->sources = sources(r.float_sources);
        g.floats = std::make_shared<const FloatCondition>(std::move(*r.floats));
      }
      // Most that do not hold are told from one value.
      if (PyObject* v = value(r.source); v && g.group.empty() && !g.other.valid() && !holds(g, v, nullptr))
        throw Other{describe(r) + " is not as it was"};
      guards.push_back(std::move(g));
    }
    s_.guards.restore(std::move(guards));
  }

  // ---- the rest ----

  void recipe() {
    std::vector<Step> steps(in_.count());
    for (Step& s : steps) {
      uint32_t from = 0, with = 0;
      in_(s.kind, s.dst, from, s.number, with, s.args);
      s.source = source(from), s.object = ref(with);
    }
    Recipe& r = s_.recipe;
    auto registers = in_.get<int32_t>();
    r.restore(std::move(steps), registers);
    in_(r.result, r.released, r.handled);
    r.frames.resize(in_.count());
    for (FrameImage& f : r.frames) {
      auto code = in_.get<uint32_t>();
      in_(f.function, f.instruction, f.locals, f.stack, f.handled, f.kw_names, f.raises);
      PyObject* o = object(code);
      if (!PyCode_Check(o)) damaged("no code");
      f.code = decode(reinterpret_cast<PyCodeObject*>(o)).code;
    }
    for (size_t n = in_.count(); n > 0; --n) {
      auto id = in_.get<uint32_t>();
      r.written.emplace_back(source(id), in_.get<int>());
    }
  }

  BreakInfo stop() {
    BreakInfo b{static_cast<Reason>(in_.get<uint64_t>()), in_.get<std::string>(), {}, {}};
    b.line = line();
    for (size_t n = in_.count(); n > 0; --n) b.stack.push_back(line());
    return b;
  }

  void graph() {
    graph::Graph like(arena_);
    for (graph::Location& l : in_.get<std::vector<graph::Location>>()) like.add_location(std::move(l));
    trace::Captured& c = s_.captured;
    c.graph = graph::unpack(in_, like);
    for (const std::string& bytes : in_.get<std::vector<std::string>>()) {
      ByteReader one(bytes);
      constants_.push_back(Ref::steal(trace::unpack_literal(one)));
    }
    const auto held = std::ranges::count(c.graph.inputs, graph::InputKind::Constant, &graph::Input::kind);
    if (static_cast<size_t>(held) != constants_.size()) damaged("constants of the graph");
    in_(c.needs_grad, c.write_counts, c.size_symbols, c.symbol_values, c.views, c.lazy);
  }

  void sizes() {
    SizeGuards& z = s_.sizes;
    if (in_.get<bool>()) z.arena = arena_;
    in_(z.symbols);
    z.places.resize(in_.count());
    for (SizeGuards::Place& p : z.places) {
      auto id = in_.get<uint32_t>();
      in_(p.symbol, p.dim, p.integer);
      p.source = source(id);
    }
    for (size_t n = in_.count(); n > 0; --n) {
      auto condition = in_.get<sym::Expr>();
      z.conditions.push_back({condition, line()});
    }
    in_(z.values);
  }

  void calls() {
    if (!in_.get<bool>()) return;
    trace::TorchLevel level;
    in_(level.calls, level.inputs, level.outputs, level.symbols, level.outside, level.num_tensors);
    for (uint32_t n : in_.get<std::vector<uint32_t>>()) level.objects.push_back(object(n));
    s_.calls = trace::calls_of(std::move(level), arena_);
  }

 public:
  std::shared_ptr<sym::ExprArena> arena_;

 private:
  sym::Unpacker& in_;
  FoundObjects& objects_;
  const FrameView& frame_;
  size_t locals_;
  std::vector<RawSource> raw_;
  std::vector<Ref> values_;     // per source
  std::vector<Ref> constants_;  // of the graph
  Segment s_;
};

bool brings(const FrameView& frame, const Brought& b) {
  PyObject* v = b.slot >= 0 && b.slot < frame.bytecode->num_locals_plus ? frame.slots[b.slot] : nullptr;
  for (const auto& [index, key] : b.path) {
    if (!v) return false;
    if (index < 0)
      v = PyDict_Check(v) ? PyDict_GetItemString(v, key.c_str()) : nullptr;
    else
      v = PyTuple_Check(v) && index < PyTuple_GET_SIZE(v) ? PyTuple_GET_ITEM(v, index) : nullptr;
  }
  ByteReader spec(b.spec);
  return v && PyObject_TypeCheck(v, library().tensor) && launch::matches(*launch::unpack_spec(spec, Py_TYPE(v)), v);
}

}  // namespace

bool has_open_sizes(std::string_view packed) { return ByteReader(packed).number(1) != 0; }

std::optional<Segment> unpack_segment(std::string_view bytes, const FrameView& frame) {
  ByteReader all(bytes);
  all.number(1);
  auto arena = std::make_shared<sym::ExprArena>();
  std::string tensors = all.text();
  for (const Brought& b : sym::Unpacker(tensors, *arena, {}).get<std::vector<Brought>>()) {
    if (brings(frame, b)) continue;
    tell(Topic::Caches, "a capture on disk is for other tensors");
    return std::nullopt;
  }
  FoundObjects objects(all.text(), frame);
  std::string described = all.text();
  ByteReader known(described);
  std::vector<sym::Expr> symbols(known.count());
  for (sym::Expr& e : symbols) {
    std::string name = known.text();
    auto kind = static_cast<sym::SymbolKind>(known.number(static_cast<uint64_t>(sym::SymbolKind::Indirect)));
    int64_t lo = known.integer(), hi = known.integer();
    e = arena->symbol(std::move(name), kind, {lo, hi});
    bool expected = known.number(1) != 0;
    int64_t value = known.integer();
    if (expected) arena->expect(e, value);
  }
  std::string body = all.text();
  if (!all.at_end()) damaged("more than was written");
  sym::Unpacker in(body, *arena, symbols);
  Reader reader(in, objects, frame);
  reader.arena_ = arena;
  try {
    Segment out = reader.run();
    in.finish();
    return out;
  } catch (const Other& other) {
    tell(Topic::Caches, "a capture on disk does not hold: " + other.what);
    return std::nullopt;
  }
}

}  // namespace braze::capture
