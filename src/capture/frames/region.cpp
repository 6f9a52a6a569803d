#include <atomic>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <span>
#include <unordered_set>

#include "capture/guards/array_memory.h"
#include "capture/frames/bind_args.h"
#include "capture/frames/entry.h"
#include "capture/guards/guard_eval.h"
#include "capture/eval/library_objects.h"
#include "capture/frames/log.h"
#include "capture/eval/markers.h"

namespace braze::capture {

namespace {

// So many captures at one place say that its guards don't describe what varies: it is left to CPython, and said so.
constexpr size_t kMostEntries = 64;

PyObject* g_unsupported = nullptr;

std::unordered_set<Region*>& all_regions() {
  static auto* set = new std::unordered_set<Region*>();
  return *set;
}

double seconds_since(std::chrono::steady_clock::time_point t) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - t).count();
}

constexpr int kNotAFunctionBody = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR | CO_ITERABLE_COROUTINE;

// An internal failure: said once, and then the region runs eagerly.
void report_failure(const std::string& what, const UserLine& at, const std::string& dump) {
  static auto* seen = new std::unordered_set<std::string>();
  if (!seen->insert(what).second) return;
  std::fprintf(stderr, "braze: internal failure at %s: %s\n  The code runs uncompiled. BRAZE_STRICT=1 raises instead.\n%s",
               describe(at).c_str(), what.c_str(), dump.c_str());
}

// The Python exception that is set, as text; clears it.
std::string take_exception() {
  PyObject *type, *value, *tb;
  PyErr_Fetch(&type, &value, &tb);
  PyErr_NormalizeException(&type, &value, &tb);
  Ref text = Ref::steal(value ? PyObject_Str(value) : nullptr);
  const char* c = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  std::string s = type ? reinterpret_cast<PyTypeObject*>(type)->tp_name : "?";
  if (c) s += std::string(": ") + c;
  PyErr_Clear();
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(tb);
  return s;
}

}  // namespace

void set_unsupported_exception(PyObject* type) { g_unsupported = type; }

std::string explain_break(const BreakInfo& b) {
  std::string out = describe(b.line);
  std::string text = source_text(b.line);
  if (!text.empty()) out += "\n    " + text;
  out += "\n  " + std::string(summary(b.reason));
  if (!b.detail.empty()) out += ": " + b.detail;
  out += "\n  hint: " + std::string(remedy(b.reason));
  for (size_t i = b.stack.size(); i-- > 0;) out += "\n  called from " + describe(b.stack[i]);
  return out;
}

Entry::~Entry() {
  for (PyObject* c : constants) Py_XDECREF(c);
}

int Entry::traverse(visitproc visit, void* arg) const {
  for (PyObject* c : constants) Py_VISIT(c);
  Py_VISIT(callable.get());
  for (size_t i = 0; sources && i < sources->size(); ++i) Py_VISIT((*sources)[SourceId(i)].key.owned());
  for (const Step& s : recipe.steps()) Py_VISIT(s.object.owned());
  return guards ? guards->traverse(visit, arg) : 0;
}

int Region::traverse(visitproc visit, void* arg) const {
  Py_VISIT(options_.backend.get());
  for (const auto& [code, places] : places_)
    for (const auto& [start, place] : places)
      for (const std::shared_ptr<Entry>& e : place->entries)
        if (int r = e->traverse(visit, arg)) return r;
  return 0;
}

Region::Region(RegionOptions options) : options_(std::move(options)) { all_regions().insert(this); }
Region::~Region() { all_regions().erase(this); }

void Region::clear() {
  auto old = std::move(places_);
  places_.clear();
  last_code_ = nullptr;
  last_place_.reset();
}
void Region::clear_all() {
  std::vector<Region*> regions(all_regions().begin(), all_regions().end());
  for (Region* r : regions)
    if (all_regions().count(r)) r->clear();
}

std::shared_ptr<Region::Place> Region::place(PyCodeObject* code, int start) {
  std::shared_ptr<Place>& p = places_[code][start];
  if (!p) {
    static std::atomic<size_t> count{0};
    p = std::make_shared<Place>();
    p->number = count++;
  }
  return p;
}

void Region::refuse(const BreakInfo& stop) {
  std::string text = "this can't be compiled as one graph (fullgraph=True)\n" + explain_break(stop);
  PyErr_SetString(g_unsupported ? g_unsupported : PyExc_RuntimeError, text.c_str());
}

