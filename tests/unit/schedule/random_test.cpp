// Scheduled programs mean what they meant: the interpreter decides, on random programs. BRAZE_SEED=n runs one seed,
// BRAZE_SEEDS=n the first n.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "generate.h"
#include "schedule/memory.h"
#include "schedule/schedule.h"

namespace braze::schedule {
namespace {

using namespace loop;

bool close(const HostTensor& a, const HostTensor& b, std::string& why) {
  if (a.sizes != b.sizes || a.dtype != b.dtype || a.storage.size() != b.storage.size()) {
    why = "shape or dtype differs";
    return false;
  }
  auto n = static_cast<int64_t>(a.storage.size()) / std::max(1, size_of(a.dtype));
  double tolerance = a.dtype == DType::BF16 ? 2e-2 : 2e-4;
  for (int64_t i = 0; i < n; ++i) {
    double x = get_number(a, i), y = get_number(b, i);
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    if (std::fabs(x - y) <= tolerance * (1 + std::fabs(x))) continue;
    why = "element " + std::to_string(i) + ": " + std::to_string(x) + " became " + std::to_string(y);
    return false;
  }
  return true;
}

size_t nest_count(const Program& p) {
  size_t n = 0;
  for (const Item& i : p.items) n += std::holds_alternative<Nest>(i);
  return n;
}

bool check(uint64_t seed, size_t& before, size_t& after) {
  auto g = testing::generate(seed);
  std::string text = print(g.program);
  std::string scheduled = "(not scheduled)";
  try {
    verify(g.program);
    auto in = g.inputs;
    auto want = run(g.program, in, testing::run_extern);
    Program p = schedule(g.program, {}, {});
    before += nest_count(g.program);
    after += nest_count(p);
    scheduled = print(p);
    verify(p);
    // The order of a sum's terms follows the symbols' creation: the same characters are enough.
    std::string again = print(parse(scheduled)), same = scheduled;
    std::sort(again.begin(), again.end());
    std::sort(same.begin(), same.end());
    if (again != same) throw std::runtime_error("the scheduled program's text does not round-trip");
    in = g.inputs;
    auto got = run(p, in, testing::run_extern);
    MemoryPlan plan = plan_memory(p);
    Arena arena;
    arena.bytes = plan.arena_bytes;
    arena.reverse = true;
    for (const Placement& x : plan.buffers)
      arena.offsets.push_back(x.kind == Placement::Kind::Arena ? std::optional(x.offset) : std::nullopt);
    in = g.inputs;
    auto planned = run(p, in, testing::run_extern, &arena);
    for (size_t i = 0; i < want.size(); ++i) {
      std::string why;
      if (!close(want[i], got[i], why)) throw std::runtime_error("output " + std::to_string(i) + ": " + why);
      if (!close(got[i], planned[i], why))
        throw std::runtime_error("memory plan, output " + std::to_string(i) + ": " + why);
    }
  } catch (const std::exception& e) {
    ADD_FAILURE() << "seed " << seed << ": " << e.what() << "\n" << text << "\nscheduled:\n" << scheduled;
    return false;
  }
  return true;
}

TEST(ScheduleRandom, KeepsMeaning) {
  size_t before = 0, after = 0;
  if (const char* one = std::getenv("BRAZE_SEED")) {
    check(std::strtoull(one, nullptr, 10), before, after);
    std::printf("%s\n", print(schedule(testing::generate(std::strtoull(one, nullptr, 10)).program, {}, {})).c_str());
    return;
  }
  const char* many = std::getenv("BRAZE_SEEDS");
  uint64_t n = many ? std::strtoull(many, nullptr, 10) : 2000;
  for (uint64_t seed = 0; seed < n; ++seed)
    if (!check(seed, before, after)) break;
  EXPECT_LT(after, before);
  std::printf("%zu nests became %zu\n", before, after);
}

}  // namespace
}  // namespace braze::schedule
