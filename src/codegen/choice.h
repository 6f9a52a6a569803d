// Which of several ways to compute the same is the fastest: found out by timing, and kept.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "codegen/disk_cache.h"

namespace braze::codegen {

struct Timing {
  size_t chosen = 0;                 // way 0 is the library's
  std::vector<double> milliseconds;  // per way; negative: it failed, or was soon seen to be slow and left at that
};

// `milliseconds(way)` runs a way once; what it throws (std::exception) drops the way, but for way 0. The ways take
// turns, so that a machine that grows slow as it heats does so for all. Another way than 0 has to be faster by kMargin.
// At most `turns`, an odd number; ways that take milliseconds get fewer.
inline constexpr double kMargin = 0.03;
inline constexpr int kMostTurns = 7;
Timing time_ways(size_t ways, const std::function<double(size_t)>& milliseconds, int turns = kMostTurns);

// For tests: way 0 is chosen only where no other works; of a call on a CPU the way of that name, where it works. Such
// choices are made anew, and not kept on disk.
void prefer_kernels(bool on, const std::string& name = {});
bool prefers_kernels();
std::string preferred_name();

// Choices by what was chosen for: in this process, and on disk (nullopt: not there). Thread-safe.
class Choices {
 public:
  explicit Choices(std::optional<DiskCache> disk) : disk_(std::move(disk)) {}
  // The name of the way; nullopt: nothing is known.
  std::optional<std::string> recall(const std::string& key) const;
  // `lasting`: on disk, too.
  void keep(const std::string& key, const std::string& way, bool lasting);

 private:
  std::optional<DiskCache> disk_;
};

// Those of this process, or of the disk, too (`on_disk`).
Choices& kept_choices(bool on_disk);

// The choices of this process so far, as graphs were made or first called: for people.
struct Report {
  enum class Kind : uint8_t { Product, Loops, Convolution, Layout } kind = Kind::Product;
  std::string what;                                  // the call, the nest, or the graph
  std::string chosen;                                // the way's name
  std::vector<std::pair<std::string, double>> ways;  // and their milliseconds; none: the choice was known before
  double seconds = 0;                                // of the search
};
void report(Report r);
std::vector<Report> reports();
// "product", "loops", "convolution", "layout".
const char* name_of(Report::Kind kind);

}  // namespace braze::codegen
