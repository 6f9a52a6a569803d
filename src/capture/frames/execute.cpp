// The hot path of a compiled entry: inputs, graph, recipe.
#include <algorithm>
#include <optional>
#include <string_view>

#include "base/check.h"
#include "base/log_topics.h"
#include "capture/cpython/imported.h"
#include "capture/frames/entry.h"
#include "capture/guards/array_memory.h"
#include "capture/guards/content.h"
#include "launch/internal_failure.h"
#include "launch/profile.h"
#include "launch/random_state.h"
#include "launch/written_inputs.h"
#include "trace/global_state.h"
#include "trace/number.h"

namespace braze::capture {

namespace {

// `callable`: takes the values of the size symbols, then the inputs as they are laid out.
bool call_backend(Entry& e, PyObject* callable, PyObject* const* inputs, const int64_t* sizes, PyObject** outputs) {
  size_t symbols = e.num_symbols, n = symbols + e.layout.size();
  constexpr size_t kInline = 256;
  PyObject* small[kInline + 1];
  std::vector<PyObject*> large;
  PyObject** args = small + 1;
  if (n > kInline) {
    large.resize(n + 1);
    args = large.data() + 1;
  }
  std::vector<Ref> integers;
  for (size_t i = 0; i < symbols; ++i) {
    integers.push_back(Ref::steal(PyLong_FromLongLong(sizes[i])));
    args[i] = integers[i].get();
  }
  for (size_t i = 0; i < e.layout.size(); ++i)
    args[symbols + i] = e.layout[i] >= 0 ? inputs[e.layout[i]] : e.constants[~e.layout[i]];
  Ref result = Ref::steal(PyObject_Vectorcall(callable, args, n | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
  if (!result) return false;
  PyObject* r = result.get();
  bool tuple = PyTuple_Check(r), list = PyList_Check(r);
  Py_ssize_t got = tuple ? PyTuple_GET_SIZE(r) : list ? PyList_GET_SIZE(r) : -1;
  if (got != static_cast<Py_ssize_t>(e.num_outputs)) {
    PyErr_Format(PyExc_RuntimeError, "braze: the backend's function gave %s of %zd values; the graph has %zu outputs",
                 got < 0 ? Py_TYPE(r)->tp_name : "a sequence", got, e.num_outputs);
    return false;
  }
  for (Py_ssize_t i = 0; i < got; ++i) outputs[i] = Py_NewRef(tuple ? PyTuple_GET_ITEM(r, i) : PyList_GET_ITEM(r, i));
  return true;
}

// What a call of a generator of random numbers gives, a number or an array of NumPy, as a tensor.
Ref drawn(PyObject* call) {
  PyObject* keywords = PyTuple_GET_ITEM(call, 2);
  Ref r = Ref::steal(
      PyObject_Call(PyTuple_GET_ITEM(call, 0), PyTuple_GET_ITEM(call, 1), keywords == Py_None ? nullptr : keywords));
  if (!r) return r;
  if (Py_TYPE(r.get()) == array_type()) {
    static PyObject* from_numpy = imported("torch", "from_numpy");
    return Ref::steal(PyObject_CallOneArg(from_numpy, r.get()));
  }
  if (PyFloat_Check(r.get())) return Ref::steal(trace::tensor_of_number(PyFloat_AS_DOUBLE(r.get())));
  int64_t n = PyLong_AsLongLong(r.get());
  return n == -1 && PyErr_Occurred() ? Ref() : Ref::steal(trace::tensor_of_integer(n));
}

// The inputs with tensors in place of floats and of drawn numbers (an int: which one).
bool fill_numbers(Entry& e, PyObject* const* values, std::vector<PyObject*>& inputs, std::vector<Ref>& numbers) {
  inputs.assign(values, values + e.num_inputs);
  for (const Ref& call : e.draws) {
    numbers.push_back(drawn(call.get()));
    if (!numbers.back()) return false;
  }
  for (PyObject*& v : inputs) {
    if (PyLong_CheckExact(v)) {
      v = numbers[static_cast<size_t>(PyLong_AsSsize_t(v))].get();
    } else if (PyFloat_CheckExact(v)) {
      numbers.push_back(Ref::steal(trace::tensor_of_number(PyFloat_AS_DOUBLE(v))));
      v = numbers.back().get();
      if (!v) return false;
    }
  }
  return true;
}

// Locks that the captured code takes, held from the moment at which the guards held: nothing that they protect changes
// in between.
class TakenLocks {
 public:
  TakenLocks(PyObject* const* locks, size_t n) : locks_(locks) {
    for (; taken_ < n; ++taken_) {
      Ref got = Ref::steal(PyObject_CallMethod(locks_[taken_], "acquire", "O", Py_False));
      all_ = got.get() == Py_True;
      if (all_) continue;
      PyErr_Clear();
      return;
    }
  }
  ~TakenLocks() {
    if (!taken_) return;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    while (taken_ > 0)
      if (!Ref::steal(PyObject_CallMethod(locks_[--taken_], "release", nullptr))) PyErr_Clear();
    PyErr_Restore(type, value, trace);
  }
  TakenLocks(const TakenLocks&) = delete;
  bool all() const { return all_; }  // false: another thread has one of them

 private:
  PyObject* const* locks_;
  size_t taken_ = 0;
  bool all_ = true;
};

// What the run is about to draw from.
class RandomNumbers {
 public:
  explicit RandomNumbers(const Entry& e) {
    if (e.random) torch_.emplace();
    for (const Ref& call : e.draws) {
      Ref from = Ref::steal(PyObject_GetAttrString(PyTuple_GET_ITEM(call.get(), 0), "__self__"));
      // Of random.Random, of numpy.random.RandomState, of numpy.random.Generator.
      Ref bits = Ref::steal(from ? PyObject_GetAttrString(from.get(), "bit_generator") : nullptr);
      if (bits) from = bits;
      for (const char* get : {"getstate", "get_state", "__getstate__"}) {
        PyErr_Clear();
        Ref state =
            Ref::steal(from && (*get == '_') == !!bits ? PyObject_CallMethod(from.get(), get, nullptr) : nullptr);
        if (!state) continue;
        states_.push_back({from, state,
                           bits                                  ? "__setstate__"
                           : std::string_view(get) == "getstate" ? "setstate"
                                                                 : "set_state"});
        break;
      }
      PyErr_Clear();
    }
  }
  // False: an exception is set.
  bool restore() const {
    if (torch_) torch_->restore();
    for (size_t i = states_.size(); i-- > 0;)
      if (!Ref::steal(PyObject_CallMethod(states_[i].generator.get(), states_[i].set, "(O)", states_[i].state.get())))
        return false;
    return true;
  }

 private:
  std::optional<launch::RandomState> torch_;
  struct State {
    Ref generator, state;
    const char* set;  // the method that brings it back
  };
  std::vector<State> states_;
};

class GraphCall : public TwoForms {
 public:
  GraphCall(Entry& e, PyObject* const* inputs, const int64_t* symbols) : e_(e), inputs_(inputs), symbols_(symbols) {}
  bool compiled(PyObject** outputs) override {
    return e_.runnable->run(inputs_, e_.num_inputs, outputs, e_.num_outputs, symbols_);
  }
  bool calls(PyObject* callable, PyObject** outputs) override {
    trace::WithoutTorchFunctions off(e_.without_torch_functions);
    return call_backend(e_, callable, inputs_, symbols_, outputs);
  }
  bool run(PyObject** outputs) {
    if (e_.speed) return e_.speed->run(*this, inputs_, e_.num_inputs, symbols_, outputs, e_.num_outputs);
    return e_.runnable ? compiled(outputs) : calls(e_.callable.get(), outputs);
  }

 private:
  Entry& e_;
  PyObject* const* inputs_;
  const int64_t* symbols_;
};

// Inputs that get another geometry at the end: the graph, which may keep them for the backward, is given aliases.
bool fill_aliases(const Entry& e, PyObject* const* values, std::vector<PyObject*>& inputs, std::vector<Ref>& aliases) {
  if (inputs.empty()) inputs.assign(values, values + e.num_inputs);
  for (auto [at, n] : e.written)
    for (PyObject*& v : inputs)
      if (v == values[at]) {
        aliases.push_back(Ref::steal(launch::alias(v)));
        v = aliases.back().get();
        if (!v) return false;
      }
  return true;
}

// Writes to inputs, counted for as long as the run does not fail.
class CountedWrites {
 public:
  CountedWrites(const Entry& e, PyObject* const* values) : e_(e), values_(values) { count(1); }
  ~CountedWrites() {
    if (!stay_) count(-1);
  }
  CountedWrites(const CountedWrites&) = delete;
  void stay() { stay_ = true; }

 private:
  void count(int sign) const {
    for (auto [at, n] : e_.written) launch::count_writes(values_[at], sign * n);
  }
  const Entry& e_;
  PyObject* const* values_;
  bool stay_ = false;
};

}  // namespace

Ran execute(Entry& e, GuardValues& values, PyObject** regs) {
  struct Clear {
    GuardValues& values;
    ~Clear() { values.clear(); }
  } at_end{values};
  // Also where nothing of the entry runs: what the interpreter does instead changes them.
  forget_contents();
  if (e.run_failures.pauses()) return Ran::Uncompiled;
  launch::ProfilerRange range(e.name);
  TakenLocks locks(values.values() + e.num_inputs + e.num_loads, e.num_locks);
  if (!locks.all()) return Ran::Uncompiled;
  Registers outputs(e.num_outputs);
  const int64_t *integers = values.sizes(), *symbols = integers + e.num_integers;
  std::vector<Ref> made;  // inputs that the run gives
  std::vector<PyObject*> inputs;
  std::optional<RandomNumbers> before;
  if (e.again_uncompiled) before.emplace(e);
  if (e.numbers && !fill_numbers(e, values.values(), inputs, made)) return Ran::Raised;
  CountedWrites writes(e, values.values());
  if (e.has_graph) {
    if (!e.written.empty() && !fill_aliases(e, values.values(), inputs, made)) return Ran::Raised;
    PyObject* const* given = inputs.empty() ? values.values() : inputs.data();
    std::optional<launch::InferenceScope> inference;
    if (e.inference) inference.emplace();
    launch::note_not_again(false);
    if (!GraphCall(e, given, symbols).run(outputs.get())) {
      if (!before || launch::note_not_again(false) || PyErr_ExceptionMatches(launch::internal_failure()) ||
          !PyErr_ExceptionMatches(PyExc_Exception))
        return Ran::Raised;
      e.run_failures.ended(e.name);
      return before->restore() ? Ran::Uncompiled : Ran::Raised;
    }
  }
  e.run_failures.succeeded();
  writes.stay();
  return run(e.recipe, values.values() + e.num_inputs, outputs.get(), integers, regs) ? Ran::Done : Ran::Raised;
}

}  // namespace braze::capture
