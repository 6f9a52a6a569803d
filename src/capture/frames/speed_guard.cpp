#include "capture/frames/speed_guard.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdio>

#include "base/check.h"
#include "base/log_topics.h"
#include "capture/cpython/imported.h"
#include "capture/frames/entry.h"
#include "capture/frames/report.h"

namespace braze::capture {

namespace {

using Form = SpeedRecord::Form;

std::string duration(double seconds) {
  char text[32];
  bool small = seconds < 1e-3;
  std::snprintf(text, sizeof text, "%.3g %s", seconds * (small ? 1e6 : 1e3), small ? "us" : "ms");
  return text;
}

PyObject* out_of_memory() {
  static PyObject* type = imported("torch", "OutOfMemoryError");
  return type;
}

// The exceptions of PyTorch's operators. What a signal's handler raises meanwhile is the program's.
bool raised_by_operators() {
  PyObject* type = PyErr_Occurred();
  for (PyObject* known : {PyExc_RuntimeError, PyExc_NotImplementedError, PyExc_IndexError, PyExc_ValueError,
                          PyExc_TypeError, PyExc_AssertionError})
    if (type == known) return true;
  return type == out_of_memory();
}

// The process in which something is being timed. A child that another thread forks has another number.
pid_t g_timing = 0;

}  // namespace

class SpeedGuard::Use {
 public:
  explicit Use(SpeedGuard& guard) : guard_(guard) { guard_.overlapped_ |= ++guard_.running_ > 1; }
  ~Use() { --guard_.running_; }
  Use(const Use&) = delete;

