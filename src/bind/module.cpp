// braze._C: what the Python package calls.
#include <pybind11/pybind11.h>

#include <cstdlib>
#include <utility>

#include "base/build_id.h"
#include "base/cpu.h"
#include "base/log_topics.h"
#include "bind/attention.h"
#include "bind/callable.h"
#include "bind/options.h"
#include "bind/trace_hooks.h"
#include "bind/triton.h"
#include "capture/builtins/builtins.h"
#include "capture/eval/markers.h"
#include "capture/frames/compilations.h"
#include "capture/frames/report.h"
#include "capture/frames/stance.h"
#include "codegen/codegen.h"
#include "codegen/disk_cache.h"
#include "codegen/warm_up.h"
#include "trace/number_range.h"
#include "trace/trace.h"

namespace braze::bind {

namespace {

using capture::Ref;

void put(PyObject* dict, const char* key, PyObject* owned) {
  Ref v = Ref::steal(owned);
  PyDict_SetItemString(dict, key, v.get());
}

// Code and name of what will be captured first: a module's call is the same function for all modules, its `forward` is
// not.
std::string program_text(PyObject* function, PyObject* bound) {
  std::string text;
  auto add = [&](PyObject* f) {
    if (!f || !PyFunction_Check(f)) return;
    auto* code = reinterpret_cast<PyCodeObject*>(reinterpret_cast<PyFunctionObject*>(f)->func_code);
    Ref bytes = Ref::steal(PyCode_GetCode(code));
    if (bytes) text.append(PyBytes_AS_STRING(bytes.get()), static_cast<size_t>(PyBytes_GET_SIZE(bytes.get())));
    const char* name = PyUnicode_AsUTF8(code->co_name);
    text += name ? name : "";
  };
  add(function);
  if (bound != Py_None)
    add(Ref::steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(bound)), "forward")).get());
  PyErr_Clear();
  return text;
}

// compile(function, bound, replaces_first, backend, fullgraph, dynamic, options, recompile_limit, name)
PyObject* compile(PyObject*, PyObject* args) {
  PyObject *function, *bound, *backend, *dynamic, *options;
  int replaces_first, fullgraph;
  Py_ssize_t recompile_limit = 0;
  const char* name = "";
  if (!PyArg_ParseTuple(args, "O!OpOpOO|ns:compile", &PyFunction_Type, &function, &bound, &replaces_first, &backend,
                        &fullgraph, &dynamic, &options, &recompile_limit, &name))
    return nullptr;
  std::optional<Options> o = options_from(options);
  if (!o) return nullptr;
  if (backend == Py_None) codegen::warm_up(o->disk_cache ? program_text(function, bound) : std::string());
  capture::RegionOptions region{*o,
                                fullgraph != 0,
                                dynamic == Py_None   ? capture::Dynamic::Auto
                                : dynamic == Py_True ? capture::Dynamic::Always
                                                     : capture::Dynamic::Never,
                                backend == Py_None ? Ref() : Ref::borrow(backend),
                                static_cast<size_t>(recompile_limit),
                                name};
  return new_callable(std::make_shared<capture::Region>(std::move(region)), function,
                      bound == Py_None ? nullptr : bound, replaces_first != 0);
}

// check_options(options): raises what compile would for them.
PyObject* check_options(PyObject*, PyObject* options) {
  if (!options_from(options)) return nullptr;
  Py_RETURN_NONE;
}

PyObject* has_cpp_compiler(PyObject*, PyObject*) { return PyBool_FromLong(codegen::has_cpp_compiler()); }

