// Calls on a CPU that several ways can carry out (options.autotune_seconds): which of them is the fastest is found out
// by timing when operands of new sizes come, on these operands, and kept in this process and on disk.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "runtime/program.h"

namespace braze::launch {

// What a graph may still spend on timing; nullptr of a plan that asks for none.
struct TuningTime {
  std::atomic<double> seconds{0};
};
std::shared_ptr<TuningTime> tuning_time(const plan::Plan& plan);

// A way by which a call may be carried out; one that the operands do not fit returns false, and has done nothing.
struct CallWay {
  const char* name;
  std::function<bool()> run;
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
  // graph without time left gets way 0, as does a call that comes while another one's are timed. `what`: the call, for
  // people and for what is kept. `cold`: the caches are emptied before each run, as they are where a call's operands
  // are many others' too.
  size_t choose(std::span<const int64_t> shape, const std::string& what, std::span<const CallWay> ways, bool cold);

 private:
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
