#include "capture/frames/region.h"

#include <algorithm>
#include <unordered_set>

#include "base/log_topics.h"
#include "capture/eval/library_objects.h"
#include "capture/eval/markers.h"
#include "capture/frames/bind_args.h"
#include "capture/frames/capture_entry.h"
#include "capture/frames/compilations.h"
#include "capture/frames/report.h"
#include "capture/frames/stance.h"
#include "capture/guards/content.h"

namespace braze::capture {

namespace {

std::unordered_set<Region*>& all_regions() {
  static auto* set = new std::unordered_set<Region*>();
  return *set;
}

constexpr int kNotAFunctionBody = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR | CO_ITERABLE_COROUTINE;

// Code that is never captured from its first instruction on.
std::optional<Stop> why_uncompiled(PyCodeObject* code) {
  if (code->co_flags & kNotAFunctionBody)
    return Stop{Reason::UnsupportedFeature, "a generator or coroutine, whose body runs bit by bit"};
  if (of_import_system(code)) return Stop{Reason::UnknownFunction, "a function of Python's import system"};
  try {
    decode(code);
  } catch (const Unsupported& e) {
    return Stop{e.reason(), e.detail()};
  }
  return {};
}

}  // namespace

Region::Region(RegionOptions options) : options_(std::move(options)) { all_regions().insert(this); }
Region::~Region() { all_regions().erase(this); }

int Region::traverse(visitproc visit, void* arg) const {
  Py_VISIT(options_.backend.get());
  for (const auto& [code, places] : places_)
    for (const auto& [start, place] : places)
      if (int r = place->traverse(visit, arg)) return r;
  return 0;
}

std::vector<SpeedReport> Region::speeds() const {
  std::vector<SpeedReport> out;
  for (const auto& [code, places] : places_)
    for (const auto& [start, place] : places)
      for (const GilPtr<Entry>& e : place->entries())
        if (e->speed)
          for (SpeedReport& r : e->speed->reports()) out.push_back(std::move(r));
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.place < b.place; });
  return out;
}

void Region::clear() {
  auto old = std::move(places_);  // released last: it may run code, which may end the region
  places_.clear();
  last_code_ = nullptr;
  last_place_ = {};
}

void Region::clear_all() {
  std::vector<Region*> regions(all_regions().begin(), all_regions().end());
  for (Region* r : regions)
    if (all_regions().count(r)) r->clear();
}

GilPtr<Place> Region::place(PyCodeObject* code, int start, std::vector<bool> absent) {
  GilPtr<Place>& p = places_[code][{start, std::move(absent)}];
  if (!p) p = GilPtr<Place>::make();
  return p;
}

GilPtr<Place> Region::place(const FrameView& view) {
  PyObject* const* stack = view.slots + view.bytecode->num_locals_plus;
  std::vector<bool> absent(static_cast<size_t>(view.depth));
  for (size_t i = 0; i < absent.size(); ++i) absent[i] = !stack[i];
  return place(view.bytecode->code, view.start, std::move(absent));
}

bool Region::begin(PyCodeObject* code) {
  if (auto why = why_uncompiled(code)) {
    UserLine at{code, code->co_firstlineno};
    if (options_.fullgraph)
      refuse({why->reason, why->detail, at, {}});
    else
      say_uncompiled(at, why->detail);
    return false;
  }
  last_place_ = place(code, 0, {});
  last_code_ = code;
  return true;
}

