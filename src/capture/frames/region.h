// All that one braze.compile() call made: its options and the entries of every place of its code.
#pragma once
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "capture/cpython/frame.h"
#include "capture/frames/place.h"
#include "capture/guards/guard_cost.h"

namespace braze::capture {

struct RegionOptions {
  Options options;
  bool fullgraph = false;
  Dynamic dynamic = Dynamic::Auto;
  Ref backend;                 // nullptr: our own compiler; else called with (GraphModule, example inputs)
  size_t recompile_limit = 0;  // of entries at one place, after which what is new runs uncompiled; 0: none
  std::string name;            // what profiles and callbacks call it
};

// For explain: what happened, in order.
struct Event {
  size_t num_calls = 0;  // torch-level calls in the graph; 0: no graph
  std::optional<BreakInfo> stop;
  std::vector<std::string> guards;
  GuardCost guard_cost;
  std::string graph_status;  // how the graph runs: "compiled", "by the given backend", or why it runs eagerly
  launch::Report report;
  std::optional<launch::TrainingReport> training;  // of a graph with a backward
  double capture_seconds = 0, compile_seconds = 0;
  bool compiled = false;  // a graph
  bool trained = false;   // with a backward
  bool failed = false;    // by an error of ours
};

// Calls on several threads may overlap, also with clear(): whatever a call uses, it holds. Whoever calls a member keeps
// the region alive.
class Region {
 public:
  explicit Region(RegionOptions options);
  ~Region();
  Region(const Region&) = delete;

  // The function called with these arguments (vectorcall convention).
  PyObject* call(PyFunctionObject* function, PyObject* const* args, size_t nargs, PyObject* kwnames);
  // A real frame of a function of this region. images: as it must be at the start (from a recipe), else from the
  // beginning.
  PyObject* run_frame(PyThreadState* ts, cpython::Frame* frame, const FrameImage* images, size_t num_images,
                      Registers* regs);
  // Runs the function up to the hook, which gives its frame to run_frame.
  PyObject* call_frame(PyFunctionObject* function, PyObject* const* args, size_t nargsf, PyObject* kwnames,
                       const FrameImage* images, size_t num_images, Registers* regs);
  // The entry whose guards hold for the frame at this place, captured if there is none, and what its check fetched.
  // None: an exception is set, or the frame is to run uncompiled (never with fullgraph=True).
  GilPtr<Entry> find(const GilPtr<Place>& place, const FrameView& view, GuardValues& values);
  GilPtr<Place> place(const FrameView& view);

  std::vector<Event>* events = nullptr;  // explain's
  bool keep_texts = false;               // the events' reports with the texts of all stages
  size_t compilations = 0;               // of graphs, since it was made
  // Of the graphs that it has now, with options={"guard_speed": True}.
  std::vector<SpeedReport> speeds() const;
  void clear();
  static void clear_all();
  int traverse(visitproc visit, void* arg) const;  // for the garbage collector of the one callable that owns this
  const RegionOptions& options() const { return options_; }

 private:
  // Makes the place where this code begins the last one. False: it is not captured; an exception is set with
  // fullgraph=True.
  bool begin(PyCodeObject* code);
  // Whether code for the frame may be made, as there is none: by the stance and the limit. False: it is to run
  // uncompiled, or an exception is set. `why`: what each entry said.
  bool may_compile(Place& place, const FrameView& view, const std::string& why);

  RegionOptions options_;
  // `absent`: which values of the stack are NULL, as a method and its instance may come as one value or as two.
  GilPtr<Place> place(PyCodeObject* code, int start, std::vector<bool> absent);

  std::unordered_map<PyCodeObject*, std::map<std::pair<int, std::vector<bool>>, GilPtr<Place>>> places_;
  PyCodeObject* last_code_ = nullptr;  // the place that was used last from call()
  GilPtr<Place> last_place_;
};

}  // namespace braze::capture
