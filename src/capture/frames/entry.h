// Compiled entries and the region that owns them: all that one braze.compile() call made.
#pragma once
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "capture/eval/capture.h"
#include "capture/cpython/frame.h"
#include "capture/guards/guard_cost.h"
#include "trace/training.h"

namespace braze::capture {

struct RegionOptions {
  Options options;
  bool fullgraph = false;
  Dynamic dynamic = Dynamic::Auto;
  Ref backend;  // nullptr: our own compiler; else called with (GraphModule, example inputs)
};

// One segment, ready to run: its guards, its graph, its recipe.
struct Entry {
  std::string name;                // in profiles
  PyObject* globals = nullptr;     // of the function; kept alive by `sources`. One code may have many functions
  std::unique_ptr<GuardProgram> guards;
  std::shared_ptr<Sources> sources;
  Recipe recipe;
  std::optional<BreakInfo> stop;
  bool has_graph = false;
  bool numbers = false;            // some inputs are floats or drawn
  std::vector<Ref> draws;          // as in Segment
  int without_torch_functions = 0; // as in Segment
  bool inference = false;          // the graph runs in inference mode
  std::unique_ptr<trace::Runnable> runnable;
  Ref callable;                    // instead of runnable: a user backend's result, or the graph as a GraphModule
  std::vector<PyObject*> constants;  // owned; inputs of `callable` that are no sources
  std::vector<int> layout;         // of the callable's inputs: index of a guard value, or ~index of a constant
  size_t num_inputs = 0, num_loads = 0, num_outputs = 0;
  size_t num_integers = 0, num_symbols = 0;  // of the guards' size values: the recipe's, then the graph's

  Entry() = default;
  Entry(const Entry&) = delete;
  ~Entry();
  // For the garbage collector: every reference held here, but those to tensors that the graph keeps as constants.
  int traverse(visitproc visit, void* arg) const;
};

// For explain: what happened, in order.
struct Event {
  size_t num_calls = 0;            // torch-level calls in the graph; 0: no graph
  std::optional<BreakInfo> stop;
  std::vector<std::string> guards;
  GuardCost guard_cost;
  std::string graph_status;        // how the graph runs: "compiled", "by the given backend", or why it runs eagerly
  trace::Report report;
  std::optional<trace::TrainingReport> training;  // of a graph with a backward
  double capture_seconds = 0, compile_seconds = 0;
};

// Registers of a recipe while it runs.
class Registers {
 public:
  explicit Registers(size_t n) : n_(n), p_(n <= kInline ? inline_ : new PyObject*[n]) {
    for (size_t i = 0; i < n; ++i) p_[i] = nullptr;
  }
  ~Registers() {
    for (size_t i = 0; i < n_; ++i) Py_XDECREF(p_[i]);
    if (p_ != inline_) delete[] p_;
  }
  Registers(const Registers&) = delete;
  void clear() {
    for (size_t i = 0; i < n_; ++i) Py_CLEAR(p_[i]);
  }
  PyObject** get() { return p_; }

 private:
  static constexpr size_t kInline = 48;
  size_t n_;
  PyObject** p_;
  PyObject* inline_[kInline];
};

class Region {
 public:
  explicit Region(RegionOptions options);
  ~Region();

  // The function called with these arguments (vectorcall convention).
  PyObject* call(PyFunctionObject* function, PyObject* const* args, size_t nargs, PyObject* kwnames);
  // A real frame of a function of this region. images: as it must be at the start (from a recipe), else from the beginning.
  PyObject* run_frame(PyThreadState* ts, cpython::Frame* frame, const FrameImage* images, size_t num_images, Registers* regs);

  std::vector<Event>* events = nullptr;  // explain's
  size_t compilations() const { return compilations_; }  // of graphs, since it was made
  bool keep_texts = false;               // the events' reports with the texts of all stages
  void clear();
  static void clear_all();
  int traverse(visitproc visit, void* arg) const;  // for the garbage collector of the one callable that owns this
  const RegionOptions& options() const { return options_; }

 private:
  struct Place {
    std::vector<std::shared_ptr<Entry>> entries;
    bool closed = false;  // no further captures here
    size_t number = 0;    // among all places of the process
    SeenSizes seen;
    int searching = 0;    // not 0: entries stay where they are
    void remove_ended();  // those that no call can match any more
    std::string ended;    // why the last of them did
  };
  // The entry whose guards hold, captured if there is none, and what its check fetched. nullptr: none can be had (an exception may be set).
  std::shared_ptr<Entry> find(const std::shared_ptr<Place>& place, const FrameView& view, GuardValues& values);
  std::shared_ptr<Entry> find_in(const std::shared_ptr<Place>& place, const FrameView& view, GuardValues& values);
  std::shared_ptr<Entry> capture_entry(const std::shared_ptr<Place>& place, const FrameView& view, GuardValues& values);
  // False: to be captured again, as `again` says now.
  bool compile_graph(Entry& entry, Segment& segment, const GuardValues& values, const UserLine& where, Event& event, FrameView& again);
  PyObject* call_frame(PyFunctionObject* function, PyObject* const* args, size_t nargsf, PyObject* kwnames,
                       const FrameImage* images, size_t num_images, Registers* regs);
  PyObject* call_image(PyThreadState* ts, const FrameImage* images, size_t num_images, Registers* regs);
  std::shared_ptr<Place> place(PyCodeObject* code, int start);
  void refuse(const BreakInfo& stop);  // fullgraph: sets the exception

  RegionOptions options_;
  size_t compilations_ = 0;
  std::unordered_map<PyCodeObject*, std::unordered_map<int, std::shared_ptr<Place>>> places_;
  PyCodeObject* last_code_ = nullptr;  // the place that was used last from call()
  std::shared_ptr<Place> last_place_;
};

// Runs the entry's graph and recipe on what the check of its guards fetched, which is given up then: fills regs. False: an exception is
// set.
bool execute(Entry& entry, GuardValues& values, PyObject** regs);

// Set once by bind/: the exception that fullgraph=True raises.
void set_unsupported_exception(PyObject* type);
// "reason: detail" with remedy, place and source line.
std::string explain_break(const BreakInfo&);

}  // namespace braze::capture