 private:
  SpeedGuard& guard_;
};

class SpeedGuard::Timing {
 public:
  Timing() { g_timing = getpid(); }
  ~Timing() { g_timing = 0; }
  Timing(const Timing&) = delete;
};

SpeedGuard::SpeedGuard(const graph::Graph& captured, const UserLine& at, size_t num_symbols, std::string untimed)
    : at_(at), place_(describe(at)), num_symbols_(num_symbols), why_not_(std::move(untimed)) {
  if (size_t n = captured.locations().size()) {
    const std::string& first = captured.locations()[graph::LocId(size_t{0})].function;
    const std::string& last = captured.locations()[graph::LocId(n - 1)].function;
    place_ += " (" + first + (last == first ? "" : " to " + last) + ")";
  }
  if (!why_not_.empty()) return;
  twice_ = std::make_unique<launch::RunTwice>(captured);
  why_not_ = twice_->why_not();
}

SpeedGuard::~SpeedGuard() = default;

void SpeedGuard::keep(std::unique_ptr<trace::TorchCalls> calls) { torch_calls_ = std::move(calls); }

bool SpeedGuard::run(TwoForms& forms, PyObject* const* inputs, size_t n, const int64_t* symbols, PyObject** outputs,
                     size_t m) {
  SizeClass* c = of(symbols);
  if (!c) return forms.compiled(outputs);
  Use use(*this);
  SpeedRecord::Task task = c->record.next();
  if (c->record.form() == Form::Calls) return forms.calls(calls_.get(), outputs);
  if (task == SpeedRecord::Task::Run) return forms.compiled(outputs);
  if (!suits(inputs, n)) {
    c->record.put_off();
    return forms.compiled(outputs);
  }
  overlapped_ = false;
  if (task == SpeedRecord::Task::Probe) return probe(*c, forms, outputs);
  if (!sample(*c, forms, m)) return false;
  return c->record.form() == Form::Calls ? forms.calls(calls_.get(), outputs) : forms.compiled(outputs);
}

SpeedGuard::SizeClass* SpeedGuard::of(const int64_t* symbols) {
  if (!times()) return nullptr;
  auto width = [&](size_t i) { return static_cast<uint8_t>(std::bit_width(static_cast<uint64_t>(symbols[i]))); };
  for (const auto& c : classes_) {
    bool same = true;
    for (size_t i = 0; same && i < num_symbols_; ++i) same = c->key[i] == width(i);
    if (same) return c.get();
  }
  if (classes_.size() >= kMostClasses) return nullptr;
  auto fresh = std::make_unique<SizeClass>();
  for (size_t i = 0; i < num_symbols_; ++i) fresh->key.push_back(width(i)), fresh->sizes.push_back(symbols[i]);
  int64_t bytes = twice_->peak_bytes(symbols);
  if (bytes > (twice_->on_gpu() ? kMostBytesOfGpu : kMostBytes)) {
    fresh->record.settle(Form::Compiled);
    fresh->why = "not timed: its results take " + std::to_string(bytes >> 20) + " MiB";
  }
  classes_.push_back(std::move(fresh));
  return classes_.back().get();
}

bool SpeedGuard::suits(PyObject* const* inputs, size_t n) const {
  PyThreadState* ts = PyThreadState_Get();
  return running_ == 1 && g_timing != getpid() && !ts->c_tracefunc && !ts->c_profilefunc && twice_->now(inputs, n);
}

bool SpeedGuard::probe(SizeClass& c, TwoForms& forms, PyObject** outputs) {
  Timing timing;
  double start = twice_->clock();
  if (!forms.compiled(outputs)) return false;
  double seconds = twice_->clock() - start;
  if (overlapped_)
    c.record.put_off();
  else
    c.record.probed(std::max(seconds, 1e-9));
  return true;
}

// The torch-level graph as a callable. False: it may not be called a second time; no exception is set.
bool SpeedGuard::make_calls() {
  if (calls_) return true;
  out_of_memory();  // cannot be imported while an exception is set
  Ref module;
  std::string failure;
  try {
    module = Ref::steal(torch_calls_ ? torch_calls_->graph_module() : nullptr);
  } catch (const InternalError& e) {  // what the program computed from a backward of its own, say, no call gave
    failure = e.what();
  }
  static PyObject* foreign = imported("braze._fx", "foreign_calls");
  Ref names = Ref::steal(module ? PyObject_CallOneArg(foreign, module.get()) : nullptr);
  if (names && names.get() == Py_None) calls_ = Ref::steal(PyObject_GetAttrString(module.get(), "forward"));
  if (calls_) return true;
  const char* name = names ? PyUnicode_AsUTF8(names.get()) : nullptr;
  why_not_ = name ? std::string("it calls ") + name + ", which is no function of PyTorch's own"
                  : "there is no graph of PyTorch's calls: " + (failure.empty() ? take_exception() : failure);
  torch_calls_ = nullptr;
  return false;
}

bool SpeedGuard::give_up(SizeClass& c) {
  if (!raised_by_operators()) return false;
  c.why = "not timed: " + take_exception();
  c.record.settle(Form::Compiled);
  return true;
}

bool SpeedGuard::sample(SizeClass& c, TwoForms& forms, size_t m) {
  Timing timing;
  double began = twice_->clock();
  if (!make_calls()) return true;
  size_t runs = c.record.runs_in_a_row(), rounds = c.record.rounds();
  auto time = [&](bool by_calls, size_t times, double* least) {
    double start = twice_->clock();
    for (size_t i = 0; i < times; ++i) {
      Registers outputs(m);
      if (!(by_calls ? forms.calls(calls_.get(), outputs.get()) : forms.compiled(outputs.get()))) return false;
    }
    *least = std::min(*least, (twice_->clock() - start) / static_cast<double>(times));
    return true;
  };
  double compiled = 1e30, calls = 1e30, unused = 0;
  // The first run of PyTorch's operators makes what they keep.
  bool ok = c.record.samples() || time(true, 1, &unused);
  for (size_t r = 0; ok && r < rounds; ++r) ok = time(false, runs, &compiled) && time(true, runs, &calls);
  if (!ok) return give_up(c);
  if (overlapped_) {
    c.record.put_off();
    return true;
  }
  c.record.sampled(compiled, calls, twice_->clock() - began);
  if (c.record.form() != Form::Open) decided(c);
  return true;
}

void SpeedGuard::decided(SizeClass& c) {
  const SpeedRecord& r = c.record;
  std::string compiled = duration(r.compiled_seconds()), calls = duration(r.calls_seconds());
  if (r.form() == Form::Calls) {
    c.why = "slower than PyTorch's calls: " + compiled + " compiled, " + calls + " by PyTorch's calls, in " +
            std::to_string(r.samples()) + " samples";
    say_uncompiled(at_, c.why);
  } else {
    c.why = compiled + " compiled, " + calls + " by PyTorch's calls, in " + std::to_string(r.samples()) + " samples";
  }
  tell(Topic::Autotune, place_ + ": " + c.why);
  // Without open sizes the other form is not asked for again.
  if (r.form() == Form::Compiled && !num_symbols_) calls_ = Ref(), torch_calls_ = nullptr;
}

std::vector<SpeedReport> SpeedGuard::reports() const {
  std::vector<SpeedReport> out;
  if (!times()) out.push_back({place_, {}, Form::Compiled, 0, 0, 0, 0, "not timed: " + why_not_});
  for (const auto& c : classes_) {
    if (!times()) break;
    const SpeedRecord& r = c->record;
    out.push_back(
        {place_, c->sizes, r.form(), r.compiled_seconds(), r.calls_seconds(), r.calls(), r.samples(), c->why});
  }
  return out;
}

int SpeedGuard::traverse(visitproc visit, void* arg) const {
  Py_VISIT(calls_.get());
  return 0;
}

}  // namespace braze::capture
