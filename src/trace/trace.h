// What capture/ sees of tracing: no torch header. Tensors cross as PyObject*.
//
// A Tracer is one capture: fake tensors, the recorder of ATen calls, and the torch-level list of calls. Calls run under
// the GIL. All `PyObject*` results are new references; a nullptr result means that a Python exception is set.
#pragma once
#include <Python.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/options.h"
#include "graph/graph.h"
#include "trace/lazy_bits.h"
#include "trace/torch_calls.h"

namespace braze::trace {

// A condition over the size symbols that tracing relied on; `where`: what Tracer::set_where's function said then.
struct SizeGuard {
  sym::Expr condition;
  uint32_t where = 0;
};

// A symbol whose value a call reads.
struct SizeSymbol {
  sym::Expr symbol;
  sym::Range range;       // what the graph admits
  sym::Range declared;    // what it was lifted with
  int32_t fixed_by = -1;  // the size guard that fixed it to one value
};

// Where the value of a symbol is read; all places of one symbol must agree.
struct SizePlace {
  uint32_t symbol;             // into Captured::size_symbols
  PyObject* tensor = nullptr;  // borrowed; nullptr: the integer number `dim` that was lifted
  int32_t dim = 0;             // size of dimension d (d >= 0), or stride ~d, or kStorageOffset
};
constexpr int32_t kStorageOffset = INT32_MIN;

// An output that the program sees as a view of an input or of another output, and which is made as one when it is
// handed out: writing to one changes the history of the other.
struct OutputView {
  enum class Made : uint8_t {
    Plainly,
    AsOneOfSeveral,  // by a call that gives several views: none of them may be written to
    WithoutGrad,     // where gradients were off
    ForInference,    // in inference mode
    Apart,           // no view: on the memory of an output that is the same value, without its history
    WithVersionOf,   // as it is, but counting writes with `base`, or by itself where that is `output`: of `.data`
  };
  uint32_t output, base;  // base: an input, or an output that is none of these, or Apart; bases that only views need
                          // come after the other outputs
  bool of_input;
  Made made;
};

struct Captured {
  graph::Graph graph;  // ATen level, functional
  std::vector<PyObject*>
      constants;            // owned: tensors met while tracing that are no input (Input kind Constant, in order)
  bool needs_grad = false;  // an output requires grad: the graph alone would lose its history
  std::vector<uint32_t>
      write_counts;  // per writeback: how often the program writes, by autograd's count (not .data, say)
  std::vector<SizeSymbol> size_symbols;
  std::vector<SizePlace> size_places;
  std::vector<SizeGuard> size_guards;    // over size_symbols
  std::vector<sym::Expr> symbol_values;  // per symbol of the graph: its value, over size_symbols
  std::vector<OutputView> views;
  std::vector<LazyBits> lazy;  // per output of finish(): what is to be seen in it; the graph gives its memory
};

// A dimension of an input whose size (dim >= 0), or stride (~dim), is to be a symbol, with the range that the graph is
// to admit. `duck`: dimensions of the same size share a symbol, if they had the same `before` as well.
struct SymbolicDim {
  int dim;
  sym::Range range;
  bool duck = true;
  int64_t before = -1;
  bool unbacked = false;  // nothing is decided by its present size
};

// Once, when the extension is imported. Throws std::runtime_error with a message for the user when this version of
// PyTorch cannot be traced.
void initialize();

// True if `exc` (an instance) is the signal with which tracing gives up inside of a torch function that Tracer::call
// called: a graph break with this reason.
bool is_graph_break_exception(PyObject* exc, Reason* reason, std::string* detail);

class Tracer {
 public:
  static std::unique_ptr<Tracer> create(const Options& options);
  virtual ~Tracer() = default;

  // The fake that stands for a real tensor; the same object for the same tensor. It becomes a graph input only when
  // used. Throws Unsupported for kinds that are not compiled. `name`: e.g. "L['x']", "self.fc.weight", for the FX
  // placeholder. Of a storage offset the fake says 0; see storage_offset().
  virtual PyObject* lift(PyObject* real, graph::InputKind kind, const std::string& name,
                         const std::vector<SymbolicDim>& symbolic = {}) = 0;
  // An integer that is to stay open: a torch.SymInt. Its number is the count of those lifted before.
  virtual PyObject* lift_int(int64_t value, sym::Range range) = 0;
  // Called for the `where` of a guard when one is added.
  virtual void set_where(std::function<uint32_t()> where) = 0;
  // From now on numbers that are read from tensors are unbacked symbols, as sizes that depend on data are, where calls
  // would end in a graph break.
  virtual void allow_numbers(bool on) = 0;
  // From now on results whose sizes depend on data end in a graph break.
  virtual void refuse_open_results() = 0;
  virtual bool has_unbacked() const = 0;
  // Whether only the run knows a torch.SymInt or SymBool.
  virtual bool depends_on_data(PyObject* sym) = 0;
  // A SymBool as the SymInt 0 or 1; a SymInt as it is. New reference.
  virtual PyObject* as_integer(PyObject* sym) = 0;
  // Has the run check a SymBool that depends on data, with this class of exceptions and message; true from now on.
  virtual void assume(PyObject* sym, const std::string& exception, const std::string& message) = 0;
  // What a torch.SymInt or SymBool of this capture is, over the symbols of Captured::size_symbols. False: something
  // else.
  virtual bool size_expression(PyObject* sym, sym::Expr* out) = 0;
  virtual bool is_fake(PyObject* obj) const = 0;
  // The value of a fake of one element that the program's own constants decide, as a Python number; nullptr, without an
  // exception: it depends on the run. New reference.
  virtual PyObject* known_number(PyObject* fake) = 0;
  // Where a fake starts in its storage, guarded where that is an input's; nullptr, without an exception: not known. New
  // reference.
  virtual PyObject* storage_offset(PyObject* fake) = 0;
  // It stands for an input that does not begin where its storage does, and was written to: where its elements are
  // in the storage is not known here.
  virtual bool forgets_offset(PyObject* fake) = 0;
  // The real tensor of a lifted fake (borrowed), or nullptr if it was computed.
  virtual PyObject* real_of(PyObject* fake) const = 0;