PyObject* Region::call(PyFunctionObject* function, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  PyObject* fn = reinterpret_cast<PyObject*>(function);
  auto* code = reinterpret_cast<PyCodeObject*>(function->func_code);
  if (capturing() || disabled() || stance() == Stance::ForceEager)
    return PyObject_Vectorcall(fn, args, nargsf, kwnames);
  if (code != last_code_ && !begin(code))
    return PyErr_Occurred() ? nullptr : PyObject_Vectorcall(fn, args, nargsf, kwnames);

  constexpr int kInline = 64;
  PyObject* small[kInline];
  std::vector<PyObject*> large;
  PyObject** slots = small;
  if (code->co_nlocalsplus > kInline) {
    large.resize(static_cast<size_t>(code->co_nlocalsplus));
    slots = large.data();
  }
  std::fill(slots, slots + code->co_nlocalsplus, nullptr);
  std::vector<Ref> owned;
  if (!bind_arguments(function, args, static_cast<size_t>(PyVectorcall_NARGS(nargsf)), kwnames, slots, owned))
    return PyObject_Vectorcall(fn, args, nargsf, kwnames);

  GilPtr<Entry> entry;
  GuardValues values;
  // Another thread may have called other code of this region, or braze.reset(), while code of the program's ran here.
  if (code == last_code_)
    if (const GilPtr<Entry>* latest = last_place_->latest()) entry = *latest;
  auto holds = [&] {
    try {
      return entry->guards->check(slots, values);
    } catch (const InternalError&) {
      return false;  // the search will say it again
    }
  };
  if (!entry || entry->globals != function->func_globals || !holds()) {
    FrameView view{&decode(code), function->func_globals, function->func_builtins, fn, slots, 0, 0};
    entry = find(place(view), view, values);
    if (!entry) return PyErr_Occurred() ? nullptr : PyObject_Vectorcall(fn, args, nargsf, kwnames);
  } else if (code == last_code_) {
    last_place_->used(*entry);
  }
  if (entry->stop) {
    values.clear();
    return call_frame(function, args, nargsf, kwnames, nullptr, 0, nullptr);
  }
  Registers regs(static_cast<size_t>(entry->recipe.num_registers()));
  switch (execute(*entry, values, regs.get())) {
    case Ran::Done: return Py_NewRef(regs.get()[entry->recipe.result]);
    case Ran::Raised: return nullptr;
    case Ran::Uncompiled: break;
  }
  entry = {};  // nothing of it is to be alive while the code runs
  return PyObject_Vectorcall(fn, args, nargsf, kwnames);
}

bool Region::may_compile(Place& place, const FrameView& view, const std::string& why) {
  const TorchConfig config = torch_config();
  const Stance now = config.off ? Stance::ForceEager : stance();
  const UserLine at = first_line(view);
  if (now == Stance::FailOnRecompile || (config.fail && place.inserted())) {
    PyErr_SetString(PyExc_RuntimeError,
                    ("braze: " + describe(at) + " is not compiled for this call, and " +
                     (config.fail ? "error_on_recompile of torch._dynamo.config" : "the stance fail_on_recompile") +
                     " forbids to compile it" + (why.empty() ? "" : ":\n" + why))
                        .c_str());
    return false;
  }
  if (now == Stance::ForceEager || now == Stance::EagerOnRecompile) return false;
  if (now == Stance::EagerThenCompile && view.start == 0 && place.is_first_call()) {
    note_sizes(*this, place, view);
    return false;
  }
  size_t limit = options_.recompile_limit ? options_.recompile_limit : config.recompile_limit;
  if (!limit) {
    if (options_.fullgraph || !place.compiles_in_vain()) return true;
    ++counters().left_out;
    if (logs(Topic::Recompiles))
      tell(Topic::Recompiles,
           describe(at) + " runs uncompiled this time: what was compiled for it lately hardly served any other call" +
               (why.empty() ? "" : ":\n" + why));
    return false;
  }
  place.keep_at_least(limit);
  if (place.size() < limit) return true;
  std::string text = "it was compiled " + std::to_string(place.size()) + " times, which is the recompile_limit";
  if (options_.fullgraph)
    PyErr_SetString(PyExc_RuntimeError, ("braze: " + describe(at) + ": " + text).c_str());
  else
    say_uncompiled(at, text);
  return false;
}

GilPtr<Entry> Region::find(const GilPtr<Place>& place, const FrameView& view, GuardValues& values) {
  std::string why;
  GilPtr<Entry> found;
  const Stance now = stance();
  const bool asks_why = logs(Topic::Recompiles) || now == Stance::FailOnRecompile;
  try {
    found = place->find(view, values, asks_why ? &why : nullptr);
  } catch (const InternalError& e) {  // of guards that are verified
    values.clear();
    PyErr_SetString(PyExc_RuntimeError, e.what());
    return {};
  }
  if (found) return found;
  if (may_compile(*place, view, why)) {
    if (logs(Topic::Recompiles)) {
      why += place->take_ended();
      if (!why.empty()) tell(Topic::Recompiles, describe(first_line(view)) + " compiled again:\n" + why);
    }
    found = capture_entry(*this, place, view, values);
  }
  if (!found) {
    values.clear();
    forget_contents();
  }
  return found;
}

}  // namespace braze::capture
