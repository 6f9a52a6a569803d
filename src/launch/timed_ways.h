// Calls on a CPU, of an operator or of a whole graph, that several ways can carry out (options.autotune_seconds): which
// of them is the fastest is found out by timing when operands of new sizes come, on these operands, and kept in this
// process and on disk.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "codegen/choice.h"
#include "runtime/program.h"

namespace braze::launch {

// What a graph may still spend on timing.
struct TuningTime {
  std::atomic<double> seconds{0};
};
// For the calls of a plan; nullptr of one that asks for none.
std::shared_ptr<TuningTime> tuning_time(const plan::Plan& plan);

// A way by which a call may be carried out; one that the operands do not fit returns false, and has done nothing.
struct CallWay {
  const char* name;
  std::function<bool()> run;
};

struct TimedCall {
  codegen::Report::Kind kind = codegen::Report::Kind::Product;
  std::string what;   // for people
  bool cold = false;  // the caches are emptied before each run, as they are where its operands are many others' too
  std::string more;   // besides `what` and the shape: what tells it from others whose choice is kept
};

class TimedWays {
 public:
  TimedWays(std::shared_ptr<TuningTime> time, bool on_disk) : time_(std::move(time)), on_disk_(on_disk) {}
  TimedWays(const TimedWays&) = delete;
  TimedWays& operator=(const TimedWays&) = delete;
  ~TimedWays();

  // The place among `ways` of the one for calls like this one, which `shape` tells from others; -1: not known yet.
  int known(std::span<const int64_t> shape) const;
  // Finds it out, by running all of them: they write the same result, and nothing that they read. Way 0 fits always. A
  // graph without time left gets way 0, as does a call that comes while another one's are timed.
  size_t choose(std::span<const int64_t> shape, const TimedCall& call, std::span<const CallWay> ways);
  // What was chosen for such calls before, in this process or another, among ways of these names; -1: nothing.
  int recall(std::span<const int64_t> shape, const TimedCall& call, std::span<const char* const> names);

 private:
  // Remembers it, without a look at the clock.
  size_t keep(std::span<const int64_t> shape, size_t way);
  std::string key_of(std::span<const int64_t> shape, const TimedCall& call, std::span<const char* const> names) const;

  struct Entry {
    std::vector<int64_t> shape;
    size_t way = 0;
    const Entry* next = nullptr;
  };

  std::shared_ptr<TuningTime> time_;
  bool on_disk_;
  std::mutex choosing_;
  std::atomic<const Entry*> entries_{nullptr};  // only ever put in front of
};

}  // namespace braze::launch
