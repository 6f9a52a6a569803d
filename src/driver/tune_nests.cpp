#include "driver/tune_nests.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>

#include "base/build_id.h"
#include "base/check.h"
#include "base/log_topics.h"
#include "codegen/choice.h"
#include "codegen/codegen.h"
#include "codegen/signature.h"
#include "loop/analysis.h"
#include "runtime/pool.h"
#include "runtime/program.h"
#include "schedule/index.h"
#include "schedule/mapping.h"

namespace braze::driver {
namespace {

using Clock = std::chrono::steady_clock;
using loop::Mapping;
using loop::Nest;

constexpr int64_t kMostBytes = int64_t{1} << 30;  // of the memory that a nest is tried on
constexpr double kSample = 50e-6;                 // seconds that are measured at once, at least
constexpr double kRuns = 10;                      // of a way, about, until it is judged

double seconds_since(Clock::time_point began) { return std::chrono::duration<double>(Clock::now() - began).count(); }

std::string text_of(const Mapping& m) {
  constexpr const char* kVectors[] = {"no vector", "vector outer", "vector inner"};
  return kVectors[static_cast<int>(m.vector)] + std::string(m.tile ? ", tiles of " + std::to_string(m.tile) : "") +
         ", grain " + std::to_string(m.grain);
}

std::string text_of(const loop::Program& p, const Nest& n) {
  auto list = [&](const std::vector<loop::Axis>& axes) {
    std::string out;
    for (const loop::Axis& a : axes) out += (out.empty() ? "" : "x") + p.arena->print(a.extent);
    return out.empty() ? "1" : out;
  };
  std::string out = n.name + " " + list(n.outer);
  for (const loop::Stage& s : n.stages)
    if (!s.axes.empty()) out += " of " + list(s.axes);
  return out;
}

// The bytes up to the last element that each buffer is touched at; nullopt: data says where, or a size is not known.
std::optional<std::map<uint32_t, int64_t>> reaches(const loop::Program& p, const Nest& n) {
  std::map<uint32_t, int64_t> out;
  for (const loop::Stage& s : n.stages)
    for (const loop::LoopOp& op : s.ops)
      if (op.code == loop::OpCode::Indirect || op.atomic_add) return std::nullopt;
  int64_t all = 0;
  for (const loop::Access& a : loop::accesses(n)) {
    const loop::Buffer& b = p.buffers[a.buffer];
    if (b.kind == loop::BufferKind::Local) continue;
    sym::Range r = p.arena->range(a.index);
    if (r.lo < 0 || r.hi >= kMostBytes) return std::nullopt;
    int64_t& most = out[a.buffer.index];
    most = std::max(most, (r.hi + 1) * size_of(b.dtype));
  }
  for (auto& [buffer, bytes] : out) all += bytes;
  if (all > kMostBytes) return std::nullopt;
  return out;
}

// One memory for all nests, a buffer after the other: from where results of a graph lie, too.
class Memory {
 public:
  std::vector<void*> pointers(const loop::Program& p, const std::vector<loop::BufferId>& buffers,
                              const std::map<uint32_t, int64_t>& bytes) {
    constexpr int64_t kLine = 64;
    int64_t need = 0;
    std::vector<int64_t> at;
    for (loop::BufferId b : buffers) {
      auto it = bytes.find(b.index);
      at.push_back(need);
      need += ((it == bytes.end() ? 0 : it->second) / kLine + 2) * kLine;
    }
    if (need > size_) {
      memory_.reset();
      memory_.reset(static_cast<std::byte*>(runtime::pool_allocate(static_cast<size_t>(need))));
      size_ = need;
    }
    std::vector<void*> out;
    for (size_t i = 0; i < buffers.size(); ++i) {
      std::byte* start = memory_.get() + at[i];
      fill(start, (i + 1 < at.size() ? at[i + 1] : need) - at[i], p.buffers[buffers[i]].dtype);
      out.push_back(start);
    }
    return out;
  }

 private:
  // Ones: no function is slow there, and no division a fault.
  static void fill(std::byte* at, int64_t bytes, DType dtype) {
    auto with = [&](auto one) {
      auto* first = reinterpret_cast<decltype(one)*>(at);
      std::fill(first, first + bytes / static_cast<int64_t>(sizeof one), one);
    };
    switch (dtype) {
      case DType::F32: return with(1.0f);
      case DType::F64: return with(1.0);
      case DType::F16: return with(uint16_t{0x3c00});
      case DType::BF16: return with(uint16_t{0x3f80});
      default: break;
    }
    switch (size_of(dtype)) {
      case 1: return with(uint8_t{1});
      case 2: return with(uint16_t{1});
      case 4: return with(uint32_t{1});
      default: return with(uint64_t{1});
    }
  }

  struct Free {
    void operator()(std::byte* p) const { runtime::pool_free(p); }
  };
  std::unique_ptr<std::byte[], Free> memory_;
  int64_t size_ = 0;
};

// Equal nests of a program, and the ways to run them: the first is theirs.
struct Group {
  std::vector<Nest*> nests;
  std::string key;
  std::vector<Nest> ways;
  std::map<uint32_t, int64_t> bytes;
  double work = 0;
};

class Tuner {
 public:
  Tuner(loop::Program& program, const Options& options, const Targets& targets)
      : program_(program),
        options_(options),
        targets_(targets),
        generator_(codegen::cpu_generator(targets.cpu)),
        choices_(codegen::kept_choices(options.disk_cache)),
        threads_(codegen::threads()) {
    options_.disk_cache = false;  // ways that are not taken need not be kept
  }

