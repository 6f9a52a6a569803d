// Where a segment ends: what the recipe holds then, the graph's inputs, and guards that only the end knows of.
#include "capture/eval/segment_end.h"

#include <algorithm>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "base/strict.h"
#include "capture/code/liveness.h"
#include "capture/eval/library_objects.h"
#include "capture/eval/operands.h"
#include "capture/eval/translator.h"
#include "capture/guards/guard_eval.h"
#include "capture/vars/all.h"
#include "capture/vars/tensor_grad.h"
#include "launch/storage_range.h"
#include "launch/tensor_spec.h"
#include "trace/global_state.h"

namespace braze::capture {
void SegmentEnd::refuse_open_generators() {
  for (Variable* g : tr_.generators())
    if (g->is(Kind::Generator) && g->reg == kNoReg && g->as<GeneratorVariable>()->has_end_to_run(tr_))
      throw Restart{std::max<uint64_t>(g->born, 1),
                    {Reason::UnsupportedFeature, "a generator that is dropped before its end"}};
}

// Of a value made here: whether making it needs nothing from the graph, and whether it has an instance of a class in
// it.
bool SegmentEnd::holds_no_tensor(Variable* v, int& budget, bool& object) {
  if (!v) return true;
  if (--budget < 0) return false;
  auto all = [&](const std::vector<Variable*>& elements) {
    return std::all_of(elements.begin(), elements.end(),
                       [&](Variable* e) { return holds_no_tensor(e, budget, object); });
  };
  if (v->source.valid())
    return !v->is(Kind::Tensor) &&
           !(v->is(Kind::Lazy) && PyObject_TypeCheck(v->as<LazyVariable>()->object.get(), library().tensor));
  switch (v->kind) {
    case Kind::Constant:
    case Kind::Real: return true;
    case Kind::Tuple:
    case Kind::List: return all(static_cast<SequenceVariable*>(v)->elements);
    case Kind::Set: return all(v->as<SetVariable>()->elements());
    case Kind::Dict:
      for (const auto& e : v->as<DictVariable>()->entries(tr_))
        if (!holds_no_tensor(e.key, budget, object) || !holds_no_tensor(e.value, budget, object)) return false;
      return true;
    case Kind::BoundMethod: return holds_no_tensor(v->as<BoundMethodVariable>()->self, budget, object);
    case Kind::Object: {
      auto* o = v->as<ObjectVariable>();
      if (o->is_exception() || tr_.is_made_class(o->cls)) return false;
      object = true;
      for (const auto& s : o->slots)
        if (!holds_no_tensor(s.value, budget, object)) return false;
      return holds_no_tensor(o->base, budget, object) && holds_no_tensor(o->instance_dict(tr_), budget, object);
    }
    default: return false;
  }
}

bool SegmentEnd::holds_generator(Variable* v, int& budget) {
  if (!v) return false;
  if (--budget < 0) return true;
  auto any = [&](const std::vector<Variable*>& elements) {
    return std::any_of(elements.begin(), elements.end(), [&](Variable* e) { return holds_generator(e, budget); });
  };
  switch (v->kind) {
    case Kind::Generator: return !v->as<GeneratorVariable>()->finished;
    case Kind::Iterator: return !v->source.valid();
    case Kind::Tuple:
    case Kind::List: return any(static_cast<SequenceVariable*>(v)->elements);
    case Kind::Set: return any(v->as<SetVariable>()->elements());
    case Kind::Dict: {
      const auto& entries = v->as<DictVariable>()->entries(tr_);
      return std::any_of(entries.begin(), entries.end(), [&](const auto& e) {
        return holds_generator(e.key, budget) || holds_generator(e.value, budget);
      });
    }
    case Kind::BoundMethod: return holds_generator(v->as<BoundMethodVariable>()->self, budget);
    case Kind::Cell: return holds_generator(v->as<CellVariable>()->contents, budget);
    case Kind::Object: {
      auto* o = v->as<ObjectVariable>();
      auto held = [&](const auto& s) { return holds_generator(s.value, budget); };
      return std::any_of(o->slots.begin(), o->slots.end(), held) || holds_generator(o->base, budget) ||
             holds_generator(o->instance_dict(tr_), budget);
    }
    default: return false;
  }
}

bool SegmentEnd::stays(Variable* v) {
  if (!v) return false;
  int most = 200;
  if (!v->source.valid() && !tr_.generators().empty() && holds_generator(v, most)) return true;
  if (!v->source.valid()) {
    int budget = 200;
    bool object = false;
    return holds_no_tensor(v, budget, object) && object;
  }
  return v->is(Kind::Lazy) ? !PyObject_TypeCheck(v->as<LazyVariable>()->object.get(), library().tensor)
                           : !v->is(Kind::Tensor);
}

void SegmentEnd::emit_frames(Codegen& cg) {
  std::vector<Frame*> chain;
  for (Frame* f = tr_.frame(); f; f = f->parent) chain.insert(chain.begin(), f);
  const bool looked_at =
      std::any_of(chain.begin(), chain.end(), [](Frame* f) { return looks_at_frames(f->code->code); });
  for (Frame* f : chain) {
    FrameImage image;
    image.code = f->code->code;
    image.function = f->parent ? cg.reg(f->function) : kNoReg;
    image.instruction = f->ip;
    // What can't be read any more is not brought back: by the code itself, or by a function that it calls. Of the outer
    // frames the call is over, of the innermost it is to come.
    std::vector<bool> live = live_locals(*f->code, f == tr_.frame() ? f->ip : f->ip + 1);
    if (f->code->instructions[static_cast<size_t>(f->ip)].handler >= 0) {
      std::vector<bool> caught = live_locals(*f->code, f->ip);
      for (size_t i = 0; i < live.size(); ++i) live[i] = live[i] || caught[i];
    }
    if (looked_at) live.assign(live.size(), true);
    for (size_t i = 0; i < f->locals.size(); ++i) {
      // A local that was not bound at the start and can't be read may be bound in another run, by an earlier turn of a
      // loop. It stays.
      bool untouched = !f->parent && !f->locals[i] &&
                       std::find(f->cleared.begin(), f->cleared.end(), static_cast<int>(i)) == f->cleared.end();
      image.locals.push_back(untouched ? kAsBefore : live[i] || stays(f->locals[i]) ? cg.reg(f->locals[i]) : kNoReg);
    }
    const auto depth = static_cast<size_t>(f->sp);
    for (size_t i = 0; i < depth; ++i) {
      Variable* callable = i + 1 < depth ? cpython::called_without_self(f->stack[i], f->stack[i + 1]) : nullptr;
      auto* method = callable && callable->is(Kind::BuiltinMethod) ? callable->as<BuiltinMethodVariable>() : nullptr;
      if (method && method->only_called && Py_TYPE(method->descr.get()) == &PyMethodDescr_Type) {
        // As the interpreter has a method that it calls at once: some texts of exceptions tell it from a bound one.
        image.stack.push_back(cg.constant(method->descr.get()));
        image.stack.push_back(cg.reg(method->self));
        ++i;
      } else {
        image.stack.push_back(cg.reg(f->stack[i]));
      }
    }
    if (f == tr_.frame() && tr_.handled) image.handled = cg.reg(tr_.handled);
    if (f->kw_names) image.kw_names = cg.constant(f->kw_names);
    tr_.segment().recipe.frames.push_back(std::move(image));
  }
}

void SegmentEnd::at_return(Variable* result) {
  Codegen cg(tr_, tr_.segment().recipe);
  trace::WithoutTorchFunctions own_questions(tr_.torch_functions.any() ? 2 : 0);
  try {
    tr_.segment().recipe.result = cg.reg(result);
    const FrameView& view = tr_.view();
    for (int i = 0; view.start > 0 && i < view.bytecode->num_locals_plus; ++i) {
      Variable* v = tr_.frame()->locals[static_cast<size_t>(i)];
      if (view.slots[i] && !(v && v->source == tr_.sources().local(i))) tr_.segment().recipe.released.push_back(i);
    }
    if (tr_.handled) tr_.segment().recipe.handled = cg.reg(tr_.handled);
    tr_.effects.emit(cg);
    refuse_open_generators();
    finish_graph(cg);
  } catch (const CannotRebuild& e) {
    throw Restart{std::max<uint64_t>(e.variable->born, 1),
                  {Reason::UnsupportedFeature, e.what + " leaves the compiled code"}};
  } catch (const Unsupported& e) {
    throw Restart{1, {e.reason(), e.detail()}};
  } catch (const PyRaise& e) {
    throw Restart{1, {Reason::RaisedException, describe_exception(e.exception)}};
  }
}

void SegmentEnd::before_instruction(const BreakInfo& info) {
  // What stands for the mode's guard enters nothing: the interpreter would go on outside of it.
  if (tr_.effects.inference) throw Restart{tr_.effects.inference_since, {info.reason, info.detail}};
  tr_.segment().stop = info;
  Codegen cg(tr_, tr_.segment().recipe);
  trace::WithoutTorchFunctions own_questions(tr_.torch_functions.any() ? 2 : 0);
  try {
    emit_frames(cg);
    tr_.segment().recipe.frames.back().raises = info.reason == Reason::RaisedException;
    tr_.effects.emit(cg);
    refuse_open_generators();
    finish_graph(cg);
  } catch (const CannotRebuild& e) {
    throw Restart{std::max<uint64_t>(e.variable->born, 1), {info.reason, info.detail}};
  } catch (const Unsupported& e) {
    throw Restart{1, {e.reason(), e.detail()}};
  }
}

void SegmentEnd::finish_graph(Codegen& cg) {
  Segment& segment = tr_.segment();
  std::vector<PyObject*> inputs;
  segment.captured = tr_.tracer().finish(cg.outputs, inputs);
  segment.num_outputs = cg.outputs.size();
  for (PyObject* o : cg.outputs)
    if (tr_.effects.dual_since && PyObject_TypeCheck(o, library().tensor) && tr_.tracer().has_tangent(o))
      throw Restart{tr_.effects.dual_since,
                    {Reason::UnsupportedFeature, "a dual number of forward-mode differentiation leaves the graph"}};
  // The graph runs in one mode: in inference mode, what is on the memory of plain inputs stays plain.
  bool plain = false;
  for (PyObject* o : cg.outputs) {
    Variable* v = tr_.effects.inference_since ? tr_.standing_for(o) : nullptr;
    bool inference = v && v->is(Kind::Tensor) && tr_.is_inference(v->as<TensorVariable>());
    segment.inference |= inference;
    plain |=
        !inference && tr_.effects.inference_since && PyObject_TypeCheck(o, library().tensor) && !tr_.on_plain_input(o);
  }
  if (segment.inference && plain)
    throw Restart{tr_.effects.inference_since, {Reason::UnsupportedFeature, "results of inference mode beside others"}};
  const auto& graph = segment.captured.graph;
  for (const graph::Node& n : graph.nodes())
    if (!tr_.effects.locks().empty() && n.op == graph::Op::Extern && n.extern_name.rfind("aten::", 0) != 0)
      throw Restart{tr_.effects.locks()[0].ordinal,
                    {Reason::UnknownFunction, "a lock beside " + n.extern_name + ", whose kernel may wait for it"}};
  std::unordered_map<PyObject*, std::pair<SourceId, bool>> known;  // and whether it is a number
  for (TensorVariable* t : tr_.lifted_tensors()) known.emplace(t->real.get(), std::pair(t->source, false));
  for (const auto& n : tr_.floats.numbers()) known.emplace(n.tensor.get(), std::pair(n.source, true));
  segment.numbers = !tr_.floats.numbers().empty();
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (i < graph.inputs.size() && graph.inputs[i].kind == graph::InputKind::Constant) continue;
    auto it = known.find(inputs[i]);
    if (it == known.end()) throw InternalError("a graph input that was not lifted");
    auto [source, number] = it->second;
    segment.inputs.push_back(source);
    inputs_.push_back({source, inputs[i], number});
  }
  guard_parameters();
  guard_distinct_objects();
  if (!graph.writebacks.empty()) guard_written_inputs();
  // What is no tensor of the caller's, or always the same, needs no comparison with others of its kind.
  std::vector<SourceId> callers;
  for (const Input& i : inputs_)
    if (!i.number && !tr_.is_fixed(i.source, i.tensor)) callers.push_back(i.source);
  if (callers.size() > 1) tr_.guards().all_distinct(std::move(callers), {});
}

