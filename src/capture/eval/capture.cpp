// From a frame to a segment: attempts, the place where one ends, and what the recipe holds then.
#include "capture/eval/capture.h"

#include <algorithm>
#include <set>
#include <unordered_set>

#include "base/strict.h"
#include "capture/builtins/builtins.h"
#include "capture/guards/guard_eval.h"
#include "capture/eval/library_objects.h"
#include "capture/code/liveness.h"
#include "capture/eval/markers.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"
#include "capture/vars/random_generator.h"
#include "trace/storage_range.h"

namespace braze::capture {
namespace {

std::string text_of(Variable* exception) {
  std::string out = exception->type()->tp_name;
  if (exception->is(Kind::Object))
    if (auto* base = exception->as<ObjectVariable>()->base; base && base->is(Kind::Tuple) && !base->as<TupleVariable>()->elements.empty())
      if (PyObject* s = base->as<TupleVariable>()->elements[0]->as_constant(); s && PyUnicode_Check(s)) out += std::string(": ") + PyUnicode_AsUTF8(s);
  return out;
}

void register_all() {
  static const bool done = [] {
    register_core_builtins();
    register_container_builtins();
    register_functional_builtins();
    register_class_builtins();
    register_torch_builtins();
    register_message_builtins();
    register_print_builtin();
    register_random_generator_builtins();
    register_lock_builtins();
    register_autograd_builtins();
    register_cache_builtins();
    register_random_builtins();
    register_numpy_builtins();
    register_numpy_random_builtins();
    register_legacy_constructors();
    register_torch_function_builtins();
    return true;
  }();
  (void)done;
}

}  // namespace

Translator::Translator(const FrameView& view, const Options& options, const std::map<uint64_t, Stop>& stops)
    : view_(view), options_(options), stops_(stops) {
  segment_.sources = std::make_shared<Sources>(view.bytecode->code);
  alive_ = std::make_shared<Translator*>(this);
  none_ = make<ConstantVariable>(Py_None, Ground::fixed());
  true_ = make<ConstantVariable>(Py_True, Ground::fixed());
  false_ = make<ConstantVariable>(Py_False, Ground::fixed());
  segment_.tracer = trace::Tracer::create(options);
  if (view.unbacked) segment_.tracer->allow_unbacked();
  segment_.global_state = trace::global_state_key();
  size_lines_.push_back({});
  tracer().set_where([this] {
    size_lines_.push_back(line());
    return static_cast<uint32_t>(size_lines_.size() - 1);
  });
}

Translator::~Translator() {
  *alive_ = nullptr;
  undo_states();
  leave_devices();
  restore_function_modes();
  if (entered_ && segment_.tracer) segment_.tracer->leave();
}

void Translator::undo_states() {
  for (auto it = states_.rbegin(); it != states_.rend(); ++it) {
    std::vector<PyObject*> args;
    for (const Ref& a : it->get_args) args.push_back(a.get());
    args.push_back(it->before.get());
    Ref r = Ref::steal(PyObject_Vectorcall(it->set, args.data(), args.size(), nullptr));
    if (!r) PyErr_Clear();
  }
  states_.clear();
}

void Translator::start_frame() {
  Frame* f = new_frame();
  frame_ = f;
  const Bytecode& code = *view_.bytecode;
  f->code = &code;
  f->globals = view_.globals;
  f->builtins = view_.builtins;
  f->globals_source = sources().constant(view_.globals, "G");
  f->locals.resize(static_cast<size_t>(code.num_locals_plus));
  f->stack.resize(static_cast<size_t>(code.max_stack + std::max(0, view_.depth)) + 2);
  f->ip = view_.start;
  std::vector<bool> live;
  if (view_.start > 0) live = live_locals(code, view_.start);
  for (int i = 0; i < code.num_locals_plus; ++i) {
    PyObject* o = view_.slots[i];
    SourceId s = sources().local(i);
    auto& slot = f->locals[static_cast<size_t>(i)];
    if (!o) {
      if (view_.start > 0 && live[static_cast<size_t>(i)]) guards().absent(s, line());
      continue;
    }
    bool cell = code.is_free(i) || (view_.start > 0 && code.is_cell(i) && PyCell_Check(o));
    slot = cell ? force(wrap(o, s)) : wrap(o, s);
  }
  for (int i = 0; i < view_.depth; ++i) {
    PyObject* o = view_.slots[code.num_locals_plus + i];
    f->push(o ? wrap(o, sources().stack(i)) : nullptr);
  }
}

// The interpreter closes a generator that nobody holds any more: one that would then run code of the program's is left to it.
void Translator::refuse_open_generators() {
  for (Variable* g : generators_)
    if (g->as<GeneratorVariable>()->has_end_to_run())
      throw Restart{std::max<uint64_t>(g->born, 1), {Reason::UnsupportedFeature, "a generator that is dropped before its end"}};
}

Segment Translator::run() {
  start_frame();
  adopt_function_modes();
  tracer().enter();
  entered_ = true;
  try {
    finish(run_frame(frame_));
  } catch (const Finished&) {
  } catch (const PyRaise& e) {
    throw Restart{std::max<uint64_t>(e.origin, 1), {Reason::RaisedException, text_of(e.exception)}};
  }
  undo_states();
  segment_.without_torch_functions = own_modes_ ? 2 : subclasses_ ? 1 : 0;
  leave_devices();
  restore_function_modes();
  tracer().leave();
  entered_ = false;
  PyErr_Clear();
  if (segment_.captured.needs_grad && view_.gradients) add_gradients();
  finish_sizes();
  if (verifying()) verify_grounds();
  guards().simplify(sources());
  return std::move(segment_);
}

// Every constant that says that it is guarded has its guard.
void Translator::verify_grounds() {
  std::unordered_set<uint32_t> guarded;
  for (const Guard& g : guards().items()) {
    guarded.insert(g.source.index);
    if (g.other.valid()) guarded.insert(g.other.index);
  }
  for (size_t i = 0; i < std::min(arena_.size(), forgotten_); ++i) {
    Variable* v = arena_[i].get();
    if (!v->is(Kind::Constant)) continue;
    const Ground& g = v->as<ConstantVariable>()->ground;
    bool held = g.kind() != Ground::Kind::Guarded || !g.source().valid() || sources()[g.source()].kind == SourceKind::Const;
    if (!held && !guarded.count(g.source().index)) throw InternalError("no guard for " + v->describe() + ", found at " + sources().print(g.source()));
  }
}

// Before the guards are known: the backward may decide on sizes that stay open.
void Translator::add_gradients() {
  pure_since = ++ordinal_;
  pure_part = "the backward of an autograd.Function";
  try {
    segment_.gradients = trace::differentiate(tracer(), segment_.captured);
  } catch (const Unsupported& e) {
    segment_.no_gradients = Stop{e.reason(), e.detail()};
  }
}

void Translator::stop_here(const Stop& stop) {
  PyErr_Clear();
  Frame* at = nullptr;
  for (Frame* f = frame_; f->parent; f = f->parent)
    if (!f->resumable) at = f->parent;
  if (at) throw Restart{at->ordinal, stop};
  if (dirty_) throw Restart{frame_->ordinal, stop};
  if (handled) {
    // An exception is being handled: the interpreter is to raise it itself, so that it handles it, too.
    auto it = origins_.find(force(handled));
    if (it != origins_.end() && it->second > 0 && it->second < frame_->ordinal) throw Restart{it->second, stop};
  }
  BreakInfo info{stop.reason, stop.detail, line(), {}};
  for (Frame* f = frame_->parent; f; f = f->parent) info.stack.insert(info.stack.begin(), f->line());
  segment_.stop = info;
  refuse_open_generators();
  Codegen cg(*this, segment_.recipe);
  trace::WithoutTorchFunctions own_questions(subclasses_ || own_modes_ ? 2 : 0);
  try {
    emit_frames(cg);
    emit_effects(cg);
    finish_graph(cg);
  } catch (const CannotRebuild& e) {
    throw Restart{std::max<uint64_t>(e.variable->born, 1), {stop.reason, stop.detail}};
  } catch (const Unsupported& e) {
    throw Restart{1, {e.reason(), e.detail()}};
  }
  throw Finished{};
}

void Translator::finish(Variable* result) {
  refuse_open_generators();
  Codegen cg(*this, segment_.recipe);
  trace::WithoutTorchFunctions own_questions(subclasses_ || own_modes_ ? 2 : 0);
  try {
    segment_.recipe.result = cg.reg(result);
    if (handled) segment_.recipe.handled = cg.reg(handled);
    emit_effects(cg);
    finish_graph(cg);
  } catch (const CannotRebuild& e) {
    throw Restart{std::max<uint64_t>(e.variable->born, 1), {Reason::UnsupportedFeature, e.what + " leaves the compiled code"}};
  } catch (const Unsupported& e) {
    throw Restart{1, {e.reason(), e.detail()}};
  } catch (const PyRaise& e) {
    throw Restart{1, {Reason::RaisedException, text_of(e.exception)}};
  }
}

// Of a value made here: whether making it needs nothing from the graph, and whether it has an instance of a class in it.
bool Translator::holds_no_tensor(Variable* v, int& budget, bool& object) {
  if (!v) return true;
  if (--budget < 0) return false;
  auto all = [&](const std::vector<Variable*>& elements) { return std::all_of(elements.begin(), elements.end(), [&](Variable* e) { return holds_no_tensor(e, budget, object); }); };
  if (v->source.valid()) return !v->is(Kind::Tensor) && !(v->is(Kind::Lazy) && PyObject_TypeCheck(v->as<LazyVariable>()->object.get(), library().tensor));
  switch (v->kind) {
    case Kind::Constant:
    case Kind::Real: return true;
    case Kind::Tuple:
    case Kind::List: return all(static_cast<SequenceVariable*>(v)->elements);
    case Kind::Set: return all(v->as<SetVariable>()->elements());
    case Kind::Dict:
      for (const auto& e : v->as<DictVariable>()->entries(*this))
        if (!holds_no_tensor(e.key, budget, object) || !holds_no_tensor(e.value, budget, object)) return false;
      return true;
    case Kind::BoundMethod: return holds_no_tensor(v->as<BoundMethodVariable>()->self, budget, object);
    case Kind::Object: {
      auto* o = v->as<ObjectVariable>();
      if (o->is_exception() || is_made_class(o->cls)) return false;
      object = true;
      for (const auto& s : o->slots)
        if (!holds_no_tensor(s.value, budget, object)) return false;
      return holds_no_tensor(o->base, budget, object) && holds_no_tensor(o->instance_dict(*this), budget, object);
    }
    default: return false;
  }
}

void Translator::emit_frames(Codegen& cg) {
  std::vector<Frame*> chain;
  for (Frame* f = frame_; f; f = f->parent) chain.insert(chain.begin(), f);
  for (Frame* f : chain) {
    FrameImage image;
    image.code = f->code->code;
    image.function = f->parent ? cg.reg(f->function) : kNoReg;
    image.instruction = f->ip;
    // What can't be read any more is not brought back. Of the outer frames the call is over, of the innermost it is to come.
    std::vector<bool> live = live_locals(*f->code, f == frame_ ? f->ip : f->ip + 1);
    if (f->code->instructions[static_cast<size_t>(f->ip)].handler >= 0) {
      std::vector<bool> caught = live_locals(*f->code, f->ip);
      for (size_t i = 0; i < live.size(); ++i) live[i] = live[i] || caught[i];
    }
    // What was there before may be kept alive by this frame alone: it stays. So does what a weak reference or a finalizer may
    // tell the end of, where that costs no tensor.
    auto stays = [&](Variable* v) {
      if (!v) return false;
      if (!v->source.valid()) {
        int budget = 200;
        bool object = false;
        return holds_no_tensor(v, budget, object) && object;
      }
      return v->is(Kind::Lazy) ? !PyObject_TypeCheck(v->as<LazyVariable>()->object.get(), library().tensor) : !v->is(Kind::Tensor);
    };
    for (size_t i = 0; i < f->locals.size(); ++i) image.locals.push_back(live[i] || stays(f->locals[i]) ? cg.reg(f->locals[i]) : kNoReg);
    for (int i = 0; i < f->sp; ++i) image.stack.push_back(cg.reg(f->stack[static_cast<size_t>(i)]));
    if (f == frame_ && handled) image.handled = cg.reg(handled);
    if (f->kw_names) image.kw_names = cg.constant(f->kw_names);
    segment_.recipe.frames.push_back(std::move(image));
  }
}

// A deque that was there before gets its items anew.
static void emit_deque(Codegen& cg, ListVariable* v, Reg self) {
  if (!v->changes) {  // its iterators go on
    for (size_t i = 0; i < v->elements.size(); ++i)
      cg.recipe.effect(StepKind::SetItem, {self, cg.constant(Ref::steal(PyLong_FromSize_t(i)).get()), cg.reg(v->elements[i])});
    return;
  }
  auto method = [&](const char* name) { return cg.constant(Ref::steal(native::attr(Ground::fixed(), reinterpret_cast<PyObject*>(v->cls), name)).get()); };
  Reg items = cg.recipe.make(StepKind::List, cg.regs(v->elements));
  cg.recipe.make(StepKind::Call, {method("clear"), self});
  cg.recipe.make(StepKind::Call, {method("extend"), self, items});
}

void Translator::emit_effects(Codegen& cg) {
  emit_locks();
  // By index: what is emitted may touch more.
  for (size_t i = 0; i < modified_.size(); ++i) {
    Variable* v = modified_[i];
    Reg self = cg.reg(v);
    switch (v->kind) {
      case Kind::Dict: v->as<DictVariable>()->emit_changes(cg, self); break;
      case Kind::List: {
        if (v->type() != &PyList_Type) {
          emit_deque(cg, v->as<ListVariable>(), self);
          break;
        }
        std::vector<Reg> args{self};
        for (Variable* e : v->as<ListVariable>()->elements) args.push_back(cg.reg(e));
        cg.recipe.effect(StepKind::ListAssign, args);
        break;
      }
      case Kind::Set: {
        std::vector<Reg> args{self};
        v->as<SetVariable>()->add_content(cg, args);
        cg.recipe.effect(StepKind::SetAssign, args);
        break;
      }
      case Kind::Cell: cg.recipe.effect(StepKind::CellSet, {self, cg.reg(v->as<CellVariable>()->contents)}); break;
      case Kind::Object:
      case Kind::Module: v->as<ObjectVariable>()->emit_changes(cg, self); break;
      case Kind::Tensor: v->as<TensorVariable>()->emit_changes(cg, self); break;
      case Kind::Iterator: static_cast<IteratorVariable*>(v)->emit_advance(cg, self); break;
      default: throw InternalError("a change of " + v->describe() + " without a recipe");
    }
  }
  for (const TypeWrite& w : type_writes_) cg.recipe.effect(StepKind::SetAttr, {cg.constant(reinterpret_cast<PyObject*>(w.type)), cg.reg(w.value)}, w.name);
  emit_gradients(cg);
  for (Variable* v : always_made_) cg.reg(v);
  for (const DeferredCall& c : deferred_) {
    std::vector<Reg> regs{cg.reg(c.callee)};
    for (Variable* a : c.args.pos) regs.push_back(cg.reg(a));
    Ref names = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(c.args.kw.size())));
    for (size_t i = 0; i < c.args.kw.size(); ++i) {
      regs.push_back(cg.reg(c.args.kw[i].second));
      PyTuple_SET_ITEM(names.get(), static_cast<Py_ssize_t>(i), Ref::borrow(c.args.kw[i].first).release());
    }
    cg.recipe.make(StepKind::Call, regs, c.args.kw.empty() ? nullptr : names.get());
  }
  emit_function_modes(cg);
  for (const State& s : states_) {
    std::vector<PyObject*> args;
    for (const Ref& a : s.get_args) args.push_back(a.get());
    Ref now = Ref::steal(PyObject_Vectorcall(s.get, args.data(), args.size(), nullptr));
    if (!now) {
      PyErr_Clear();
      continue;
    }
    if (PyObject_RichCompareBool(now.get(), s.before.get(), Py_EQ) == 1) continue;
    std::vector<Reg> regs{cg.constant(s.set)};
    for (const Ref& a : s.set_args) regs.push_back(cg.constant(a.get()));
    cg.recipe.make(StepKind::Call, regs);
  }
}