  bool run() {
    const auto began = Clock::now();
    std::vector<Group> groups = unknown();
    if (groups.empty()) return true;
    std::stable_sort(groups.begin(), groups.end(), [](const Group& a, const Group& b) { return a.work > b.work; });
    const double seconds = static_cast<double>(options_.autotune_seconds) / 2;
    bool complete = true;
    for (Group& g : groups) complete = time(g, seconds - seconds_since(began)) && complete;
    return complete;
  }

 private:
  // Groups of which no choice is known; the others take theirs.
  std::vector<Group> unknown() {
    std::map<std::string, Group> groups;
    for (loop::Item& item : program_.items) {
      auto* n = std::get_if<Nest>(&item);
      if (!n || schedule::target_of(targets_, program_, *n).is_gpu() || !loop::device_of(program_, *n)) continue;
      Nest as_is = *n;
      as_is.mapping = {};
      codegen::Signature s = codegen::signature_of(program_, as_is);
      if (!s.sizes.empty()) continue;
      std::string key = build_id() + "\n" + generator_.fingerprint() + "\nthreads " + std::to_string(threads_) + "\n" +
                        text_of(n->mapping) + "\n" + s.key;
      if (codegen::prefers_kernels()) key += "\npreferred";
      groups[key].nests.push_back(n);
    }
    std::vector<Group> out;
    for (auto& [key, g] : groups) {
      g.key = key;
      Nest& first = *g.nests.front();
      g.ways.push_back(first);
      for (const Mapping& m : schedule::other_mappings(program_, first, threads_)) {
        g.ways.push_back(first);
        g.ways.back().mapping = m;
      }
      if (g.ways.size() == 1) continue;
      if (auto known = choices_.recall(key)) {
        for (const Nest& way : g.ways)
          if (text_of(way.mapping) == *known) take(g, way.mapping);
        tell(Topic::Autotune, text_of(program_, first) + ": " + *known + ", as is known");
        codegen::report({codegen::Report::Kind::Loops, text_of(program_, first), *known, {}, 0});
        continue;
      }
      auto bytes = reaches(program_, first);
      if (!bytes) continue;
      g.bytes = std::move(*bytes);
      sym::Expr work = program_.arena->mul(schedule::point_work(*program_.arena, first),
                                           schedule::volume(*program_.arena, first.outer));
      g.work = static_cast<double>(schedule::estimate(*program_.arena, work)) * static_cast<double>(g.nests.size());
      out.push_back(std::move(g));
    }
    return out;
  }

  static void take(Group& g, const Mapping& m) {
    for (Nest* n : g.nests) n->mapping = m;
  }

  // False: `seconds` do not suffice.
  bool time(Group& g, double seconds) {
    if (seconds <= 0) return false;
    const auto began = Clock::now();
    std::vector<const Nest*> ways;
    for (const Nest& w : g.ways) ways.push_back(&w);
    codegen::Compiled made = generator_.compile(program_, codegen::one_by_one(ways), options_);
    std::vector<runtime::KernelFn> kernels;
    for (const codegen::CompiledKernel& k : made.kernels)
      kernels.push_back(
          reinterpret_cast<runtime::KernelFn>(codegen::cpu_loader().load(made.blobs[k.blob], {k.symbol})[0]));
    const codegen::Launch& launch = made.launches.front();
    std::vector<void*> pointers = memory_.pointers(program_, launch.buffers, g.bytes);
    auto run = [&](size_t way, int times) {
      const auto start = Clock::now();
      for (int i = 0; i < times; ++i) kernels[made.launches[way].kernel](pointers.data(), nullptr);
      return seconds_since(start) / times;
    };
    run(0, 1);
    const double once = run(0, 1);
    if (once * kRuns * static_cast<double>(ways.size()) > seconds) return false;
    const int times = static_cast<int>(std::clamp(kSample / std::max(once, 1e-9), 1.0, 1000.0));
    codegen::Timing timing = codegen::time_ways(ways.size(), [&](size_t way) { return 1e3 * run(way, times); });
    // Of ones no kernel finds anything wrong, but a check of the program's own may.
    codegen::take_fault();

    codegen::Report report{codegen::Report::Kind::Loops, text_of(program_, *ways[0]), {}, {}, seconds_since(began)};
    for (size_t w = 0; w < ways.size(); ++w)
      report.ways.emplace_back(text_of(ways[w]->mapping), timing.milliseconds[w]);
    report.chosen = report.ways[timing.chosen].first;
    if (logs(Topic::Autotune)) {
      std::string line = report.what + ": " + report.chosen + " of";
      for (const auto& [name, ms] : report.ways) {
        char number[32];
        std::snprintf(number, sizeof number, " %.5f ms", ms);
        line += " [" + name + (ms < 0 ? " slow" : number) + "]";
      }
      tell(Topic::Autotune, line);
    }
    choices_.keep(g.key, report.chosen, !codegen::prefers_kernels());
    codegen::report(std::move(report));
    take(g, ways[timing.chosen]->mapping);
    return true;
  }

  loop::Program& program_;
  Options options_;
  const Targets& targets_;
  codegen::CodeGenerator& generator_;
  codegen::Choices& choices_;
  const int threads_;
  Memory memory_;
};

}  // namespace

bool tune_nests(loop::Program& program, const Options& options, const Targets& targets) {
  // Not under a fault that is yet to be told; and the C++ target takes a second for each way.
  if (!targets.cpu.host || options.codegen == Codegen::Cpp || !options.vectors || codegen::found_fault()) return true;
  return Tuner(program, options, targets).run() && !codegen::prefers_kernels();
}

}  // namespace braze::driver