// Parameters and buffers are those that were seen, except where the captured code itself puts another in their place.
void SegmentEnd::guard_parameters() {
  for (TensorVariable* t : tr_.lifted_tensors()) {
    if (!tr_.is_fixed(t->source, t->real.get())) continue;
    bool replaced = false;
    for (Variable* m : tr_.effects.modifications())
      replaced |= m->source.valid() && m->source == tr_.sources()[t->source].base;
    if (!replaced) tr_.guard_identity(t->source, t->real.get());
  }
}

// Two inputs on one storage, one of them written: reads through the other would have to see it.
void SegmentEnd::guard_written_inputs() {
  const auto& graph = tr_.segment().captured.graph;
  std::vector<bool> written(inputs_.size());
  for (const auto& w : graph.writebacks) {
    size_t index = graph.value(w.input).index, k = 0;
    for (size_t i = 0; i < index && i < graph.inputs.size(); ++i)
      k += graph.inputs[i].kind != graph::InputKind::Constant;
    if (k < written.size()) written[k] = true;
  }
  std::vector<launch::StorageRange> ranges;
  for (const Input& i : inputs_) ranges.push_back(launch::storage_range(i.tensor));
  std::vector<SourceId> group, others;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (!inputs_[i].number) (written[i] ? group : others).push_back(inputs_[i].source);
    for (size_t j = 0; j < inputs_.size() && written[i]; ++j) {
      if (i == j || inputs_[j].number || !launch::overlap(ranges[i], ranges[j])) continue;
      auto of_array = [&](const Input& x) { return tr_.sources()[x.source].kind == SourceKind::ArrayTensor; };
      throw Unsupported(Reason::UnsupportedMutation,
                        of_array(inputs_[i]) || of_array(inputs_[j])
                            ? "an array is written that shares memory with another input"
                            : "a tensor is written that shares storage with another input");
    }
  }
  size_t count = group.size();
  group.insert(group.end(), others.begin(), others.end());
  if (count && group.size() > 1) tr_.guards().apart(std::move(group), count, {});
}