int64_t Translator::recipe_integer(PyObject* sym) {
  sym::Expr e;
  if (!tracer().size_expression(sym, &e)) throw Unsupported(Reason::UnsupportedFeature, "a symbolic number of another compiler");
  segment_.sizes.values.push_back(e);
  return static_cast<int64_t>(segment_.num_integers++);
}

void Translator::finish_sizes() {
  const trace::Captured& captured = segment_.captured;
  SizeGuards& sizes = segment_.sizes;
  sizes.arena = captured.graph.shared_arena();
  std::unordered_map<PyObject*, TensorVariable*> by_tensor;
  for (TensorVariable* t : lifted_) by_tensor.emplace(t->real.get(), t);
  for (const trace::SizeSymbol& s : captured.size_symbols) sizes.symbols.push_back({s.symbol, s.range});
  for (const trace::SizePlace& p : captured.size_places) {
    SourceId source = p.tensor ? by_tensor.at(p.tensor)->source : open_integers_.at(static_cast<size_t>(p.dim));
    sizes.places.push_back({source, p.symbol, p.dim, p.tensor == nullptr});
    if (!p.tensor || p.dim < 0) continue;
    // What the user asked to stay open must have.
    const trace::SizeSymbol& s = captured.size_symbols[p.symbol];
    for (const DimMark& m : marks_of(p.tensor)) {
      if (!m.dynamic || m.weak || m.dim != p.dim) continue;
      bool narrower = m.bounded && (s.range.lo > s.declared.lo || s.range.hi < s.declared.hi);
      if (s.fixed_by < 0 && !narrower) continue;
      int32_t guard = s.fixed_by;
      for (size_t i = 0; guard < 0 && i < captured.size_guards.size(); ++i)
        if (sizes.arena->contains(captured.size_guards[i].condition, s.symbol)) guard = static_cast<int32_t>(i);
      UserLine at = guard >= 0 ? size_lines_[captured.size_guards[static_cast<size_t>(guard)].where] : UserLine{};
      std::string what = s.fixed_by >= 0 ? "must be " + std::to_string(trace::read_size(p.tensor, p.dim))
                                         : "must be from " + std::to_string(s.range.lo) + " to " + std::to_string(s.range.hi);
      std::string text = source_text(at);
      throw UserError{"dimension " + std::to_string(p.dim) + " of " + sources().print(source) + " was marked dynamic, but the code says that it " + what +
                      (at.code ? "\n" + describe(at) : "") + (text.empty() ? "" : "\n    " + text) +
                      "\n  hint: mark the range that the code takes (min=, max=), or don't mark the dimension"};
    }
  }
  for (const trace::SizeGuard& g : captured.size_guards) sizes.conditions.push_back({g.condition, size_lines_[g.where]});
  sizes.values.insert(sizes.values.end(), captured.symbol_values.begin(), captured.symbol_values.end());
}

