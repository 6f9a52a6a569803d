// Compiled graphs as capture/ and bind/ see them: no torch header. Tensors cross as PyObject*.
//
// All `PyObject*` results are new references; a nullptr result means that a Python exception is set.
#pragma once
#include <Python.h>

#include <memory>
#include <string>

#include "base/options.h"
#include "base/timers.h"
#include "trace/trace.h"

namespace braze::launch {

using trace::Captured;

// What compiling a graph made.
struct Report {
  size_t nests = 0, kernels = 0, externs = 0;
  bool from_disk_cache = false;
  Timings timings;
  std::string plan;                                       // listing of the steps
  std::string passes, graph, lowered, scheduled, source;  // only if texts were asked for
};

// A compiled graph that runs on real tensors. Calls may overlap.
class Runnable {
 public:
  virtual ~Runnable() = default;
  // inputs: borrowed tensors, one per graph input (those of kind Constant may be left out, all together).
  // outputs: new references, one per graph output (None for none); one that is an input, or a view of one, is a new
  // tensor on its memory. The caller checked by guards that dtypes and sizes are those of the graph; inputs of kind
  // Argument with other strides than recorded are copied. symbols: values of the graph's size symbols, in order;
  // nullptr: they are read from the inputs. Returns false with a Python exception set.
  virtual bool run(PyObject* const* inputs, size_t n, PyObject** outputs, size_t m,
                   const int64_t* symbols = nullptr) = 0;
  virtual Report report() const = 0;
};
// Whether this PyTorch has oneDNN's operators on packed weights (Options::packs_weights).
bool packs_weights();
// Through driver::compile. Throws Unsupported or InternalError.
std::unique_ptr<Runnable> make_runnable(Captured captured, const Options& options, bool texts = false);

// Makes `tensor`, an output without history, a leaf that requires grad; or one whose history was used up by a backward,
// so that a second one raises what eager raises. In place.
void make_leaf(PyObject* tensor);
void mark_consumed(PyObject* tensor);

// While it lives, tensors made on this thread are those of torch.inference_mode().
class InferenceScope {
 public:
  InferenceScope();
  ~InferenceScope();
  InferenceScope(const InferenceScope&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace braze::launch