// What was changed, or told from others by its identity, is no other object that was met on another path.
void SegmentEnd::guard_distinct_objects() {
  // What the instruction met that the segment ends before has lost its guards.
  auto is_kept = [&](Variable* v) { return !tr_.segment().stop || v->born < tr_.ordinal(); };
  std::set<std::pair<Kind, PyTypeObject*>> kinds;
  for (Variable* m : tr_.effects.modifications())
    if (m->source.valid() && !m->is(Kind::Cell)) kinds.emplace(m->kind, m->type());
  // The list, dict or set that an object of a subclass is, is met as that object.
  const std::set<Variable*> modified(tr_.effects.modifications().begin(), tr_.effects.modifications().end());
  for (auto& [object, v] : tr_.objects())
    if (v && content(v) != v && modified.count(content(v))) kinds.emplace(v->kind, v->type());
  if (tr_.has_tensor_keys())
    for (TensorVariable* t : tr_.lifted_tensors()) kinds.emplace(Kind::Tensor, t->type());
  for (const auto& [kind, type] : kinds) {
    std::vector<SourceId> group;
    for (auto& [object, v] : tr_.objects())
      if (v && v->kind == kind && v->source.valid() && v->type() == type && is_kept(v)) group.push_back(v->source);
    std::sort(group.begin(), group.end(), [](SourceId a, SourceId b) { return a.index < b.index; });
    group.erase(std::unique(group.begin(), group.end()), group.end());
    if (group.size() > 1) tr_.guards().all_distinct(std::move(group), {});
  }
}