PyObject* describe_event(const capture::Event& e) {
  PyObject* d = PyDict_New();
  put(d, "calls", PyLong_FromSize_t(e.num_calls));
  put(d, "status", PyUnicode_FromString(e.graph_status.c_str()));
  put(d, "kernels", PyLong_FromSize_t(e.report.kernels));
  put(d, "externs", PyLong_FromSize_t(e.report.externs));
  put(d, "nests", PyLong_FromSize_t(e.report.nests));
  put(d, "from_disk_cache", PyBool_FromLong(e.report.from_disk_cache));
  launch::TrainingReport training = e.training.value_or(launch::TrainingReport{});
  put(d, "training", PyBool_FromLong(e.training.has_value()));
  put(d, "backward_kernels", PyLong_FromSize_t(training.backward_kernels));
  put(d, "backward_externs", PyLong_FromSize_t(training.backward_externs));
  put(d, "saved_bytes", PyLong_FromLongLong(training.saved_bytes));
  put(d, "partition", PyUnicode_FromString(training.partition.c_str()));
  put(d, "code", PyUnicode_FromString(e.report.source.c_str()));
  put(d, "plan", PyUnicode_FromString(e.report.plan.c_str()));
  Ref guards = Ref::steal(PyList_New(0));
  for (const std::string& g : e.guards) PyList_Append(guards.get(), Ref::steal(PyUnicode_FromString(g.c_str())).get());
  put(d, "guards", Py_NewRef(guards.get()));
  const capture::GuardCost& cost = e.guard_cost;
  put(d, "check",
      Py_BuildValue("{snsnsnsd}", "guards", cost.guards, "watched", cost.watched, "steps", cost.steps, "seconds",
                    cost.seconds));
  Ref times = Ref::steal(PyDict_New());
  put(times.get(), "capture", PyFloat_FromDouble(e.capture_seconds));
  put(times.get(), "compile", PyFloat_FromDouble(e.compile_seconds));
  for (auto& [stage, seconds] : e.report.timings.stages) put(times.get(), stage.c_str(), PyFloat_FromDouble(seconds));
  put(d, "times", Py_NewRef(times.get()));
  if (e.stop) {
    Ref b = Ref::steal(PyDict_New());
    std::string reason(summary(e.stop->reason)), hint(remedy(e.stop->reason)), name_(name(e.stop->reason));
    put(b.get(), "name", PyUnicode_FromString(name_.c_str()));
    put(b.get(), "reason", PyUnicode_FromString(reason.c_str()));
    put(b.get(), "detail", PyUnicode_FromString(e.stop->detail.c_str()));
    put(b.get(), "hint", PyUnicode_FromString(hint.c_str()));
    put(b.get(), "file", e.stop->line.code ? Py_NewRef(e.stop->line.code->co_filename) : PyUnicode_FromString("?"));
    put(b.get(), "line", PyLong_FromLong(e.stop->line.line));
    put(b.get(), "source", PyUnicode_FromString(capture::source_text(e.stop->line).c_str()));
    put(d, "break", Py_NewRef(b.get()));
  } else {
    put(d, "break", Py_NewRef(Py_None));
  }
  return d;
}

// record(compiled, call, texts): the result of call() and what was captured meanwhile, with the kernels' source if
// asked for.
PyObject* record(PyObject*, PyObject* args) {
  PyObject *compiled, *thunk;
  int texts = 0;
  if (!PyArg_ParseTuple(args, "OO|p:record", &compiled, &thunk, &texts)) return nullptr;
  capture::Region* region = region_of(compiled);
  if (!region) return nullptr;
  std::vector<capture::Event> events;
  region->events = &events;
  region->keep_texts = texts != 0;
  Ref result = Ref::steal(PyObject_CallNoArgs(thunk));
  region->events = nullptr;
  region->keep_texts = false;
  if (!result) return nullptr;
  Ref list = Ref::steal(PyList_New(0));
  for (const capture::Event& e : events) PyList_Append(list.get(), Ref::steal(describe_event(e)).get());
  return PyTuple_Pack(2, result.get(), list.get());
}

PyObject* compilations(PyObject*, PyObject* compiled) {
  capture::Region* region = region_of(compiled);
  return region ? PyLong_FromSize_t(region->compilations) : nullptr;
}

// speeds(compiled): what options={"guard_speed": True} found of its graphs so far.
PyObject* speeds(PyObject*, PyObject* compiled) {
  capture::Region* region = region_of(compiled);
  if (!region) return nullptr;
  PyObject* list = PyList_New(0);
  for (const capture::SpeedReport& r : region->speeds()) {
    Ref d = Ref::steal(PyDict_New());
    put(d.get(), "place", PyUnicode_FromString(r.place.c_str()));
    Ref sizes = Ref::steal(PyList_New(0));
    for (int64_t s : r.sizes) PyList_Append(sizes.get(), Ref::steal(PyLong_FromLongLong(s)).get());
    put(d.get(), "sizes", sizes.release());
    using Form = SpeedRecord::Form;
    const char* form = r.form == Form::Calls ? "calls" : r.form == Form::Compiled ? "compiled" : "open";
    put(d.get(), "form", PyUnicode_FromString(form));
    put(d.get(), "compiled_seconds", PyFloat_FromDouble(r.compiled));
    put(d.get(), "calls_seconds", PyFloat_FromDouble(r.calls));
    put(d.get(), "calls", PyLong_FromUnsignedLongLong(r.num_calls));
    put(d.get(), "samples", PyLong_FromLong(r.samples));
    put(d.get(), "why", PyUnicode_FromString(r.why.c_str()));
    PyList_Append(list, d.get());
  }
  return list;
}

