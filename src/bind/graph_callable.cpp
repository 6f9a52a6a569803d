#include "bind/graph_callable.h"

#include <memory>
#include <unordered_map>
#include <vector>

#include "capture/frames/log.h"
#include "capture/cpython/ref.h"
#include "trace/trace.h"
#include "trace/training.h"

namespace braze::bind {

namespace {

using capture::Ref;

struct Compiled {
  std::unique_ptr<trace::Runnable> runnable;
  std::vector<size_t> inputs;  // by graph input that is no constant: which argument
  size_t num_arguments = 0;
  std::vector<Ref> values;     // of the result: a constant, or empty where the graph's next output goes
  size_t num_outputs = 0;
};

constexpr const char* kCapsule = "braze.graph";

PyObject* call(PyObject* capsule, PyObject* const* args, Py_ssize_t nargs) {
  auto* c = static_cast<Compiled*>(PyCapsule_GetPointer(capsule, kCapsule));
  if (!c) return nullptr;
  if (static_cast<size_t>(nargs) != c->num_arguments) {
    PyErr_Format(PyExc_TypeError, "the graph takes %zu arguments, not %zd", c->num_arguments, nargs);
    return nullptr;
  }
  std::vector<PyObject*> in, out(c->num_outputs);
  for (size_t i : c->inputs) in.push_back(args[i]);
  if (!c->runnable->run(in.data(), in.size(), out.data(), out.size())) return nullptr;
  PyObject* result = PyTuple_New(static_cast<Py_ssize_t>(c->values.size()));
  size_t next = 0;
  for (size_t i = 0; i < c->values.size(); ++i)
    PyTuple_SET_ITEM(result, i, c->values[i] ? Py_NewRef(c->values[i].get()) : out[next++]);
  return result;
}

PyMethodDef g_call = {"braze_graph", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call)), METH_FASTCALL,
                      "A graph compiled by Braze."};

PyObject* as_is(const std::string& why) {
  capture::log(capture::Topic::GraphBreaks, "a graph runs eagerly: " + why);
  Py_RETURN_NONE;
}

class Recording {
 public:
  explicit Recording(trace::Tracer& t) : t_(t) { t_.enter(); }
  ~Recording() { t_.leave(); }

 private:
  trace::Tracer& t_;
};

}  // namespace

PyObject* compile_graph_module(PyObject* gm, PyObject* example_inputs, const Options& options) {
  Ref examples = Ref::steal(PySequence_Tuple(example_inputs));
  Ref tensor_type = Ref::steal(PyObject_GetAttrString(Ref::steal(PyImport_ImportModule("torch")).get(), "Tensor"));
  Ref forward = Ref::steal(PyObject_GetAttrString(gm, "forward"));
  if (!examples || !tensor_type || !forward) return nullptr;
  size_t n = static_cast<size_t>(PyTuple_GET_SIZE(examples.get()));
  std::unordered_map<PyObject*, size_t> argument_of;
  for (size_t i = 0; i < n; ++i) {
    PyObject* t = PyTuple_GET_ITEM(examples.get(), i);
    int is_tensor = PyObject_IsInstance(t, tensor_type.get());
    if (is_tensor < 0) return nullptr;
    if (!is_tensor) return as_is("an input of the graph is no tensor");
    if (!argument_of.emplace(t, i).second) return as_is("one tensor is several inputs of the graph");
  }
  try {
    auto tracer = trace::Tracer::create(options);
    std::vector<Ref> fakes;
    std::vector<PyObject*> args, outputs, inputs;
    for (size_t i = 0; i < n; ++i) {
      Ref fake = Ref::steal(tracer->lift(PyTuple_GET_ITEM(examples.get(), i), graph::InputKind::Argument, "arg" + std::to_string(i)));
      if (!fake) return nullptr;
      args.push_back(fake.get());
      fakes.push_back(fake);
    }
    Ref result;
    {
      Recording recording(*tracer);
      result = Ref::steal(tracer->call(forward.get(), args.data(), args.size(), nullptr, graph::Location{}));
    }
    if (!result) {
      PyErr_Clear();
      return as_is("tracing the graph failed");
    }
    if (!PyTuple_Check(result.get()) && !PyList_Check(result.get())) return as_is("the graph does not return a tuple");
    auto compiled = std::make_unique<Compiled>();
    compiled->num_arguments = n;
    Ref items = Ref::steal(PySequence_Tuple(result.get()));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items.get()); ++i) {
      PyObject* v = PyTuple_GET_ITEM(items.get(), i);
      if (tracer->is_fake(v)) {
        for (size_t k = 0; k < n; ++k)
          if (args[k] == v) return as_is("the graph returns one of its inputs");
        outputs.push_back(v);
        compiled->values.push_back({});
      } else if (PyObject_IsInstance(v, tensor_type.get()) == 0) {
        compiled->values.push_back(Ref::borrow(v));
      } else {
        return as_is("the graph returns a tensor that it did not compute");
      }
    }
    compiled->num_outputs = outputs.size();
    trace::Captured captured = tracer->finish(outputs, inputs);
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (captured.graph.inputs[i].kind == graph::InputKind::Constant) continue;
      compiled->inputs.push_back(argument_of.at(inputs[i]));
    }
    if (captured.needs_grad) {
      trace::Gradients gradients = trace::differentiate(*tracer, captured);
      auto runnable = trace::make_training_runnable(std::move(captured), std::move(gradients), options);
      runnable->keep_uncompiled(std::move(tracer));
      compiled->runnable = std::move(runnable);
    } else {
      compiled->runnable = trace::make_runnable(std::move(captured), options, false);
    }
    Ref capsule = Ref::steal(PyCapsule_New(compiled.release(), kCapsule, [](PyObject* c) {
      delete static_cast<Compiled*>(PyCapsule_GetPointer(c, kCapsule));
    }));
    return capsule ? PyCFunction_New(&g_call, capsule.get()) : nullptr;
  } catch (const Unsupported& e) {
    PyErr_Clear();
    return as_is(e.what());
  } catch (const std::exception& e) {
    if (!capture::strict()) {
      PyErr_Clear();
      return as_is(std::string("internal failure: ") + e.what());
    }
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, e.what());
    return nullptr;
  }
}

}  // namespace braze::bind