namespace {

// Whether a guard is about what the program may change between a call and its backward: content of objects, and
// variables; not which functions and classes there are.
bool is_of_state(const Sources& sources, const Guard& g) {
  switch (g.kind) {
    case GuardKind::Equal:
    case GuardKind::Tensor:
    case GuardKind::Length:
    case GuardKind::DictKeys:
    case GuardKind::SetMembers:
    case GuardKind::RangeIs:
    case GuardKind::FloatHolds: break;
    default: return false;
  }
  if (PyObject* o = g.kind == GuardKind::Equal ? g.object.get() : nullptr) {
    const LibraryObjects& k = library();
    for (PyTypeObject* fixed : {k.dtype, k.device, k.layout, k.memory_format})
      if (Py_TYPE(o) == fixed) return false;
  }
  switch (sources[g.source].kind) {
    case SourceKind::DictItem:
    case SourceKind::ListItem:
    case SourceKind::Slot:
    case SourceKind::CellContents:
    case SourceKind::ContextValue:
    case SourceKind::TensorAttr:
    case SourceKind::Content: return true;
    case SourceKind::Local:
    case SourceKind::Stack:
      return g.kind == GuardKind::Length || g.kind == GuardKind::DictKeys || g.kind == GuardKind::SetMembers;
    default: return false;  // of functions, classes and tuples
  }
}

}  // namespace

