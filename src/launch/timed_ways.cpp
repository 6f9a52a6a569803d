#include "launch/timed_ways.h"

#include <ATen/Parallel.h>
#include <torch/version.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <stdexcept>

#include "base/build_id.h"
#include "base/log_topics.h"
#include "codegen/choice.h"
#include "codegen/codegen.h"

namespace braze::launch {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kRuns = 10;  // of a way, about, until it is judged

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

size_t TimedWays::choose(std::span<const int64_t> shape, const std::string& what, std::span<const CallWay> ways,
                         bool cold) {
  // Not waited for: it may have been another thread's when this process was forked.
  std::unique_lock lock(choosing_, std::try_to_lock);
  if (!lock) return 0;
  if (int way = known(shape); way >= 0) return static_cast<size_t>(way);
  size_t chosen = 0;
  auto keep = [&] {
    entries_.store(new Entry{{shape.begin(), shape.end()}, chosen, entries_.load()}, std::memory_order_release);
    return chosen;
  };
  std::string key = build_id() + "\ntorch " TORCH_VERSION "\n" + codegen::cpu_target().text() + "\nthreads " +
                    std::to_string(at::get_num_threads()) + "\n" + what;
  for (int64_t n : shape) key += " " + std::to_string(n);
  for (const CallWay& w : ways) key += std::string("\n") + w.name;
  if (codegen::prefers_kernels()) key += "\npreferred " + codegen::preferred_name();
  codegen::Choices& choices = codegen::kept_choices(on_disk_);
  if (auto name = choices.recall(key)) {
    for (size_t w = 0; w < ways.size(); ++w)
      if (ways[w].name == *name) chosen = w;
    codegen::report({codegen::Report::Kind::Product, what, *name, {}, 0});
    tell(Topic::Autotune, what + ": " + *name + ", as is known");
    return keep();
  }
  const auto began = Clock::now();
  Evictor evict;
  auto run = [&](size_t way) {
    if (cold) evict();
    const auto start = Clock::now();
    if (!ways[way].run()) throw std::runtime_error("does not fit");
    return 1e3 * seconds_since(start);
  };
  run(0);
  const double once = run(0);
  if (seconds_since(began) / 2 * kRuns * static_cast<double>(ways.size()) > time_->seconds) return keep();
  // A pool of threads that has gone to sleep is not what is timed.
  const int times = static_cast<int>(std::clamp(0.05 / std::max(once, 1e-6), 1.0, 100.0));
  codegen::Timing timing = codegen::time_ways(ways.size(), [&](size_t way) {
    double least = run(way);
    for (int i = 1; i < times; ++i) least = std::min(least, run(way));
    return least;
  });
  chosen = timing.chosen;
  if (codegen::prefers_kernels())
    for (size_t w = 0; w < ways.size(); ++w)
      if (ways[w].name == codegen::preferred_name()) chosen = w;
  codegen::Report report{codegen::Report::Kind::Product, what, ways[chosen].name, {}, seconds_since(began)};
  std::string line = what + ": " + ways[chosen].name + " of";
  for (size_t w = 0; w < ways.size(); ++w) {
    const double ms = timing.milliseconds[w];
    char number[32];
    std::snprintf(number, sizeof number, " %.4f ms", ms);
    line += std::string(" [") + ways[w].name + (ms < 0 ? " slow or unfit" : number) + "]";
    report.ways.emplace_back(ways[w].name, ms);
  }
  tell(Topic::Autotune, line);
  codegen::report(std::move(report));
  choices.keep(key, ways[chosen].name, !codegen::prefers_kernels());
  time_->seconds = time_->seconds - seconds_since(began);
  return keep();
}

}  // namespace braze::launch