PyObject* Region::call(PyFunctionObject* function, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  PyObject* fn = reinterpret_cast<PyObject*>(function);
  auto* code = reinterpret_cast<PyCodeObject*>(function->func_code);
  size_t nargs = static_cast<size_t>(PyVectorcall_NARGS(nargsf));
  if (code->co_flags & kNotAFunctionBody || capturing() || disabled()) return PyObject_Vectorcall(fn, args, nargsf, kwnames);

  constexpr int kInline = 64;
  PyObject* small[kInline];
  std::vector<PyObject*> large;
  PyObject** slots = small;
  if (code->co_nlocalsplus > kInline) {
    large.resize(code->co_nlocalsplus);
    slots = large.data();
  }
  std::fill(slots, slots + code->co_nlocalsplus, nullptr);
  std::vector<Ref> owned;
  if (!bind_arguments(function, args, nargs, kwnames, slots, owned)) return PyObject_Vectorcall(fn, args, nargsf, kwnames);

  if (code != last_code_) {
    if (of_import_system(code)) return PyObject_Vectorcall(fn, args, nargsf, kwnames);
    last_place_ = place(code, 0);
    last_code_ = code;
  }
  std::shared_ptr<Entry> entry;
  GuardValues values;
  if (!last_place_->entries.empty()) entry = last_place_->entries[0];
  auto holds = [&] {
    try {
      return entry->guards->check(slots, values);
    } catch (const InternalError&) {
      return false;  // the search will say it again
    }
  };
  if (!entry || entry->globals != function->func_globals || !holds()) {
    std::shared_ptr<Place> here = last_place_;  // braze.reset() may come meanwhile
    FrameView view{&decode(code), function->func_globals, function->func_builtins, fn, slots, 0, 0};
    entry = find(here, view, values);
    if (!entry && PyErr_Occurred()) return nullptr;
    if (!entry) return PyObject_Vectorcall(fn, args, nargsf, kwnames);
  }
  if (entry->stop) {
    values.clear();
    return call_frame(function, args, nargsf, kwnames, nullptr, 0, nullptr);
  }
  Registers regs(static_cast<size_t>(entry->recipe.num_registers()));
  if (!execute(*entry, values, regs.get())) return nullptr;
  return Py_NewRef(regs.get()[entry->recipe.result]);
}

void Region::Place::remove_ended() {
  if (searching) return;
  auto ended = std::stable_partition(entries.begin(), entries.end(), [](const auto& e) { return !e->guards->is_over(); });
  std::vector<std::shared_ptr<Entry>> gone(ended, entries.end());  // released last: it may run code
  entries.erase(ended, entries.end());
}

std::shared_ptr<Entry> Region::find(const std::shared_ptr<Place>& place, const FrameView& view, GuardValues& values) {
  struct Searching {
    Place& place;
    explicit Searching(Place& p) : place(p) { ++place.searching; }
    ~Searching() {
      if (--place.searching == 0) place.remove_ended();
    }
  } searching(*place);
  std::shared_ptr<Entry> found;
  try {
    found = find_in(place, view, values);
  } catch (const InternalError& e) {  // of guards, under BRAZE_STRICT=1
    PyErr_SetString(PyExc_RuntimeError, e.what());
  }
  if (!found) {
    values.clear();
    forget_array_tensors();
  }
  return found;
}

std::shared_ptr<Entry> Region::find_in(const std::shared_ptr<Place>& place, const FrameView& view, GuardValues& values) {
  Place& here = *place;
  std::string failures;
  std::shared_ptr<Entry> failed;  // the last one that `values` tells of
  for (size_t i = 0; i < here.entries.size(); ++i) {
    std::shared_ptr<Entry> e = here.entries[i];  // a check may run code that adds others
    if (e->globals != view.globals) {
      failures += "  the globals are another dict\n";
    } else if (!e->guards->check(view.slots, values)) {
      failed = e;
      if (logs(Topic::Recompiles)) failures += "  " + e->guards->failure(values) + "\n";
    } else {
      if (auto at = std::find(here.entries.begin(), here.entries.end(), e); at != here.entries.end()) std::rotate(here.entries.begin(), at, at + 1);
      return e;
    }
  }
  if (here.closed) return nullptr;
  auto is_full = [&] {
    auto living = std::count_if(here.entries.begin(), here.entries.end(), [](const auto& e) { return !e->guards->is_over(); });
    return static_cast<size_t>(living) >= kMostEntries;
  };
  if (is_full()) PyGC_Collect();  // modules that refer back to themselves wait for it
  if (is_full()) {
    here.closed = true;
    UserLine at{view.bytecode->code, view.bytecode->instructions[view.start].line};
    std::fprintf(stderr, "braze: %s was compiled %zu times and runs uncompiled from now on for other inputs; what varied last: %s\n",
                 describe(at).c_str(), here.entries.size(), failed ? failed->guards->failure(values).c_str() : "the globals");
    return nullptr;
  }
  if (logs(Topic::Recompiles) && (!here.entries.empty() || !here.ended.empty())) {
    UserLine at{view.bytecode->code, view.bytecode->instructions[view.start].line};
    std::string text = describe(at) + " compiled again:\n";
    text += failures;
    if (!here.ended.empty()) text += "  " + std::exchange(here.ended, {}) + "\n";
    log(Topic::Recompiles, text);
  }
  return capture_entry(place, view, values);
}

