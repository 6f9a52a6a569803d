#include <span>

#include "base/log_topics.h"
#include "base/strict.h"
#include "capture/cpython/imported.h"
#include "capture/frames/capture_entry.h"
#include "capture/frames/compilations.h"
#include "capture/frames/report.h"

namespace braze::capture {

namespace {

// What a call of the GraphModule takes: constants are inputs like others.
void lay_out_inputs(Entry& entry, const Segment& segment) {
  const graph::Graph& graph = segment.captured.graph;
  entry.constants = segment.captured.constants;
  for (PyObject* c : entry.constants) Py_XINCREF(c);
  int next_input = 0, next_constant = 0;
  size_t of_forward = graph.inputs.size();  // what the backward reads comes after it
  if (segment.gradients && !segment.gradients->tangents.empty()) of_forward = segment.gradients->tangents[0];
  for (const graph::Input& in : std::span(graph.inputs).first(of_forward))
    entry.layout.push_back(in.kind == graph::InputKind::Constant ? ~next_constant++ : next_input++);
}

std::unique_ptr<SpeedGuard> guard_speed(const Entry& entry, const Segment& segment, const UserLine& at) {
  std::string untimed;
  if (segment.captured.needs_grad)
    untimed = "its results have a history, and what the backward takes is not seen here";
  else if (segment.tracer ? !segment.tracer->has_torch_level() : !segment.calls)
    untimed = "it is known at the level of ATen alone";
  else if (segment.without_torch_functions)
    untimed = "subclasses of tensors or modes take its functions over";
  return std::make_unique<SpeedGuard>(segment.captured.graph, at, entry.num_symbols, std::move(untimed));
}

// What is left of the capture.
std::unique_ptr<trace::TorchCalls> calls_alone(Segment& segment) {
  return segment.tracer ? trace::calls_alone(std::move(segment.tracer)) : std::move(segment.calls);
}

// By our own compiler. Throws Unsupported or InternalError.
void make_runnable(const Region& region, Entry& entry, Segment& segment, const UserLine& at, Event& event,
                   const std::string& captured, bool texts) {
  const Options& options = region.options().options;
  bool training = segment.captured.needs_grad;
  std::unique_ptr<SpeedGuard> speed = options.guard_speed ? guard_speed(entry, segment, at) : nullptr;
  if (training && segment.no_gradients) throw Unsupported(segment.no_gradients->reason, segment.no_gradients->detail);
  event.trained = training;
  if (training) {
    auto runnable = launch::make_training_runnable(std::move(segment.captured), std::move(*segment.gradients), options,
                                                   texts, region.options().fullgraph);
    if (region.events) {
      runnable->prepare_backward();
      event.training = runnable->training_report();
    }
    if (auto calls = calls_alone(segment)) runnable->keep_uncompiled(std::move(calls));
    entry.runnable = std::move(runnable);
  } else {
    entry.runnable = launch::make_runnable(std::move(segment.captured), options, texts);
    if (speed && speed->times()) speed->keep(calls_alone(segment));
  }
  entry.speed = std::move(speed);
  event.graph_status = "compiled";
  if (texts || region.events || listener() || logs(Topic::PerfHints)) event.report = entry.runnable->report();
  if (event.report.externs)
    tell(Topic::PerfHints, entry.name + ": " + std::to_string(event.report.externs) +
                               " calls of PyTorch's operators beside " + std::to_string(event.report.kernels) +
                               " kernels");
  if (!texts) return;
  tell(Topic::Graph, "captured\n" + captured + "optimised\n" + event.report.graph);
  tell(Topic::Passes, event.report.passes);
  tell(Topic::Loops, event.report.scheduled);
  tell(Topic::Kernels, event.report.plan + event.report.source);
}

GraphOutcome give_to_backend(const Region& region, Entry& entry, const Segment& segment, const GuardValues& values,
                             PyObject* graph_module, Event& event) {
  Ref inputs = Ref::steal(PyList_New(0));
  for (size_t i = 0; i < entry.num_symbols; ++i)
    PyList_Append(inputs.get(), Ref::steal(PyLong_FromLongLong(values.sizes()[entry.num_integers + i])).get());
  for (int at : entry.layout) {
    PyObject* input = at >= 0 ? values.values()[at] : entry.constants[~at];
    // Nothing is drawn yet.
    if (PyLong_CheckExact(input)) input = segment.like_drawn[static_cast<size_t>(PyLong_AsSsize_t(input))].get();
    PyList_Append(inputs.get(), input);
  }
  PyObject* backend = region.options().backend.get();
  event.graph_status = "by the given backend";
  if (entry.num_symbols) {
    static PyObject* open_sizes = imported("braze._given_backend", "OpenSizes");
    entry.callable = Ref::steal(PyObject_CallFunctionObjArgs(open_sizes, backend, graph_module, inputs.get(), nullptr));
    Ref as_it_is = entry.callable ? Ref::steal(PyObject_GetAttrString(entry.callable.get(), "runs_module")) : Ref();
    if (!as_it_is) return GraphOutcome::Raised;
    entry.again_uncompiled = entry.again_uncompiled && as_it_is.get() == Py_True;
    return GraphOutcome::Ready;
  }
  PyObject* args[] = {nullptr, graph_module, inputs.get()};
  entry.callable = Ref::steal(PyObject_Vectorcall(backend, args + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
  if (!entry.callable) return GraphOutcome::Raised;
  // Exceptions of a backend's own code are the user's to see; those of the graph as it is are the program's.
  PyObject* given = entry.callable.get();
  bool as_it_is = given == graph_module || (PyMethod_Check(given) && PyMethod_GET_SELF(given) == graph_module);
  entry.again_uncompiled = entry.again_uncompiled && as_it_is;
  if (PyCallable_Check(given)) return GraphOutcome::Ready;
  entry.callable = Ref();
  PyErr_SetString(PyExc_TypeError, "braze: the backend did not return a callable");
  return GraphOutcome::Raised;
}

}  // namespace

GraphOutcome compile_graph(Region& region, Entry& entry, Segment& segment, const GuardValues& values,
                           const UserLine& at, Event& event, FrameView& again) {
  entry.has_graph = true;
  lay_out_inputs(entry, segment);
  bool given = static_cast<bool>(region.options().backend);
  std::string why;
  if (!given) {
    bool texts =
        region.keep_texts || logs(Topic::Graph) || logs(Topic::Passes) || logs(Topic::Loops) || logs(Topic::Kernels);
    std::string captured = texts ? graph::print(segment.captured.graph) : std::string();
    graph::Graph graph = segment.captured.graph;  // for the report of a failure
    const bool kept = !segment.tracer;            // captured by another process
    const bool open = !segment.captured.size_symbols.empty() || (!kept && segment.tracer->has_unbacked());
    try {
      make_runnable(region, entry, segment, at, event, captured, texts);
      return GraphOutcome::Ready;
    } catch (const Unsupported& e) {
      if (kept) return GraphOutcome::CaptureAgain;
      // What cannot be had for all sizes may be had for each.
      if (open && !again.fixed_sizes) {
        again.fixed_sizes = true;
        return GraphOutcome::CaptureAgain;
      }
      if (region.options().fullgraph) {
        event.graph_status = "not at all";
        refuse({e.reason(), e.detail(), at, {}});
        return GraphOutcome::Raised;
      }
      why = std::string(summary(e.reason())) + ": " + e.detail();
    } catch (const std::exception& e) {
      if (kept) return GraphOutcome::CaptureAgain;
      std::string text = graph::print(graph);
      if (strict() || region.options().fullgraph) throw InternalError(std::string(e.what()) + "\n" + text);
      why = std::string("internal failure: ") + e.what() + "\n" + text + "  BRAZE_STRICT=1 raises instead.";
    }
  }
  if (!segment.tracer->has_torch_level()) {
    again.torch_level = true;
    return GraphOutcome::CaptureAgain;
  }
  Ref graph_module = Ref::steal(segment.tracer->graph_module());
  if (!graph_module) throw InternalError("no GraphModule: " + take_exception());
  if (given) return give_to_backend(region, entry, segment, values, graph_module.get(), event);
  event.graph_status = "eagerly: " + why;
  tell(Topic::GraphBreaks, "a graph runs eagerly: " + why);
  tell(Topic::PerfHints, "a graph runs eagerly: " + why);
  say_uncompiled(at, why);
  entry.callable = Ref::steal(PyObject_GetAttrString(graph_module.get(), "forward"));
  if (!entry.callable) throw InternalError("no GraphModule: " + take_exception());
  return GraphOutcome::Ready;
}

}  // namespace braze::capture
