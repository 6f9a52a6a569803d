// What capture/ and bind/ see of tracing: no torch header. Tensors cross as PyObject*.
//
// A Tracer is one capture: fake tensors, the recorder of ATen calls, and the torch-level list of calls. Calls run under
// the GIL. All `PyObject*` results are new references; a nullptr result means that a Python exception is set.
#pragma once
#include <Python.h>

#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/options.h"
#include "graph/graph.h"

namespace braze::trace {

struct Captured {
  graph::Graph graph;                        // ATen level, functional
  std::vector<PyObject*> constants;          // owned: tensors met while tracing that are no input (Input kind Constant, in order)
};

class Tracer {
 public:
  static std::unique_ptr<Tracer> create(const Options& options);
  virtual ~Tracer() = default;

  // The fake that stands for a real tensor; the same object for the same tensor. It becomes a graph input only when used.
  // Throws Unsupported for kinds that are not compiled. `name`: e.g. "L['x']", "self.fc.weight", for the FX placeholder.
  virtual PyObject* lift(PyObject* real, graph::InputKind kind, const std::string& name) = 0;
  virtual bool is_fake(PyObject* obj) const = 0;
  // The real tensor of a lifted fake (borrowed), or nullptr if it was computed.
  virtual PyObject* real_of(PyObject* fake) const = 0;

  // Recording on this thread between enter and leave (nestable pairs; leave also on failure).
  virtual void enter() = 0;
  virtual void leave() = 0;
  // Calls a torch function on fakes (recording on) and notes it in the torch-level graph. An exception that the function
  // raises is left set. `loc` is the user's line of all ATen calls made meanwhile.
  virtual PyObject* call(PyObject* fn, PyObject* const* args, size_t nargs, PyObject* kwargs, const graph::Location& loc) = 0;

  // Ends the capture: the graph whose outputs are these fakes in order. `inputs` receives the real tensors (borrowed), one
  // per graph input.
  virtual Captured finish(const std::vector<PyObject*>& outputs, std::vector<PyObject*>& inputs) = 0;
  // The torch-level graph as torch.fx.GraphModule, for user backends; its inputs are those of finish(), in order.
  virtual PyObject* graph_module() = 0;
};

// A compiled graph that runs on real tensors.
class Runnable {
 public:
  virtual ~Runnable() = default;
  // inputs: borrowed tensors, one per graph input. outputs: new references, one per graph output (None for none).
  // Returns false with a Python exception set.
  virtual bool run(PyObject* const* inputs, size_t n, PyObject** outputs, size_t m) = 0;
};
std::unique_ptr<Runnable> make_runnable(Captured captured, const Options& options);  // through driver::compile

// Tensor guards.
struct TensorSpec;  // sizes, strides, dtype, device, dispatch keys, requires_grad, python type
std::shared_ptr<const TensorSpec> snapshot(PyObject* tensor);
bool matches(const TensorSpec& spec, PyObject* tensor);
std::string describe_mismatch(const TensorSpec& spec, PyObject* tensor);

// One word that changes whenever global state that tracing depends on changes: grad mode, inference mode, autocast state
// and dtypes, default dtype and device, deterministic mode, torch function modes, number of functorch levels.
uint64_t global_state_key();

}  // namespace braze::trace
