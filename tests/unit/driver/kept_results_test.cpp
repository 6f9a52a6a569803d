// Results on disk: what is found again, what must not be taken for it, and what damage does.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

#include "autodiff/partition.h"
#include "driver/driver.h"

namespace braze::driver {
namespace {

namespace fs = std::filesystem;

class KeptResults : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/braze_kept_XXXXXX";
    folder_ = mkdtemp(name);
    if (const char* before = std::getenv("BRAZE_CACHE_DIR")) before_ = before;
    setenv("BRAZE_CACHE_DIR", folder_.c_str(), 1);
  }
  void TearDown() override {
    before_.empty() ? unsetenv("BRAZE_CACHE_DIR") : setenv("BRAZE_CACHE_DIR", before_.c_str(), 1);
    fs::remove_all(folder_);
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> out;
    for (const auto& f : fs::directory_iterator(folder_)) out.push_back(f.path());
    return out;
  }
  std::string folder_, before_;
};

const char* const kGraph = R"(graph {
  symbol s0 size 2 1000
  loc 0 "model.py" 12 "forward" "y = x.relu"
  %0: f32[s0,32] = input argument "x"
  %1: f32[32,32] = input parameter "w"
  size s0 %0 0
  %2: f32[s0,32] = aten::mm(%0, %1)
  %3: f32[s0,32] = aten::relu(%2)  # loc 0
  %4: f32[s0,32] = aten::mul.Scalar(%3, 1.0)
  %5: f32[s0,32] = aten::add.Scalar(%4, 0.0, 1)
  return %5
  writeback %0 %3
}
)";

graph::Graph graph_with(const std::string& from = "", const std::string& to = "") {
  std::string text = kGraph;
  if (!from.empty()) {
    size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
  }
  return graph::parse(text);
}

// Without its name: what a plan does, and the code for it.
std::string contents(const Artefact& made) {
  std::string out = made.plan.describe();
  for (const std::string& blob : made.plan.blobs) out += blob;
  return out + std::to_string(made.nests) + " " + std::to_string(made.kernels) + " " + std::to_string(made.externs);
}

Artefact anew(const graph::Graph& g, Options options = {}) {
  options.disk_cache = false;
  return compile(g, options);
}

TEST_F(KeptResults, AreFoundByTheSameGraph) {
  Artefact first = compile(graph_with(), {});
  EXPECT_FALSE(first.from_disk_cache);
  graph::Graph again = graph_with();
  Artefact second = compile(again, {});
  EXPECT_TRUE(second.from_disk_cache);
  EXPECT_EQ(contents(second), contents(first));
  EXPECT_EQ(second.plan.arena, again.shared_arena());
  ASSERT_EQ(second.timings.stages.size(), 1u);
  EXPECT_EQ(second.timings.stages[0].first, "disk cache");
}

TEST_F(KeptResults, AreNotUsedWhereStagesAreAskedForOrTheCacheIsOff) {
  compile(graph_with(), {});
  Dumps dumps;
  EXPECT_FALSE(compile(graph_with(), {}, &dumps).from_disk_cache);
  EXPECT_FALSE(dumps.scheduled.empty());
  EXPECT_FALSE(anew(graph_with()).from_disk_cache);
}

TEST_F(KeptResults, OfALineThatMovedStaysGood) {
  compile(graph_with(), {});
  EXPECT_TRUE(compile(graph_with(R"("model.py" 12)", R"("other.py" 99)"), {}).from_disk_cache);
}