PyObject* reset(PyObject*, PyObject*) {
  capture::Region::clear_all();
  Py_RETURN_NONE;
}

PyObject* capturing(PyObject*, PyObject*) { return PyBool_FromLong(capture::capturing()); }

PyObject* set_disabled(PyObject*, PyObject* arg) {
  int on = PyObject_IsTrue(arg);
  if (on < 0) return nullptr;
  return PyBool_FromLong(capture::set_disabled(on != 0));
}

PyObject* set_markers(PyObject*, PyObject* args) {
  PyObject *graph_break, *is_compiling, *unsupported;
  if (!PyArg_ParseTuple(args, "OOO:set_markers", &graph_break, &is_compiling, &unsupported)) return nullptr;
  capture::markers().graph_break = Py_NewRef(graph_break);
  capture::markers().is_compiling = Py_NewRef(is_compiling);
  capture::set_unsupported_exception(Py_NewRef(unsupported));
  Py_RETURN_NONE;
}

// set_stance(name): the one before.
PyObject* set_stance(PyObject*, PyObject* arg) {
  const char* name = PyUnicode_Check(arg) ? PyUnicode_AsUTF8(arg) : nullptr;
  std::string before = name ? capture::set_stance(name) : "";
  if (before.empty())
    return PyErr_Format(PyExc_ValueError, "no stance %R; accepted: %s", arg, capture::stance_names().c_str());
  return PyUnicode_FromString(before.c_str());
}

// set_logs(topics): those before.
PyObject* set_logs(PyObject*, PyObject* arg) {
  const char* topics = PyUnicode_AsUTF8(arg);
  if (!topics) return nullptr;
  std::string before = log_topics(), bad = set_log_topics(topics);
  if (bad.empty()) return PyUnicode_FromString(before.c_str());
  PyErr_SetString(PyExc_ValueError, bad.c_str());
  return nullptr;
}

PyObject* counters(PyObject*, PyObject* clear) {
  capture::Counters& c = capture::counters();
  Ref breaks = Ref::steal(PyDict_New());
  for (const auto& [reason, n] : c.breaks) put(breaks.get(), reason.c_str(), PyLong_FromSize_t(n));
  PyObject* d =
      Py_BuildValue("{snsnsnsnsnsnsnsnsdsdsO}", "captures", c.captures, "graphs", c.graphs, "training_graphs",
                    c.training_graphs, "recompiles", c.recompiles, "failures", c.failures, "runs_made_again",
                    c.runs_made_again, "kept_captures", c.kept_captures, "left_out", c.left_out, "capture_seconds",
                    c.capture_seconds, "compile_seconds", c.compile_seconds, "graph_breaks", breaks.get());
  if (PyObject_IsTrue(clear)) c = {};
  return d;
}

PyObject* g_listener = nullptr;

void tell_listener(const capture::UserLine& at, const std::string& name, const capture::Event* ended) {
  if (!g_listener) return;
  PyObject *type, *value, *trace;  // the capture may have ended in an exception
  PyErr_Fetch(&type, &value, &trace);
  Ref listener = Ref::borrow(g_listener), event = ended ? Ref::steal(describe_event(*ended)) : Ref::borrow(Py_None);
  Ref r = Ref::steal(PyObject_CallFunction(listener.get(), "OissO", at.code ? at.code->co_filename : Py_None, at.line,
                                           at.code ? PyUnicode_AsUTF8(at.code->co_qualname) : "", name.c_str(),
                                           event.get()));
  if (!r) PyErr_WriteUnraisable(listener.get());
  PyErr_Restore(type, value, trace);
}

PyObject* set_listener(PyObject*, PyObject* listener) {
  Py_XSETREF(g_listener, listener == Py_None ? nullptr : Py_NewRef(listener));
  capture::set_listener(g_listener ? tell_listener : nullptr);
  Py_RETURN_NONE;
}

// cache_files(): the folder of the cache ('' where there is none), and paths of what this process used of it.
PyObject* cache_files(PyObject*, PyObject*) {
  Ref paths = Ref::steal(PyList_New(0));
  for (const std::string& p : codegen::used_cache_files())
    PyList_Append(paths.get(), Ref::steal(PyUnicode_DecodeFSDefault(p.c_str())).get());
  return Py_BuildValue("NO", PyUnicode_DecodeFSDefault(codegen::DiskCache().folder().c_str()), paths.get());
}

