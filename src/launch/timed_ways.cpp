#include "launch/timed_ways.h"

#include <ATen/Parallel.h>
#include <torch/version.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <stdexcept>

#include "base/build_id.h"
#include "base/log_topics.h"
#include "codegen/codegen.h"

namespace braze::launch {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kRuns = 10;  // of a way, about, until it is judged
constexpr int kFewTurns = 3;  // of ways that take so long that there is no time for more

double seconds_since(Clock::time_point began) { return std::chrono::duration<double>(Clock::now() - began).count(); }

// Memory of twice the last cache, which is written over.
class Evictor {
 public:
  void operator()() {
    if (memory_.empty()) memory_.resize(2 * static_cast<size_t>(codegen::cpu_target().cache_bytes));
    std::fill(memory_.begin(), memory_.end(), static_cast<char>(++turn_));
  }

 private:
  std::vector<char> memory_;
  int turn_ = 0;
};

}  // namespace

std::shared_ptr<TuningTime> tuning_time(const plan::Plan& plan) {
  if (plan.tuning_seconds <= 0) return nullptr;
  auto time = std::make_shared<TuningTime>();
  time->seconds = static_cast<double>(plan.tuning_seconds) / 2;  // the other half is for nests (driver/tune_nests.h)
  return time;
}

TimedWays::~TimedWays() {
  for (const Entry* e = entries_.load(); e;) {
    const Entry* next = e->next;
    delete e;
    e = next;
  }
}

int TimedWays::known(std::span<const int64_t> shape) const {
  for (const Entry* e = entries_.load(std::memory_order_acquire); e; e = e->next)
    if (std::equal(shape.begin(), shape.end(), e->shape.begin(), e->shape.end())) return static_cast<int>(e->way);
  return -1;
}

size_t TimedWays::keep(std::span<const int64_t> shape, size_t way) {
  entries_.store(new Entry{{shape.begin(), shape.end()}, way, entries_.load()}, std::memory_order_release);
  return way;
}

std::string TimedWays::key_of(std::span<const int64_t> shape, const TimedCall& call,
                              std::span<const char* const> names) const {
  std::string key = build_id() + "\ntorch " TORCH_VERSION "\n" + codegen::cpu_target().text() + "\nthreads " +
                    std::to_string(at::get_num_threads()) + "\n" + call.what;
  for (int64_t n : shape) key += " " + std::to_string(n);
  for (const char* name : names) key += std::string("\n") + name;
  if (codegen::prefers_kernels()) key += "\npreferred " + codegen::preferred_name();
  return call.more.empty() ? key : key + "\n" + call.more;
}

int TimedWays::recall(std::span<const int64_t> shape, const TimedCall& call, std::span<const char* const> names) {
  const auto name = codegen::kept_choices(on_disk_).recall(key_of(shape, call, names));
  if (!name) return -1;
  codegen::report({call.kind, call.what, *name, {}, 0});
  tell(Topic::Autotune, call.what + ": " + *name + ", as is known");
  const auto at = std::find_if(names.begin(), names.end(), [&](const char* n) { return *name == n; });
  return static_cast<int>(keep(shape, at == names.end() ? 0 : static_cast<size_t>(at - names.begin())));
}

size_t TimedWays::choose(std::span<const int64_t> shape, const TimedCall& call, std::span<const CallWay> ways) {
  // Not waited for: it may have been another thread's when this process was forked.
  std::unique_lock lock(choosing_, std::try_to_lock);
  if (!lock) return 0;
  if (int way = known(shape); way >= 0) return static_cast<size_t>(way);
  std::vector<const char*> names;
  for (const CallWay& w : ways) names.push_back(w.name);
  if (int way = recall(shape, call, names); way >= 0) return static_cast<size_t>(way);
  const auto began = Clock::now();
  Evictor evict;
  auto run = [&](size_t way) {
    if (call.cold) evict();
    const auto start = Clock::now();
    if (!ways[way].run()) throw std::runtime_error("does not fit");
    return 1e3 * seconds_since(start);
  };
  run(0);
  const double once = run(0);
  const double round = seconds_since(began) / 2 * static_cast<double>(ways.size());
  if (round * (kFewTurns + 1) > time_->seconds) return keep(shape, 0);
  // A pool of threads that has gone to sleep is not what is timed.
  const int times = static_cast<int>(std::clamp(0.05 / std::max(once, 1e-6), 1.0, 100.0));
  codegen::Timing timing = codegen::time_ways(
      ways.size(),
      [&](size_t way) {
        double least = run(way);
        for (int i = 1; i < times; ++i) least = std::min(least, run(way));
        return least;
      },
      round * kRuns > time_->seconds ? kFewTurns : codegen::kMostTurns);
  size_t chosen = timing.chosen;
  if (codegen::prefers_kernels())
    for (size_t w = 0; w < ways.size(); ++w)
      if (ways[w].name == codegen::preferred_name()) chosen = w;
  codegen::Report report{call.kind, call.what, ways[chosen].name, {}, seconds_since(began)};
  std::string line = call.what + ": " + ways[chosen].name + " of";
  for (size_t w = 0; w < ways.size(); ++w) {
    const double ms = timing.milliseconds[w];
    char number[32];
    std::snprintf(number, sizeof number, " %.4f ms", ms);
    line += std::string(" [") + ways[w].name + (ms < 0 ? " slow or unfit" : number) + "]";
    report.ways.emplace_back(ways[w].name, ms);
  }
  tell(Topic::Autotune, line);
  codegen::report(std::move(report));
  codegen::kept_choices(on_disk_).keep(key_of(shape, call, names), ways[chosen].name, !codegen::prefers_kernels());
  time_->seconds = time_->seconds - seconds_since(began);
  return keep(shape, chosen);
}

}  // namespace braze::launch