void Translator::finish_graph(Codegen& cg) {
  std::vector<PyObject*> inputs;
  segment_.captured = tracer().finish(cg.outputs, inputs);
  segment_.num_outputs = cg.outputs.size();
  segment_.inference = !cg.outputs.empty();
  for (PyObject* o : cg.outputs) {
    auto it = by_object_.find(o);
    segment_.inference &= it != by_object_.end() && it->second->is(Kind::Tensor) && it->second->as<TensorVariable>()->inference;
  }
  const auto& graph = segment_.captured.graph;
  for (const graph::Node& n : graph.nodes())
    if (!locks_.empty() && n.op == graph::Op::Extern && n.extern_name.rfind("aten::", 0) != 0)
      throw Restart{locks_[0].ordinal, {Reason::UnknownFunction, "a lock beside " + n.extern_name + ", whose kernel may wait for it"}};
  std::unordered_map<PyObject*, SourceId> by_tensor;
  for (TensorVariable* t : lifted_) by_tensor.emplace(t->real.get(), t->source);
  for (const Number& n : numbers_) by_tensor.emplace(n.tensor.get(), n.source);
  auto is_number = [&](PyObject* t) { return std::any_of(numbers_.begin(), numbers_.end(), [&](const Number& n) { return n.tensor.get() == t; }); };
  segment_.numbers = !numbers_.empty();
  std::vector<std::pair<SourceId, PyObject*>> tensors;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (i < graph.inputs.size() && graph.inputs[i].kind == graph::InputKind::Constant) continue;
    auto it = by_tensor.find(inputs[i]);
    if (it == by_tensor.end()) throw InternalError("a graph input that was not lifted");
    segment_.inputs.push_back(it->second);
    tensors.emplace_back(it->second, inputs[i]);
  }
  // Parameters and buffers are those that were seen, except where the captured code itself puts another in their place.
  for (TensorVariable* t : lifted_) {
    if (!anchored(t->source)) continue;
    bool replaced = false;
    for (Variable* m : modified_) replaced |= m->source.valid() && m->source == sources()[t->source].base;
    if (!replaced) guard_identity(t->source, t->real.get());
  }
  guard_distinct_objects();
  bool writes = !graph.writebacks.empty();
  // What is no tensor of the caller's, or always the same, needs no comparison with others of its kind.
  std::vector<bool> fixed, numbers;
  for (auto& [s, t] : tensors) {
    numbers.push_back(is_number(t));
    fixed.push_back(anchored(s) || numbers.back());
  }
  if (writes) {
    // Two inputs on one storage, one of them written: reads through the other would have to see it.
    std::vector<bool> written(tensors.size());
    for (const auto& w : graph.writebacks) {
      size_t index = graph.value(w.input).index, k = 0;
      for (size_t i = 0; i < index && i < graph.inputs.size(); ++i) k += graph.inputs[i].kind != graph::InputKind::Constant;
      if (k < written.size()) written[k] = true;
    }
    std::vector<trace::StorageRange> ranges;
    for (auto& [s, t] : tensors) ranges.push_back(trace::storage_range(t));
    std::vector<SourceId> group, others;
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (!numbers[i]) (written[i] ? group : others).push_back(tensors[i].first);
      for (size_t j = 0; j < tensors.size() && written[i]; ++j) {
        if (i == j || numbers[j] || !trace::overlap(ranges[i], ranges[j])) continue;
        bool array = sources()[tensors[i].first].kind == SourceKind::ArrayTensor || sources()[tensors[j].first].kind == SourceKind::ArrayTensor;
        throw Unsupported(Reason::UnsupportedMutation, array ? "an array is written that shares memory with another input" : "a tensor is written that shares storage with another input");
      }
    }
    size_t count = group.size();
    group.insert(group.end(), others.begin(), others.end());
    if (count && group.size() > 1) guards().apart(std::move(group), count, {});
  }
  std::vector<SourceId> callers;
  for (size_t i = 0; i < tensors.size(); ++i)
    if (!fixed[i]) callers.push_back(tensors[i].first);
  if (callers.size() > 1) guards().all_distinct(std::move(callers), {});
}

