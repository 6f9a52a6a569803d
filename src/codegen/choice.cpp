#include "codegen/choice.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>
#include <unordered_map>

#include "base/build_id.h"
#include "base/fork_mutex.h"
#include "codegen/distinct_kernels.h"

namespace braze::codegen {
namespace {

constexpr double kHopeless = 1.25;  // times the fastest so far: not timed again
constexpr double kLong = 2;         // milliseconds, from which on kTurnsOfLong say enough
constexpr int kTurnsOfLong = 5;

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<ptrdiff_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

struct Shared {
  ForkMutex mutex;
  std::unordered_map<std::string, std::string> choices;
  std::vector<Report> reports;
  std::string preferred;
};
Shared& shared() {
  static auto* s = new Shared;
  return *s;
}

std::atomic<bool> g_prefers_kernels = false;

std::string file_of(const std::string& key) { return symbol_of("choice", key); }

}  // namespace

Timing time_ways(size_t ways, const std::function<double(size_t)>& milliseconds, int turns) {
  std::vector<std::vector<double>> times(ways);
  std::vector<bool> out(ways, false);
  auto once = [&](size_t w) {
    if (w == 0) return milliseconds(w);
    try {
      return milliseconds(w);
    } catch (const std::exception&) {
      out[w] = true;
      return -1.0;
    }
  };
  for (size_t w = 0; w < ways; ++w) once(w);  // what is done at a first run is done then
  for (int turn = 0; turn < turns; ++turn) {
    for (size_t w = 0; w < ways; ++w)
      if (!out[w])
        if (double t = once(w); !out[w]) times[w].push_back(t);
    double best = prefers_kernels() ? INFINITY : median(times[0]);
    for (size_t w = 1; w < ways; ++w)
      if (!out[w]) best = std::min(best, median(times[w]));
    if (best > kLong) turns = std::min(turns, kTurnsOfLong);
    for (size_t w = 1; w < ways; ++w)
      if (!out[w] && turn > 0 && median(times[w]) > kHopeless * best) out[w] = true;
  }
  Timing made;
  for (size_t w = 0; w < ways; ++w) made.milliseconds.push_back(out[w] ? -1 : median(times[w]));
  for (size_t w = 1; w < ways; ++w) {
    if (prefers_kernels() && made.chosen == 0 && !out[w]) made.chosen = w;
    double bar = made.chosen == 0 ? made.milliseconds[0] * (1 - kMargin) : made.milliseconds[made.chosen];
    if (!out[w] && made.milliseconds[w] < bar) made.chosen = w;
  }
  return made;
}

void prefer_kernels(bool on, const std::string& name) {
  std::lock_guard lock(shared().mutex);
  shared().preferred = name;
  g_prefers_kernels = on;
}
bool prefers_kernels() { return g_prefers_kernels; }
std::string preferred_name() {
  std::lock_guard lock(shared().mutex);
  return shared().preferred;
}

std::optional<std::string> Choices::recall(const std::string& key) const {
  {
    std::lock_guard lock(shared().mutex);
    if (auto it = shared().choices.find(key); it != shared().choices.end()) return it->second;
  }
  return disk_ ? disk_->find(file_of(key), key) : std::nullopt;
}

void Choices::keep(const std::string& key, const std::string& way, bool lasting) {
  {
    std::lock_guard lock(shared().mutex);
    shared().choices[key] = way;
  }
  if (lasting && disk_) disk_->keep(file_of(key), key, way);
}

Choices& kept_choices(bool on_disk) {
  static auto* lasting = new Choices(build_id().empty() ? std::nullopt : std::optional(DiskCache()));
  static auto* passing = new Choices(std::nullopt);
  return on_disk ? *lasting : *passing;
}

const char* name_of(Report::Kind kind) {
  constexpr const char* kNames[] = {"product", "loops", "convolution", "layout"};
  return kNames[static_cast<int>(kind)];
}

void report(Report r) {
  std::lock_guard lock(shared().mutex);
  shared().reports.push_back(std::move(r));
}

std::vector<Report> reports() {
  std::lock_guard lock(shared().mutex);
  return shared().reports;
}

}  // namespace braze::codegen