  // Recording on this thread between enter and leave (nestable pairs; leave also on failure).
  virtual void enter() = 0;
  virtual void leave() = 0;
  // Calls a torch function on fakes (recording on) and notes it in the torch-level graph. An exception that the
  // function raises is left set: a graph break signal, or PyTorch's own (eager's type and mostly its text; but it may
  // also be a refusal of the tracing machinery, so that eager must have the last word). Throws InternalError. `loc` is
  // the user's line of all ATen calls made meanwhile.
  virtual PyObject* call(PyObject* fn, PyObject* const* args, size_t nargs, PyObject* kwargs,
                         const graph::Location& loc) = 0;
  // Whether a Meta kernel in Python raised an exception in the last call: eager's kernel words it otherwise, or takes
  // what that one refuses.
  virtual bool python_kernel_raised() const = 0;

  // Calls a function of PyTorch that may call back into the capture, which then calls call() in turn. The torch-level
  // graph shows it as a call of `noted` on the same arguments; without one there is no torch-level graph any more.
  virtual PyObject* call_host(PyObject* fn, PyObject* const* args, size_t nargs, PyObject* kwargs,
                              const graph::Location& loc, PyObject* noted) = 0;
  // Calls a function of torch that a __torch_function__ of the user's takes over, which calls back into the capture:
  // the torch-level graph shows what that calls in turn.
  virtual PyObject* call_overridden(PyObject* fn, PyObject* const* args, size_t nargs, PyObject* kwargs,
                                    const graph::Location& loc) = 0;
  // False: the captured program is only held at the level of ATen, and graph_module() cannot be had.
  virtual bool has_torch_level() const = 0;
  // Whether the fake carries a tangent of forward-mode differentiation, which a graph's outputs lose.
  virtual bool has_tangent(PyObject* fake) const = 0;
  // This fake requires grad, but as an output it brings no history.
  virtual void forget_history(PyObject* fake) = 0;

  // ---- both branches of a choice that only the run makes ----
  // Before one: how much was recorded, what autograd numbers its next node, and how often these fakes and all lifted
  // ones were written.
  struct BranchStart {
    size_t nodes = 0, writes = 0;
    uint64_t order = 0;
  };
  // There is no torch-level graph any more.
  virtual BranchStart begin_branch(const std::vector<PyObject*>& fakes) = 0;
  // After it: the gradients that flow from its results to what was there before are zero in runs where the predicate
  // (of one element) is not `when`, whatever the branch computed then. Returns why it may not run in vain; empty: it
  // may.
  virtual std::string end_branch(const BranchStart& start, const std::vector<PyObject*>& fakes,
                                 const std::vector<PyObject*>& results, PyObject* predicate, bool when) = 0;

  // ---- checkpoints ----
  // What is recorded until the end is computed again for the backward (graph::Checkpoint); `held`: fakes that the
  // program's own checkpoint keeps for that. `selective`: the calls of operators in it are noted, and keep() says of
  // each what is done with its results. False, and nothing is to be ended: gradients are off, or it lies in another,
  // which decides.
  virtual bool begin_checkpoint(const std::vector<PyObject*>& held, bool selective) = 0;
  virtual void end_checkpoint() = 0;
  // Of the last one: a list of (operator, args, kwargs, results).
  virtual PyObject* checkpointed_calls() = 0;
  virtual void keep(size_t call, graph::Keep keep) = 0;

  // ---- functions that attention applies to its scores ----
  // The part of what was recorded that computes `outputs` from `inputs` (fakes without dimensions, in the order of
  // graph::ScoreInput and graph::ScoreOutput; Py_None: none): a tuple of the text of a graph::ScoreGraph and a list of
  // fakes, its operands. There is no torch-level graph any more. Throws Unsupported where they are more than functions
  // of one score, or where gradients would flow to what they captured.
  virtual PyObject* score_graph(const std::vector<PyObject*>& inputs, const std::vector<PyObject*>& outputs) = 0;

  // Ends the capture: the graph whose outputs are these fakes in order (Py_None: none; a real tensor: a constant).
  // `inputs` receives the real tensors (borrowed), one per graph input, constants too. An output that aliases an input
  // is a chain of views of that input, so that it shows what writebacks bring; an output may be an input, or the same
  // value twice. Throws Unsupported for mutations that the graph cannot express.
  virtual Captured finish(const std::vector<PyObject*>& outputs, std::vector<PyObject*>& inputs) = 0;
  // Whether a constant of the graph is one that the program wrote as numbers, and that nobody else holds.
  virtual bool is_literal(PyObject* constant) const = 0;
  // The torch-level graph as torch.fx.GraphModule, for user backends; its inputs are those of finish(), in order.
  virtual PyObject* graph_module() = 0;
  // What that is made from. Of a capture with has_torch_level(), after finish().
  virtual TorchLevel torch_level() = 0;
};

// Sets the exception with which tracing gives up (is_graph_break_exception).
void signal_graph_break(Reason reason, const std::string& detail);

}  // namespace braze::trace
