#include "capture/frames/capture_entry.h"

#include <algorithm>
#include <chrono>

#include "base/log_topics.h"
#include "base/strict.h"
#include "capture/eval/markers.h"
#include "capture/frames/compilations.h"
#include "capture/frames/report.h"
#include "capture/frames/stance.h"
#include "capture/guards/content.h"
#include "capture/kept/kept_captures.h"
#include "trace/global_state.h"

namespace braze::capture {

namespace {

// Until its end a run changes nothing but the state of generators of random numbers. So one that fails can be made
// again by the uncompiled code: for the exception, of which a check of the graph knows the condition alone, and a
// kernel no line of the program's, and for effects that come before it. Where that is the traceback alone, not at the
// price of the generator's state in each call. Answers whether it checks anything.
bool note_failures(Entry& entry, const graph::Graph& graph) {
  bool checks = false;
  for (const graph::Node& n : graph.nodes()) {
    checks |= n.op == graph::Op::_assert_scalar;
    entry.random |= n.op == graph::Op::Extern || (graph::op_traits(n.op) & graph::kNondeterministic);
  }
  auto effect = [](const Step& s) { return s.dst == kNoReg || s.kind == StepKind::Call; };
  const auto& steps = entry.recipe.steps();
  entry.again_uncompiled =
      !entry.random || checks || !graph.writebacks.empty() || std::any_of(steps.begin(), steps.end(), effect);
  return checks;
}

// Whether nothing may be found there while its base stays as it is.
constexpr bool may_be_empty(SourceKind k) {
  return is_fleeting(k) || k == SourceKind::Slot || k == SourceKind::CellContents || k == SourceKind::DictItem ||
         k == SourceKind::FuncDefaults || k == SourceKind::FuncKwDefaults || k == SourceKind::FuncClosure;
}

double seconds_since(std::chrono::steady_clock::time_point t) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - t).count();
}

// What was captured is not so any more: another thread, or code that the capture called, changed it.
struct Changed {};
// Whether a capture took so long that finding it again is quicker: some 2 ms.
bool is_worth_keeping(const Segment& s) { return s.guards.size() + 4 * s.num_calls >= 250; }
constexpr int kMostChanges = 4;  // in a row; then it is the guards that do not hold

class EntryMaker {
 public:
  EntryMaker(Region& region, const GilPtr<Place>& place, const FrameView& view, GuardValues& values)
      : region_(region), place_(place), view_(view), values_(values), at_(first_line(view)) {
    view_.torch_level |= static_cast<bool>(region_.options().backend);
    view_.gradients = !region_.options().backend;
    config_ = torch_config();
    view_.unbacked = region_.options().fullgraph || config_.numbers;
  }

  GilPtr<Entry> run() {
    if (!region_.options().fullgraph && (place_->rests() || place_->is_spent(view_.rounds))) return {};
    // What a recorded CUDA Graph reads is to stay where it is.
    if (!region_.options().options.cuda_graphs) place_->look_for_passing(view_, values_);
    GilPtr<Entry> made;
    bool again = true;
    if (Listener told = listener()) told(at_, region_.options().name, nullptr);
    const bool before = place_->inserted() > 0;
    while (again) {
      event_ = {};
      again = false;
      made = attempt(again);
    }
    count(before);
    if (Listener told = listener()) told(at_, region_.options().name, &event_);
    if (region_.events) region_.events->push_back(std::move(event_));
    return made;
  }

 private:
  void count(bool again) const {
    Counters& c = counters();
    ++c.captures;
    c.recompiles += again;
    c.failures += event_.failed;
    c.graphs += event_.compiled;
    c.training_graphs += event_.trained && event_.compiled;
    c.capture_seconds += event_.capture_seconds;
    c.compile_seconds += event_.compile_seconds;
    if (event_.stop) ++c.breaks[std::string(name(event_.stop->reason))];
  }