// What was changed, or told from others by its identity, is no other object that was met on another path.
void Translator::guard_distinct_objects() {
  std::set<std::pair<Kind, PyTypeObject*>> kinds;
  for (Variable* m : modified_)
    if (m->source.valid() && !m->is(Kind::Cell)) kinds.emplace(m->kind, m->type());
  if (tensor_keys_)
    for (TensorVariable* t : lifted_) kinds.emplace(Kind::Tensor, t->type());
  for (const auto& [kind, type] : kinds) {
    std::vector<SourceId> group;
    for (auto& [object, v] : by_object_)
      if (v && v->kind == kind && v->source.valid() && v->type() == type) group.push_back(v->source);
    std::sort(group.begin(), group.end(), [](SourceId a, SourceId b) { return a.index < b.index; });
    group.erase(std::unique(group.begin(), group.end()), group.end());
    if (group.size() > 1) guards().all_distinct(std::move(group), {});
  }
}

Segment capture(const FrameView& frame, const Options& options) {
  CapturingScope scope;
  register_all();
  std::map<uint64_t, Stop> stops;
  for (;;) {
    try {
      Translator tr(frame, options, stops);
      return tr.run();
    } catch (const Restart& r) {
      PyErr_Clear();
      constexpr size_t kMostAttempts = 200;
      // So many places where it can't stop: it ends before it begins.
      if (stops.size() == kMostAttempts) stops = {{1, r.stop}};
      else if (!stops.emplace(r.ordinal, r.stop).second)
        throw InternalError("the capture can't stop at step " + std::to_string(r.ordinal) + ": " + std::string(name(r.stop.reason)) + " " + r.stop.detail);
    }
  }
}

}  // namespace braze::capture