std::shared_ptr<Entry> Region::capture_entry(const std::shared_ptr<Place>& place, const FrameView& given, GuardValues& values) {
  Place& here = *place;
  FrameView view = given;
  view.torch_level |= static_cast<bool>(options_.backend);
  view.gradients = !options_.backend;
  view.unbacked = options_.fullgraph;
  auto entry = std::make_shared<Entry>();
  Event event;
  UserLine at{view.bytecode->code, view.bytecode->instructions[view.start].line};
  std::string dump;
  if (trace::dispatch_mode_active()) {
    // It is to see every operator of this call, and may not be there in the next.
    event.stop = BreakInfo{Reason::UnsupportedFeature, "a dispatch mode (torch.utils._python_dispatch.TorchDispatchMode) is on during the call", at, {}};
    event.graph_status = "eagerly: a dispatch mode is on";
    log(Topic::GraphBreaks, explain_break(*event.stop));
    if (events) events->push_back(std::move(event));
    return nullptr;
  }
  try {
    auto t0 = std::chrono::steady_clock::now();
    Segment seg = [&] {
      CapturingScope scope;
      FrameView asked = view;
      if (!view.fixed_sizes) asked.dynamic = options_.dynamic;
      asked.seen = &here.seen;
      return capture(asked, options_.options);
    }();
    event.capture_seconds = seconds_since(t0);
    if (seg.stop) {
      event.stop = seg.stop;
      log(Topic::GraphBreaks, explain_break(*seg.stop));
      if (options_.fullgraph && seg.stop->reason != Reason::RaisedException) {
        refuse(*seg.stop);
        return nullptr;
      }
    }
    std::vector<SourceId> wanted = seg.inputs;
    for (const Step& s : seg.recipe.steps())
      if (s.kind == StepKind::Load) wanted.push_back(s.source);
    entry->name = "Torch-Compiled Region: " + std::to_string(here.number) + "/" + std::to_string(here.entries.size());
    entry->num_inputs = seg.inputs.size();
    entry->num_loads = wanted.size() - seg.inputs.size();
    entry->num_outputs = seg.num_outputs;
    entry->numbers = seg.numbers;
    entry->draws = seg.draws;
    entry->without_torch_functions = seg.without_torch_functions;
    entry->num_integers = seg.num_integers;
    entry->num_symbols = seg.captured.symbol_values.size();
    seg.sources->constant(view.globals);
    entry->globals = view.globals;
    entry->sources = seg.sources;
    entry->stop = seg.stop;
    entry->inference = seg.inference;
    entry->guards = GuardProgram::compile(seg.sources, seg.guards, wanted, seg.global_state,
                                          static_cast<size_t>(view.bytecode->num_locals_plus), seg.sizes);
    if (logs(Topic::Guards) || events) {
      for (const Guard& g : seg.guards.items()) event.guards.push_back(print(g, *seg.sources));
      for (std::string& g : print(seg.sizes, *seg.sources)) event.guards.push_back(std::move(g));
      std::string text = describe(at) + "\n";
      for (const std::string& g : event.guards) text += "  " + g + "\n";
      log(Topic::Guards, text);
    }
    if (!entry->guards->check(view.slots, values)) {
      dump = "recipe:\n" + seg.recipe.print(*seg.sources);
      throw InternalError("a guard does not hold right after capture: " + entry->guards->failure(values));
    }
    if (events) event.guard_cost = measure(*entry->guards, event.guards.size(), view.slots);
    entry->recipe = std::move(seg.recipe);
    entry->sources->loosen(entry->guards->mortals());
    entry->recipe.loosen(entry->guards->mortals());
    entry->guards->when_over([of = std::weak_ptr<Place>(place), guards = entry->guards.get()] {
      std::shared_ptr<Place> p = of.lock();
      if (!p) return;
      p->ended = guards->ended();
      p->remove_ended();
    });
    if (seg.num_calls || seg.num_outputs) {
      auto t1 = std::chrono::steady_clock::now();
      event.num_calls = std::max<size_t>(seg.num_calls, 1);
      if (!compile_graph(*entry, seg, values, at, event, view)) return capture_entry(place, view, values);
      event.compile_seconds = seconds_since(t1);
      ++compilations_;
      if (PyErr_Occurred()) {
        if (events) events->push_back(std::move(event));
        return nullptr;
      }
      // The backend may have run code that changed what is guarded.
      if (!entry->guards->check(view.slots, values)) throw InternalError("compiling changed what was guarded: " + entry->guards->failure(values));
    }
  } catch (const UserError& e) {
    PyErr_SetString(PyExc_ValueError, e.message.c_str());
    return nullptr;
  } catch (const std::exception& e) {
    std::string what = e.what();
    if (PyErr_Occurred()) what += " (" + take_exception() + ")";
    if (strict()) {
      PyErr_SetString(PyExc_RuntimeError, ("braze: internal failure at " + describe(at) + ": " + what + "\n" + dump).c_str());
      return nullptr;
    }
    report_failure(what, at, dump);
    here.closed = true;
    event.graph_status = "internal failure: " + what;
    if (events) events->push_back(std::move(event));
    return nullptr;
  }
  if (events) events->push_back(std::move(event));
  here.entries.insert(here.entries.begin(), entry);
  return entry;
}