  GilPtr<Entry> attempt(bool& again) {
    uint64_t before = place_->changes();
    GilPtr<Entry> entry;
    try {
      entry = make(again);
      if (again) return {};
    } catch (const Changed&) {
      again = true;
      return {};
    } catch (const UserError& e) {
      PyErr_SetString(PyExc_ValueError, e.message.c_str());
    } catch (const std::exception& e) {
      failed(e.what());
    }
    if (!entry) return {};
    place_->capture_succeeded();
    if (place_->changes() != before) {
      // Another thread may have been quicker.
      forget_contents();
      if (GilPtr<Entry> other = place_->find(view_, values_)) return other;
      again = !entry->guards->check(view_.slots, values_);
      if (again) return {};
    }
    place_->insert(entry);
    return entry;
  }

  GilPtr<Entry> make(bool& again) {
    // What may not be so in the next call, whatever its code.
    auto runs_eagerly = [&](const char* status, const char* why) {
      event_.graph_status = std::string("eagerly: ") + status;
      stopped({Reason::UnsupportedFeature, why, at_, {}});
      return GilPtr<Entry>{};
    };
    if (trace::dispatch_mode_active())  // it is to see every operator
      return runs_eagerly("a dispatch mode is on",
                          "a dispatch mode (torch.utils._python_dispatch.TorchDispatchMode) is on during the call");
    if (trace::recorded_by_jit())
      return runs_eagerly("torch.jit.trace records", "torch.jit.trace records the operators of the call");
    if (trace::below_autograd())
      return runs_eagerly("below autograd", "the call is below autograd (as in __torch_dispatch__)");
    if (trace::below_functionalisation())
      return runs_eagerly("below functionalisation", "the call is below functionalisation");
    Segment segment;
    GilPtr<Entry> entry;
    std::optional<KeptCaptures> kept;
    if (keeps()) kept.emplace(view_, region_.options().options, circumstances());
    std::string described;
    if (!kept || !find_kept(*kept, segment, entry)) {
      segment = capture_segment();
      if (segment.stop && !stopped(*segment.stop)) return {};
      entry = entry_of(segment);
      check(*entry, "a guard does not hold right after capture", segment.recipe);
      if (kept && is_worth_keeping(segment)) described = kept->describe(segment);
    } else if (segment.stop && !stopped(*segment.stop)) {
      return {};
    }
    if (region_.events) event_.guard_cost = measure(*entry->guards, event_.guards.size(), view_.slots);
    entry->recipe = std::move(segment.recipe);
    entry->sources->loosen(entry->guards->mortals());
    entry->recipe.loosen(entry->guards->mortals());
    if (!segment.num_calls && !segment.num_outputs) {
      if (kept) kept->keep(described);
      return entry;
    }
    bool checks = note_failures(*entry, segment.captured.graph);
    bool writes = !segment.captured.graph.writebacks.empty();
    // Another backend's graph writes as it runs: a run that fails is not made again.
    if (checks && writes && view_.torch_level && view_.checks && !view_.unbacked) {
      view_.checks = false;
      again = true;
      return {};
    }
    auto start = std::chrono::steady_clock::now();
    event_.num_calls = std::max<size_t>(segment.num_calls, 1);
    GraphOutcome outcome = compile_graph(region_, *entry, segment, values_, at_, event_, view_);
    again = outcome == GraphOutcome::CaptureAgain;
    searches_kept_ = searches_kept_ && !again;
    if (again) return {};
    event_.compile_seconds = seconds_since(start);
    if (outcome == GraphOutcome::Raised) return {};
    if (entry->callable && writes) entry->again_uncompiled = false;  // PyTorch's operators write as they run
    if (entry->runnable || region_.options().backend) {
      ++region_.compilations;
      event_.compiled = true;
    }
    // The backend may have run code that changed what is guarded.
    check(*entry, "compiling changed what was guarded", entry->recipe);
    if (kept && entry->runnable) kept->keep(described);
    return entry;
  }