// Before the guards are known: the backward may decide on sizes that stay open.
void SegmentEnd::add_gradients() {
  if (const auto& stop = tr_.segment().stop; stop && stop->reason == Reason::IntermediateHistory) {
    // The results of one compiled graph have no history among each other: as PyTorch's calls they have it.
    tr_.segment().no_gradients = Stop{stop->reason, stop->detail};
    return;
  }
  tr_.effects.begin_pure(tr_.ordinal() + 1, "the backward of an autograd.Function");
  const uint64_t called_back = tr_.host.called_back;
  const size_t guards = tr_.guards().items().size(), numbers = tr_.floats.numbers().size();
  try {
    // The compiled backward has a gradient for each result, which an autograd.Function may want to be told apart.
    if (tr_.host.undefined_gradients && tr_.segment().captured.graph.outputs.size() > 1)
      throw Unsupported(Reason::UnsupportedFeature,
                        "ctx.set_materialize_grads(False) where the graph has several results: a backward may be given "
                        "None for some of them");
    for (TensorVariable* t : tr_.lifted_tensors())
      if (leaves_history_behind(tr_, t))
        throw Unsupported(Reason::IntermediateHistory, "a tensor with a hook or a retained gradient is written");
    tr_.segment().gradients = trace::differentiate(tr_.tracer(), tr_.segment().captured);
    // What a hook reads when the backward runs may be changed until then, by the code behind a break too: it was traced
    // now.
    if (tr_.host.hook && tr_.host.called_back != called_back) {
      const auto& items = tr_.guards().items();
      const bool reads = tr_.floats.numbers().size() != numbers ||
                         std::any_of(items.begin() + static_cast<std::ptrdiff_t>(guards), items.end(),
                                     [&](const Guard& g) { return is_of_state(tr_.sources(), g); });
      if (reads || tr_.segment().stop)
        throw Restart{tr_.host.hook,
                      {Reason::IntermediateHistory, "a hook that reads what may change until its backward"}};
    }
  } catch (const trace::BackwardRefused& e) {
    stop_before(e);
    without_gradients(e);
  } catch (const Unsupported& e) {
    without_gradients(e);
  }
}

// A call whose backward cannot be traced is one that cannot be captured: what is before and after it can. What only
// open sizes may have brought about is tried with fixed ones first.
void SegmentEnd::stop_before(const trace::BackwardRefused& e) {
  if (tr_.host.hook && tr_.host.not_shown == tr_.host.hook) return;
  Stop why{e.reason(), e.detail()};
  if (auto inner = tr_.host.why_stopped()) why = {inner->reason, "in the backward: " + inner->detail};
  const bool reads_values = why.reason == Reason::ScalarFromTensor || why.reason == Reason::DataDependentBranch ||
                            why.reason == Reason::DynamicOutput;
  const bool open = !tr_.segment().captured.size_symbols.empty() || tr_.tracer().has_unbacked();
  if (open && !reads_values) return;
  if (uint64_t ordinal = tr_.that_made(e.node())) throw Restart{ordinal, why};
}