// Each differs from the graph in one thing that code may depend on.
TEST_F(KeptResults, AreNotTakenForThoseOfAnotherGraph) {
  compile(graph_with(), {});
  const std::pair<const char*, const char*> changes[] = {
      {"size 2 1000", "size 2 999"},                 // what a size may be
      {"size 2 1000", "size 3 1000"},                //
      {"size s0 %0 0", "given s0"},                  // where it is read
      {"mul.Scalar(%3, 1.0)", "mul.Scalar(%3, 1)"},  // an integer for a float
      {"mul.Scalar(%3, 1.0)", "mul.Scalar(%3, true)"},
      {"mul.Scalar(%3, 1.0)", "mul.Scalar(%3, 1.0000000000000002)"},
      {"add.Scalar(%4, 0.0, 1)", "add.Scalar(%4, -0.0, 1)"},
      {"add.Scalar(%4, 0.0, 1)", "add.Scalar(%4, nan, 1)"},
      {"aten::relu", "aten::neg"},
      {"input parameter", "input argument"},
      {"input parameter", "input constant"},
      {R"(parameter "w")", R"(parameter "v")"},
      {"%1: f32[32,32] =", "%1: f32[32,32]{1,32} ="},      // strides
      {"%1: f32[32,32] =", "%1: f32[32,32] offset 16 ="},  // of a view
      {"  writeback %0 %3\n", ""},
      {"writeback %0 %3", "writeback %0 %4"},
      {"return %5", "return %5, %3"},
      {"return %5", "return %5, none"},
      {"  # loc 0", " checkpoint 1 must_recompute  # loc 0"},
  };
  for (const auto& [from, to] : changes) {
    graph::Graph changed = graph_with(from, to);
    Artefact made = compile(changed, {});
    EXPECT_FALSE(made.from_disk_cache) << to;
    EXPECT_EQ(contents(made), contents(anew(graph_with(from, to)))) << to;
    EXPECT_TRUE(compile(graph_with(from, to), {}).from_disk_cache) << to;
  }
  graph::Graph large = graph_with();
  large.arena().expect(*large.arena().find_symbol("s0"), 900);  // what a size is likely to be
  EXPECT_FALSE(compile(large, {}).from_disk_cache);
}

TEST_F(KeptResults, AreOfOneSetOfOptionsAndOneUse) {
  compile(graph_with(), {});
  const std::function<void(Options&)> changes[] = {
      [](Options& o) { o.fuse = false; },
      [](Options& o) { o.fusion_score = false; },
      [](Options& o) { o.inlining = false; },
      [](Options& o) { o.reordering = false; },
      [](Options& o) { o.patterns = false; },
      [](Options& o) { o.vectors = false; },
      [](Options& o) { o.max_fusion_size = 2; },
      [](Options& o) { o.cuda_graphs = true; },
      [](Options& o) { o.autotune_seconds = 1; },
      [](Options& o) { o.guard_speed = true; },
      [](Options& o) { o.memory_budget = 0.5; },
      [](Options& o) { o.rng = Rng::Eager; },
      [](Options& o) { o.codegen = Codegen::Triton; },
      [](Options& o) { o.float8_saturates = false; },
  };
  for (const auto& change : changes) {
    Options options;
    change(options);
    EXPECT_FALSE(compile(graph_with(), options).from_disk_cache) << &change - changes;
    EXPECT_TRUE(compile(graph_with(), options).from_disk_cache) << &change - changes;
  }
  EXPECT_FALSE(compile(graph_with(), {}, nullptr, /*owns_inputs=*/true).from_disk_cache);
}

// NaN prints without its bits.
TEST_F(KeptResults, TellNumbersByTheirBits) {
  auto with = [](uint64_t bits) {
    graph::Graph g = graph_with();
    std::memcpy(&std::get<double>(g.node(graph::NodeId(size_t{2})).args[1]), &bits, sizeof bits);
    return g;
  };
  compile(with(0x7ff8000000000000), {});
  EXPECT_TRUE(compile(with(0x7ff8000000000000), {}).from_disk_cache);
  EXPECT_FALSE(compile(with(0xfff8000000000000), {}).from_disk_cache);
}