  // Whether other processes' captures will do. Who asks for events wants to see one.
  bool keeps() const {
    return searches_kept_ && !region_.events && !region_.options().backend && place_->kept < Place::kMostKept;
  }

  // What else a capture depends on.
  std::string circumstances() const {
    return std::to_string(region_.options().fullgraph) + std::to_string(static_cast<int>(asked_dynamic()));
  }

  // A capture of another process, with its entry, whose guards hold.
  bool find_kept(const KeptCaptures& kept, Segment& segment, GilPtr<Entry>& entry) {
    auto start = std::chrono::steady_clock::now();
    CapturingScope scope;
    bool found = kept.find([&](Segment s) {
      entry = entry_of(s);
      forget_contents();
      if (!entry->guards->check(view_.slots, values_)) {
        for (PyObject* t : s.captured.constants) Py_DECREF(t);
        return false;
      }
      segment = std::move(s);
      return true;
    });
    if (!found) return entry = {}, false;
    note_kept_sizes(segment);
    ++counters().kept_captures;
    ++place_->kept;
    event_.capture_seconds = seconds_since(start);
    return true;
  }

  // What a capture would have noted of the call's own tensors and numbers, for those that come.
  void note_kept_sizes(const Segment& segment) {
    const Sources& sources = *segment.sources;
    auto value = [&](auto& self, SourceId id) -> PyObject* {
      const Source& s = sources[id];
      const bool own = s.kind == SourceKind::Local || s.kind == SourceKind::TupleItem ||
                       s.kind == SourceKind::ListItem || s.kind == SourceKind::DictItem;
      PyObject* base = own && s.base.valid() ? self(self, s.base) : nullptr;
      if (!own || (s.base.valid() && !base)) return nullptr;
      return step(s, base, view_.slots, static_cast<size_t>(view_.bytecode->num_locals_plus));
    };
    const Dynamic policy = view_.fixed_sizes ? view_.dynamic : asked_dynamic();
    for (const Guard& g : segment.guards.items()) {
      const bool tensor = g.kind == GuardKind::Tensor;
      if (!tensor && !(g.kind == GuardKind::Equal && PyLong_CheckExact(g.object.get()))) continue;
      PyObject* v = value(value, g.source);
      if (!v) continue;
      sym::Range range;
      if (tensor)
        place_->seen.tensor(sources.print(g.source), v, marks_of(v), policy);
      else
        place_->seen.integer(sources.print(g.source), PyLong_AsLongLong(v), /*anchored=*/false, policy, &range);
    }
    PyErr_Clear();
  }

  Dynamic asked_dynamic() const {
    Dynamic given = region_.options().dynamic;
    return given == Dynamic::Auto && config_.dynamic ? *config_.dynamic : given;
  }

  Segment capture_segment() {
    auto start = std::chrono::steady_clock::now();
    CapturingScope scope;
    FrameView asked = view_;
    if (!view_.fixed_sizes) asked.dynamic = asked_dynamic();
    asked.seen = &place_->seen;
    Segment segment = capture(asked, region_.options().options);
    event_.capture_seconds = seconds_since(start);
    return segment;
  }

  // A graph break. False: it is an error, which is set.
  bool stopped(const BreakInfo& stop) {
    event_.stop = stop;
    tell(Topic::GraphBreaks, explain_break(stop));
    if (!region_.options().fullgraph || stop.reason == Reason::RaisedException) return true;
    refuse(stop);
    return false;
  }