// Such a graph runs as PyTorch's calls, where those can be shown.
void SegmentEnd::without_gradients(const Unsupported& e) {
  if (tr_.host.not_shown)
    throw Restart{tr_.host.not_shown,
                  {tr_.host.not_shown == tr_.host.hook ? Reason::IntermediateHistory : e.reason(), e.detail()}};
  tr_.segment().no_gradients = Stop{e.reason(), e.detail()};
}

// What the user asked to stay open must have.
void SegmentEnd::refuse_fixed_marks(const trace::SizePlace& place, SourceId source) {
  const trace::Captured& captured = tr_.segment().captured;
  const trace::SizeSymbol& s = captured.size_symbols[place.symbol];
  for (const DimMark& m : marks_of(place.tensor)) {
    if (!m.dynamic || m.weak || m.dim != place.dim) continue;
    bool narrower = m.bounded && (s.range.lo > s.declared.lo || s.range.hi < s.declared.hi);
    if (s.fixed_by < 0 && !narrower) continue;
    int32_t guard = s.fixed_by;
    for (size_t i = 0; guard < 0 && i < captured.size_guards.size(); ++i)
      if (tr_.segment().sizes.arena->contains(captured.size_guards[i].condition, s.symbol))
        guard = static_cast<int32_t>(i);
    UserLine at = guard >= 0 ? tr_.size_line(captured.size_guards[static_cast<size_t>(guard)].where) : UserLine{};
    std::string what = s.fixed_by >= 0
                           ? "must be " + std::to_string(launch::read_size(place.tensor, place.dim))
                           : "must be from " + std::to_string(s.range.lo) + " to " + std::to_string(s.range.hi);
    std::string text = source_text(at);
    throw UserError{"dimension " + std::to_string(place.dim) + " of " + tr_.sources().print(source) +
                    " was marked dynamic, but the code says that it " + what + (at.code ? "\n" + describe(at) : "") +
                    (text.empty() ? "" : "\n    " + text) +
                    "\n  hint: mark the range that the code takes (min=, max=), or don't mark the dimension"};
  }
}

void SegmentEnd::finish_sizes() {
  const trace::Captured& captured = tr_.segment().captured;
  SizeGuards& sizes = tr_.segment().sizes;
  sizes.arena = captured.graph.shared_arena();
  std::unordered_map<PyObject*, TensorVariable*> by_tensor;
  for (TensorVariable* t : tr_.lifted_tensors()) by_tensor.emplace(t->real.get(), t);
  for (const trace::SizeSymbol& s : captured.size_symbols) sizes.symbols.push_back({s.symbol, s.range});
  std::unordered_set<uint32_t> guarded;
  for (const Guard& g : tr_.guards().items())
    if (g.kind == GuardKind::Tensor) guarded.insert(g.source.index);
  for (const trace::SizePlace& p : captured.size_places) {
    TensorVariable* t = p.tensor ? by_tensor.at(p.tensor) : nullptr;
    SourceId source = t ? t->source : tr_.open_integer(static_cast<size_t>(p.dim));
    // The instruction that the segment ends before may have been the one that met the tensor: its guard is gone, and
    // its sizes are read.
    if (t && guarded.insert(source.index).second) tr_.guards().tensor(source, p.tensor, t->symbolic, tr_.line());
    sizes.places.push_back({source, p.symbol, p.dim, p.tensor == nullptr});
    if (p.tensor && p.dim >= 0) refuse_fixed_marks(p, source);
  }
  for (const trace::SizeGuard& g : captured.size_guards)
    sizes.conditions.push_back({g.condition, tr_.size_line(g.where)});
  sizes.values.insert(sizes.values.end(), captured.symbol_values.begin(), captured.symbol_values.end());
}

void SegmentEnd::complete() {
  if (tr_.segment().captured.needs_grad && tr_.view().gradients) add_gradients();
  finish_sizes();
  if (verifying()) tr_.verify_grounds();
  tr_.guards().forget(tr_.of_made_classes(), tr_.sources());
  tr_.guards().simplify(tr_.sources());
}

}  // namespace braze::capture