// Leaves a Python exception only if the user's backend raised, or in strict mode.
bool Region::compile_graph(Entry& entry, Segment& seg, const GuardValues& values, const UserLine& where, Event& event, FrameView& again) {
  entry.has_graph = true;
  std::string why;
  graph::Graph& graph = seg.captured.graph;
  // What a call of the GraphModule takes: constants are inputs like others.
  std::vector<PyObject*> constants = seg.captured.constants;
  for (PyObject* c : constants) Py_XINCREF(c);
  entry.constants = constants;
  int next_input = 0, next_constant = 0;
  size_t of_forward = graph.inputs.size();  // what the backward reads comes after it
  if (seg.gradients && !seg.gradients->tangents.empty()) of_forward = seg.gradients->tangents[0];
  for (const graph::Input& in : std::span(graph.inputs).first(of_forward))
    entry.layout.push_back(in.kind == graph::InputKind::Constant ? ~next_constant++ : next_input++);

  std::string dump;
  std::optional<graph::Graph> kept;  // for the report of a failure
  if (!options_.backend) {
    try {
      bool texts = logs_texts() || keep_texts, training = seg.captured.needs_grad;
      if (training && seg.no_gradients) throw Unsupported(seg.no_gradients->reason, seg.no_gradients->detail);
      if (texts) dump = graph::print(graph);
      kept.emplace(graph);
      if (training) {
        auto runnable = trace::make_training_runnable(std::move(seg.captured), std::move(*seg.gradients), options_.options, texts);
        if (events) {
          runnable->prepare_backward();
          event.training = runnable->training_report();
        }
        runnable->keep_uncompiled(std::move(seg.tracer));
        entry.runnable = std::move(runnable);
      } else {
        entry.runnable = trace::make_runnable(std::move(seg.captured), options_.options, texts);
      }
      event.graph_status = "compiled";
      if (texts || events) event.report = entry.runnable->report();
      if (texts) {
        log(Topic::Graph, "captured\n" + dump + "optimised\n" + event.report.graph);
        log(Topic::Loops, event.report.scheduled);
        log(Topic::Kernels, event.report.plan + event.report.source);
      }
      return true;
    } catch (const Unsupported& e) {
      // What cannot be had for all sizes may be had for each.
      if ((e.reason() == Reason::OpenSizes || entry.num_symbols) && !again.fixed_sizes) {
        again.fixed_sizes = true;
        return false;
      }
      why = std::string(summary(e.reason())) + ": " + e.detail();
    } catch (const std::exception& e) {
      std::string text = kept ? graph::print(*kept) : std::string();
      if (strict()) throw InternalError(std::string(e.what()) + "\n" + text);
      why = std::string("internal failure: ") + e.what();
      report_failure(e.what(), where, text);
    }
  }
  if (!seg.tracer->has_torch_level()) {
    again.torch_level = true;
    return false;
  }
  Ref gm = Ref::steal(seg.tracer->graph_module());
  if (!gm) throw InternalError("no GraphModule: " + take_exception());
  if (options_.backend) {
    Ref inputs = Ref::steal(PyList_New(0));
    for (size_t i = 0; i < entry.num_symbols; ++i)
      PyList_Append(inputs.get(), Ref::steal(PyLong_FromLongLong(values.sizes()[entry.num_integers + i])).get());
    for (int at : entry.layout) PyList_Append(inputs.get(), at >= 0 ? values.values()[at] : entry.constants[~at]);
    PyObject* args[] = {nullptr, gm.get(), inputs.get()};
    entry.callable = Ref::steal(PyObject_Vectorcall(options_.backend.get(), args + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
    event.graph_status = "by the given backend";
    if (entry.callable && !PyCallable_Check(entry.callable.get())) {
      entry.callable = Ref();
      PyErr_SetString(PyExc_TypeError, "braze: the backend did not return a callable");
    }
    return true;
  }
  event.graph_status = "eagerly: " + why;
  log(Topic::GraphBreaks, "a graph runs eagerly: " + why);
  entry.callable = Ref::steal(PyObject_GetAttrString(gm.get(), "forward"));
  return true;
}

}  // namespace braze::capture