  GilPtr<Entry> entry_of(Segment& segment) {
    auto entry = GilPtr<Entry>::make();
    std::vector<SourceId> wanted = segment.inputs;
    for (const Step& s : segment.recipe.steps())
      if (s.kind == StepKind::Load) wanted.push_back(s.source);
    for (auto [source, writes] : segment.recipe.written) {
      entry->written.emplace_back(wanted.size(), writes);
      wanted.push_back(source);
    }
    wanted.insert(wanted.end(), segment.locks.begin(), segment.locks.end());
    entry->num_locks = segment.locks.size();
    const std::string& given = region_.options().name;
    entry->name = "Torch-Compiled Region: " + (given.empty() ? "" : given + " ") + std::to_string(place_->number) +
                  "/" + std::to_string(place_->inserted());
    entry->num_inputs = segment.inputs.size();
    entry->num_loads = wanted.size() - segment.inputs.size() - segment.locks.size();
    entry->num_outputs = segment.num_outputs;
    entry->numbers = segment.numbers;
    entry->draws = segment.draws;
    entry->without_torch_functions = segment.without_torch_functions;
    entry->num_integers = segment.num_integers;
    entry->num_symbols = segment.captured.symbol_values.size();
    segment.sources->constant(view_.globals);
    entry->globals = view_.globals;
    entry->sources = segment.sources;
    entry->stop = segment.stop;
    entry->inference = segment.inference;
    // What is loaded has to be there, also where nothing was asked of it: of these the place may be empty while its
    // base is the same.
    for (SourceId s : wanted)
      if (may_be_empty((*segment.sources)[s].kind)) segment.guards.exists(s, {});
    entry->guards = GuardProgram::compile(segment.sources, segment.guards, wanted, segment.global_state,
                                          static_cast<size_t>(view_.bytecode->num_locals_plus), segment.sizes);
    if (logs(Topic::Dynamic)) {
      std::string text;
      for (const std::string& s : print(segment.sizes, *segment.sources)) text += "  " + s + "\n";
      if (!text.empty()) tell(Topic::Dynamic, describe(at_) + " serves sizes and numbers where\n" + text);
    }
    if (logs(Topic::Guards) || region_.events) {
      for (const Guard& g : segment.guards.items()) event_.guards.push_back(print(g, *segment.sources));
      for (std::string& g : print(segment.sizes, *segment.sources)) event_.guards.push_back(std::move(g));
      std::string text = describe(at_) + "\n";
      for (const std::string& g : event_.guards) text += "  " + g + "\n";
      tell(Topic::Guards, text);
    }
    return entry;
  }

  void check(Entry& entry, const char* otherwise, const Recipe& recipe) {
    forget_contents();  // other threads ran while this one captured and compiled
    if (entry.guards->check(view_.slots, values_)) return;
    if (++changed_ < kMostChanges) throw Changed{};
    dump_ = "recipe:\n" + recipe.print(*entry.sources);
    throw InternalError(std::string(otherwise) + ": " + entry.guards->failure(values_));
  }

  // An error of ours.
  void failed(std::string what) {
    if (PyErr_Occurred()) what += " (" + take_exception() + ")";
    event_.graph_status = "internal failure: " + what;
    event_.failed = true;
    std::string text = describe_failure(at_, what, dump_);
    if (strict() || region_.options().fullgraph) {
      PyErr_SetString(PyExc_RuntimeError, text.c_str());
      return;
    }
    place_->capture_failed();
    say_uncompiled(at_, text + "  BRAZE_STRICT=1 raises instead.");
  }

  Region& region_;
  const GilPtr<Place>& place_;
  FrameView view_;
  GuardValues& values_;
  UserLine at_;
  Event event_;
  std::string dump_;
  TorchConfig config_;
  int changed_ = 0;
  bool searches_kept_ = true;  // what other processes captured
};

}  // namespace

void note_sizes(Region& region, Place& place, const FrameView& view) {
  try {
    UntracedScope untraced;
    CapturingScope scope;
    FrameView asked = view;
    asked.dynamic = region.options().dynamic;
    asked.seen = &place.seen;
    capture(asked, region.options().options);
  } catch (const std::exception&) {
    PyErr_Clear();  // the capture of the next call will say it
  }
}

GilPtr<Entry> capture_entry(Region& region, const GilPtr<Place>& place, const FrameView& view, GuardValues& values) {
  UntracedScope untraced;
  return EntryMaker(region, place, view, values).run();
}

}  // namespace braze::capture