// In a graph's symbols by age, two arenas may differ where their graphs do not.
TEST_F(KeptResults, AreFoundWhateverElseTheArenaHolds) {
  const char* text = R"(graph {
  symbol s0 size 2 1000
  symbol s1 size 2 1000
  %0: f32[s0,s1] = input argument "x"
  size s0 %0 0
  size s1 %0 1
  %1: f32[(s0*s1)] = aten::view(%0, [(s0*s1)])
  %2: f32[(s0*s1)] = aten::relu(%1)
  return %2
}
)";
  Artefact first = compile(graph::parse(text), {});
  std::string other = text;
  other.replace(other.find("  symbol s0"), std::string("  symbol s0 size 2 1000\n  symbol s1 size 2 1000\n").size(),
                "  symbol s1 size 2 1000\n  symbol s0 size 2 1000\n");
  Artefact second = compile(graph::parse(other), {});
  EXPECT_TRUE(second.from_disk_cache);
  EXPECT_EQ(second.plan.buffers.size(), first.plan.buffers.size());
  plan::verify(second.plan);
}

TEST_F(KeptResults, ThatAreDamagedAreMadeAnew) {
  const std::string good = contents(compile(graph_with(), {}));
  std::vector<std::pair<fs::path, std::string>> before;
  for (const fs::path& f : files()) {
    std::ifstream in(f, std::ios::binary);
    before.emplace_back(f, std::string(std::istreambuf_iterator<char>(in), {}));
  }
  auto with_all = [&](const std::function<std::string(std::string)>& damage) {
    for (const auto& [path, bytes] : before) {
      std::string other = damage(bytes);
      std::ofstream(path, std::ios::binary).write(other.data(), static_cast<std::streamsize>(other.size()));
    }
    Artefact made = compile(graph_with(), {});
    EXPECT_EQ(contents(made), good);
    EXPECT_TRUE(compile(graph_with(), {}).from_disk_cache);
    return made.from_disk_cache;
  };
  EXPECT_TRUE(with_all([](std::string b) { return b; }));
  EXPECT_FALSE(with_all([](std::string b) { return b.substr(0, b.size() / 2); }));
  EXPECT_FALSE(with_all([](std::string) { return std::string(); }));
  for (size_t part = 0; part < 40; ++part)
    EXPECT_FALSE(with_all([&](std::string b) {
      b[b.size() * part / 40] ^= static_cast<char>(1 << part % 8);
      return b;
    })) << part;
}

autodiff::Joint joint_with(const std::string& scale, std::vector<uint32_t> read_outputs = {}) {
  graph::Graph g = graph::parse(R"(graph {
  loc 0 "model.py" 12 "forward" "y = x.exp"
  %0: f32[64,64] = input argument "x"
  %1: f32[64,64] = input argument "dy"
  %2: f32[64,64] = aten::exp(%0)  # loc 0
  %3: f32[64,64] = aten::mul.Scalar(%2, )" +
                                scale + R"()
  %4: f32[64,64] = aten::mul.Scalar(%1, )" +
                                scale + R"()
  %5: f32[64,64] = aten::mul.Tensor(%4, %2)
  return %3, %5
}
)");
  return {std::move(g), 1, {1}, autodiff::Joint::Reads{{}, std::move(read_outputs)}};
}

TEST_F(KeptResults, OfTrainingHoldBothHalves) {
  Training first = compile_training(joint_with("2.0"), {}), second = compile_training(joint_with("2.0"), {});
  EXPECT_FALSE(first.forward.from_disk_cache);
  ASSERT_TRUE(second.forward.from_disk_cache);
  EXPECT_EQ(contents(second.forward), contents(first.forward));
  EXPECT_EQ(graph::print(second.parts.forward), graph::print(first.parts.forward));
  EXPECT_EQ(graph::print(second.parts.backward), graph::print(first.parts.backward));
  EXPECT_EQ(second.parts.report(), first.parts.report());
  EXPECT_EQ(second.parts.sources.size(), first.parts.sources.size());
  EXPECT_EQ(second.parts.depends_on, first.parts.depends_on);
  EXPECT_EQ(second.parts.needed_inputs, first.parts.needed_inputs);
  EXPECT_EQ(second.parts.saved_bytes, first.parts.saved_bytes);
  EXPECT_FALSE(compile_training(joint_with("3.0"), {}).forward.from_disk_cache);
  EXPECT_FALSE(compile_training(joint_with("2.0", {0}), {}).forward.from_disk_cache);
}

}  // namespace
}  // namespace braze::driver
