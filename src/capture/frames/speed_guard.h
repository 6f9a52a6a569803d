// options={"guard_speed": True}: an entry whose graph is slower compiled than as PyTorch's calls runs as those.
//
// Both forms are timed on inputs of the program's own calls, by turns, before the call itself is made; what they give
// is thrown away. base/speed_record.h says when, how often at most, and what decides; one record for each class of
// sizes (the powers of two that the graph's size symbols lie between).
//  - Timed are only graphs of which a further run leaves no trace (launch/run_twice.h), whose results have no history,
//    which call no function of the program's, and whose results take kMostBytes at most.
//  - Timed is only where nobody else is in the entry and nothing else is timed in the process, and where no debugger,
//    profiler or recording of a CUDA Graph is at work. A timing that another thread's call of the entry overlapped does
//    not count.
//  - Exceptions that PyTorch's operators raise in a timing end the timing for good; others (Ctrl-C) are the program's.
// Needs the GIL, which the runs give up.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "base/speed_record.h"
#include "capture/cpython/ref.h"
#include "launch/run_twice.h"
#include "trace/trace.h"

namespace braze::capture {

// The forms of one call. outputs: new references; false: a Python exception is set.
class TwoForms {
 public:
  virtual ~TwoForms() = default;
  virtual bool compiled(PyObject** outputs) = 0;
  virtual bool calls(PyObject* callable, PyObject** outputs) = 0;
};

// What is known of one class of sizes.
struct SpeedReport {
  std::string place;           // where the region begins, and its first and last functions
  std::vector<int64_t> sizes;  // values of the graph's size symbols at the class's first call
  SpeedRecord::Form form = SpeedRecord::Form::Open;
  double compiled = 0, calls = 0;  // seconds of a run; 0: not known
  uint64_t num_calls = 0;
  int samples = 0;
  std::string why;  // why that form, or why nothing is timed
};

class SpeedGuard {
 public:
  static constexpr int64_t kMostBytes = int64_t{256} << 20, kMostBytesOfGpu = int64_t{1} << 30;
  static constexpr size_t kMostClasses = 16;

  // Before the graph is compiled. `untimed`: why this graph may not be timed at all, if so.
  SpeedGuard(const graph::Graph& captured, const UserLine& at, size_t num_symbols, std::string untimed);
  ~SpeedGuard();
  SpeedGuard(const SpeedGuard&) = delete;
  bool times() const { return why_not_.empty(); }
  // Once, where times(): what the calls are made of.
  void keep(std::unique_ptr<trace::TorchCalls> calls);

  // One call of the program's. inputs: of the graph, without constants.
  bool run(TwoForms& forms, PyObject* const* inputs, size_t n, const int64_t* symbols, PyObject** outputs, size_t m);
  std::vector<SpeedReport> reports() const;
  int traverse(visitproc visit, void* arg) const;

 private:
  struct SizeClass {
    std::vector<uint8_t> key;
    std::vector<int64_t> sizes;
    SpeedRecord record;
    std::string why;
  };
  class Use;
  class Timing;

  SizeClass* of(const int64_t* symbols);
  bool suits(PyObject* const* inputs, size_t n) const;
  // False: an exception is set that is the program's.
  bool probe(SizeClass& c, TwoForms& forms, PyObject** outputs);
  bool sample(SizeClass& c, TwoForms& forms, size_t m);
  bool make_calls();
  void decided(SizeClass& c);
  bool give_up(SizeClass& c);

  UserLine at_;
  std::string place_;
  size_t num_symbols_;
  std::string why_not_;
  std::unique_ptr<launch::RunTwice> twice_;          // where times()
  std::vector<std::unique_ptr<SizeClass>> classes_;  // calls that overlap may add some
  std::unique_ptr<trace::TorchCalls> torch_calls_;   // until calls_ is made
  Ref calls_;
  int running_ = 0;
  bool overlapped_ = false;  // since a timing began
};

}  // namespace braze::capture
