// Wall-clock seconds of named stages, gathered as a value and shown by braze.explain.
#pragma once
#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace braze {

struct Timings {
  std::vector<std::pair<std::string, double>> stages;  // name, seconds
};

class StageTimer {
 public:
  StageTimer(Timings& into, std::string name)
      : into_(into), name_(std::move(name)), start_(std::chrono::steady_clock::now()) {}
  ~StageTimer() {
    std::chrono::duration<double> d = std::chrono::steady_clock::now() - start_;
    into_.stages.emplace_back(std::move(name_), d.count());
  }
  StageTimer(const StageTimer&) = delete;
  StageTimer& operator=(const StageTimer&) = delete;

 private:
  Timings& into_;
  std::string name_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace braze
