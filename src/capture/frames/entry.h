// One compiled entry: a captured segment with its guards, its graph and its recipe.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "capture/eval/capture.h"
#include "capture/frames/gil_ptr.h"
#include "capture/frames/run_failures.h"
#include "capture/frames/speed_guard.h"
#include "launch/training.h"

namespace braze::capture {

struct Entry : GilCounted {
  std::string name;             // in profiles
  PyObject* globals = nullptr;  // of the function; kept alive by `sources`. One code may have many functions
  std::unique_ptr<GuardProgram> guards;
  std::shared_ptr<Sources> sources;
  Recipe recipe;
  std::optional<BreakInfo> stop;
  bool has_graph = false;
  bool numbers = false;             // some inputs are floats or drawn
  std::vector<Ref> draws;           // as in Segment
  int without_torch_functions = 0;  // as in Segment
  bool inference = false;           // the graph runs in inference mode
  bool again_uncompiled =
      false;  // where a run of the graph fails, the uncompiled code is to raise: its effects up to there count
  RunFailures run_failures;
  bool random = false;  // the graph draws from PyTorch's generators
  std::unique_ptr<launch::Runnable> runnable;
  std::unique_ptr<SpeedGuard> speed;  // of a runnable, where it is asked for
  Ref callable;                       // instead of runnable: a user backend's result, or the graph as a GraphModule
  std::vector<PyObject*> constants;   // owned; inputs of `callable` that are no sources
  std::vector<int> layout;            // of the callable's inputs: index of a guard value, or ~index of a constant
  size_t uses = 0;                    // by calls after the one that it was compiled for
  bool met_other_tensor = false;      // a call had another tensor where this one wants its own
  size_t num_inputs = 0, num_loads = 0, num_locks = 0, num_outputs = 0;
  std::vector<std::pair<size_t, int>> written;  // Recipe::written, by the place among the guard values
  size_t num_integers = 0, num_symbols = 0;     // of the guards' size values: the recipe's, then the graph's

  ~Entry();
  // For the garbage collector: every reference held here, but those to tensors that the graph keeps as constants.
  int traverse(visitproc visit, void* arg) const;
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

enum class Ran : uint8_t {
  Done,
  Raised,      // an exception is set
  Uncompiled,  // the graph failed before anything was changed: the same code is to run uncompiled, which raises what
               // eager raises
};
// Runs the entry's graph and recipe after its guards held with these values, which it clears: fills regs.
Ran execute(Entry& entry, GuardValues& values, PyObject** regs);

}  // namespace braze::capture
