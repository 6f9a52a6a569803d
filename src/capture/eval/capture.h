// The seam between a frame that is to be captured and the evaluator: what a capture starts from, what it leaves.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/timers.h"
#include "capture/code/bytecode.h"
#include "capture/guards/dynamic.h"
#include "capture/guards/guards.h"
#include "capture/recipe/recipe.h"
#include "launch/training.h"
#include "trace/trace.h"

namespace braze::capture {

// A frame, or the part of one that starts at `start`. All borrowed, alive during the capture.
struct FrameView {
  const Bytecode* bytecode;
  PyObject* globals;
  PyObject* builtins;      // dict
  PyObject* function;      // the function object, or nullptr when unknown
  PyObject* const* slots;  // localsplus (nullptr: unbound), then `depth` stack values (nullptr: NULL).
                           // At start == 0 the slots of free variables hold their cells already, local cells
                           // are not made yet (MakeCell and CopyFreeVars instructions come)
  int depth = 0;
  int start = 0;  // instruction index
  // How many segments of this run of the frame began there, this one among them; 0: not counted.
  size_t rounds = 0;
  Dynamic dynamic = Dynamic::Never;
  SeenSizes* seen = nullptr;  // of this place; with Dynamic::Never it may be missing
  // No size is to stay open, whatever `dynamic` says; one that depends on data ends the graph, unless it must not end.
  bool fixed_sizes = false;
  bool gradients = true;  // what needs gradients gets its backward; false: a backend that is not ours takes the graph
  bool unbacked = false;  // numbers that depend on data become symbols instead of a break
  bool checks = true;     // a branch on what only the run knows, one side of which only raises, is checked by the run
  bool torch_level = false;  // the graph is to be had as calls of torch's functions, for a backend that is not ours
};

struct BreakInfo {
  Reason reason;
  std::string detail;
  UserLine line;                // innermost user line
  std::vector<UserLine> stack;  // of the inlined calls, outermost first
};

struct Stop {
  Reason reason;
  std::string detail;
  bool unseen = false;  // of a raised exception: what the instruction looks at can't be asked for without its effects
};

// What the user is to be told with an exception: the program asks for something that can't be.
struct UserError {
  std::string message;
};

struct Segment {
  std::shared_ptr<Sources> sources;
  GuardSet guards;
  uint64_t global_state = 0;  // at the start of the capture
  Recipe recipe;
  std::optional<BreakInfo> stop;  // none: captured to the return. Then recipe.result, else recipe.frames
  // The graph; without inputs and outputs when no tensor work was captured.
  std::unique_ptr<trace::Tracer> tracer;
  std::unique_ptr<trace::TorchCalls> calls;  // instead of the tracer, of a capture that was on disk
  trace::Captured captured{graph::Graph(std::make_shared<sym::ExprArena>()), {}, false, {}, {}, {}, {}};
  SizeGuards sizes;  // values: the recipe's integers, then the graph's symbols
  size_t num_integers = 0;
  std::vector<SourceId> inputs;  // one per graph input that is no Constant, in order
  bool numbers =
      false;  // some of them are floats, which the graph takes as tensors (trace/number.h), or positions in `draws`
  std::vector<Ref> draws;       // calls that draw random numbers: made once a run, before the graph, in this order
  std::vector<Ref> like_drawn;  // per draw: a tensor of the dtype and sizes of what it gives
  size_t num_outputs = 0;
  size_t num_calls = 0;         // torch-level calls in the graph; 0: nothing to compile
  std::vector<SourceId> locks;  // of threading, which the run holds from its start to its end
  int without_torch_functions =
      0;                   // a graph for another backend runs with those of classes (1), of modes as well (2) off
  bool inference = false;  // the outputs were computed under torch.inference_mode()
  std::optional<trace::Gradients> gradients;  // the graph holds the backward as well
  std::optional<Stop> no_gradients;           // why the backward cannot be had, where one is needed
  double trace_seconds = 0;
  // What inspect.signature() made while capturing, and of what.
  std::vector<std::pair<Ref, Ref>> signatures;
  const char* here_only = nullptr;  // what of it holds in this process alone, if anything
};

// Evaluates the code symbolically from `frame` as far as it can. Never leaves a Python exception set.
// A capture that cannot even begin gives a Segment with stop at frame.start and frames equal to the given frame.
// Throws InternalError when we broke an invariant, UserError when the user's marks can't be kept.
Segment capture(const FrameView& frame, const Options& options);

}  // namespace braze::capture