PyObject* overflow_errors(PyObject*, PyObject*) {
  Ref errors = Ref::steal(PyDict_New());
  const std::pair<const char*, DType> dtypes[] = {
      {"float16", DType::F16}, {"bfloat16", DType::BF16}, {"float32", DType::F32}};
  for (const auto& [dtype, is] : dtypes)
    if (std::string words = trace::overflow_error(is); !words.empty())
      put(errors.get(), dtype, PyUnicode_FromStringAndSize(words.data(), static_cast<Py_ssize_t>(words.size())));
  return errors.release();
}

PyObject* allow_in_graph(PyObject*, PyObject* callable) {
  capture::allow_in_graph(callable);
  Py_RETURN_NONE;
}

PyObject* substitute(PyObject*, PyObject* args) {
  PyObject *callable, *by;
  if (!PyArg_ParseTuple(args, "OO:substitute", &callable, &by)) return nullptr;
  capture::substitute(callable, by);
  Py_RETURN_NONE;
}

PyObject* make_leaf(PyObject*, PyObject* tensor) {
  if (!THPVariable_Check(tensor))
    return PyErr_Format(PyExc_TypeError, "braze: a graph gave %s in place of a tensor", Py_TYPE(tensor)->tp_name);
  launch::make_leaf(tensor);
  return Py_NewRef(tensor);
}
PyObject* mark_consumed(PyObject*, PyObject* tensor) {
  launch::mark_consumed(tensor);
  return Py_NewRef(tensor);
}

// Most programs never ask for what tests do: its classes and functions are made when the first of them is asked for.
PyObject* hook(PyObject* module, PyObject* name) {
  static bool added = false;
  if (!std::exchange(added, true)) {
    try {
      auto m = pybind11::reinterpret_borrow<pybind11::module_>(module);
      add_trace_hooks(m);
      add_triton_hooks(m);
      add_attention_hooks(m);
    } catch (pybind11::error_already_set& error) {
      error.restore();
      return nullptr;
    }
  }
  PyObject* found = PyDict_GetItemWithError(PyModule_GetDict(module), name);
  if (!found && !PyErr_Occurred())
    PyErr_Format(PyExc_AttributeError, "module %s has no attribute %R", PyModule_GetName(module), name);
  return Py_XNewRef(found);
}

// let_go(weakref): compiled code forgets the object if it made the reference.
PyObject* let_go(PyObject*, PyObject* weakref) {
  if (!PyWeakref_CheckRef(weakref))
    return PyErr_Format(PyExc_TypeError, "a weak reference is expected, not %R", weakref);
  capture::let_go(weakref);
  Py_RETURN_NONE;
}

PyMethodDef functions[] = {{"_make_leaf", make_leaf, METH_O, nullptr},
                           {"_mark_consumed", mark_consumed, METH_O, nullptr},
                           {"check_options", check_options, METH_O, nullptr},
                           {"has_cpp_compiler", has_cpp_compiler, METH_NOARGS, nullptr},
                           {"compile", compile, METH_VARARGS, nullptr},
                           {"record", record, METH_VARARGS, nullptr},
                           {"let_go", let_go, METH_O, nullptr},
                           {"compilations", compilations, METH_O, nullptr},
                           {"speeds", speeds, METH_O, nullptr},
                           {"reset", reset, METH_NOARGS, nullptr},
                           {"capturing", capturing, METH_NOARGS, nullptr},
                           {"set_disabled", set_disabled, METH_O, nullptr},
                           {"set_stance", set_stance, METH_O, nullptr},
                           {"set_logs", set_logs, METH_O, nullptr},
                           {"counters", counters, METH_O, nullptr},
                           {"cache_files", cache_files, METH_NOARGS, nullptr},
                           {"set_listener", set_listener, METH_O, nullptr},
                           {"overflow_errors", overflow_errors, METH_NOARGS, nullptr},
                           {"allow_in_graph", allow_in_graph, METH_O, nullptr},
                           {"substitute", substitute, METH_VARARGS, nullptr},
                           {"set_markers", set_markers, METH_VARARGS, nullptr},
                           {"__getattr__", hook, METH_O, nullptr},
                           {nullptr, nullptr, 0, nullptr}};

}  // namespace

}  // namespace braze::bind

PYBIND11_MODULE(_C, m) {
  braze::add_to_build_id(braze::bind::functions);
  braze::trace::initialize();
  if (!braze::bind::init_callable(m.ptr()) || PyModule_AddFunctions(m.ptr(), braze::bind::functions) < 0)
    throw pybind11::error_already_set();
  braze::bind::install_triton();
  const char* topics = std::getenv("BRAZE_LOGS");
  std::string bad = braze::set_log_topics(topics ? topics : "");
  if (bad.empty()) bad = braze::cpu_error();
  if (!bad.empty()) throw std::runtime_error(bad);
}
