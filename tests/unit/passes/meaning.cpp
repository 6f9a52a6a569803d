#include "meaning.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/hash.h"

namespace braze::passes {

using graph::Graph;
using graph::HostTensor;

const Targets& machine() {
  static const Targets all = [] {
    Target cpu;
    cpu.slow_f32_products = cpu.slow_bf16_products = cpu.slow_f16_products = cpu.slow_thin_products = true;
    return Targets{cpu, {{0, h200()}}};
  }();
  return all;
}

namespace {

// Those that compute floats by other operations; all others must not change a bit.
bool rounds(std::string_view pass) {
  constexpr std::string_view kRounding[] = {
      "decompose",      "seed_random",  "accumulate_scatter", "unfold_attention", "unfold_products",
      "unfold_complex", "unfuse_bias",  "fuse_activation",    "split_resampling", "widen_products",
      "fuse_attention", "causal_masks", "attention_products"};
  return std::find(std::begin(kRounding), std::end(kRounding), pass) != std::end(kRounding);
}

}  // namespace

std::string difference(const HostTensor& want, const HostTensor& got, Within within) {
  if (want.dtype != got.dtype || want.sizes != got.sizes || want.data.size() != got.data.size()) return "another type";
  double largest = 0;
  for (double v : want.data)
    if (std::isfinite(v)) largest = std::max(largest, std::fabs(v));
  double bound = within == Within::Nothing || !is_floating(want.dtype) ? 0 : 1e-5 * (1 + largest);
  for (size_t i = 0; i < want.data.size(); ++i) {
    double a = want.data[i], b = got.data[i];
    bool same = std::isnan(a) ? std::isnan(b) : a == b && std::signbit(a) == std::signbit(b);
    if (same || (bound > 0 && std::fabs(a - b) <= bound)) continue;
    return "element " + std::to_string(i) + " is " + std::to_string(b) + ", was " + std::to_string(a);
  }
  return "";
}

sym::Env sample_sizes(const Graph& g) {
  const sym::ExprArena& arena = g.arena();
  return [&arena](sym::Expr symbol) { return std::clamp<int64_t>(3, arena.range(symbol).lo, arena.range(symbol).hi); };
}

std::vector<HostTensor> sample_inputs(const Graph& g, uint64_t seed) {
  std::vector<HostTensor> out;
  for (const graph::Input& input : g.inputs) {
    const graph::Value& value = g.value(input.value);
    HostTensor t{value.type.dtype, {}, {}};
    int64_t n = 1;
    for (sym::Expr e : value.type.sizes) {
      t.sizes.push_back(g.arena().evaluate(e, sample_sizes(g)));
      n *= t.sizes.back();
    }
    if (is_complex(t.dtype)) n *= 2;
    size_t below = value.name.find("below ");
    double most = below == std::string::npos ? 2 : std::stod(value.name.substr(below + 6));
    for (int64_t i = 0; i < n; ++i) {
      Hasher h;
      h.add(seed), h.add(out.size()), h.add(i);
      double u = static_cast<double>(h.value() >> 11) * 0x1p-53;
      double v = !is_floating(t.dtype) && !is_complex(t.dtype) ? std::floor(u * most)
                 : value.name.starts_with("unit")              ? 0.05 + 0.9 * u
                                                               : 6 * u - 3;
      if (is_floating(t.dtype) && !value.name.starts_with("unit") && u < 0.04) v = -0.0;
      t.data.push_back(t.dtype == DType::F64 ? v : static_cast<float>(v));
    }
    out.push_back(std::move(t));
  }
  return out;
}

std::string difference(const Graph& before, const Graph& after, Within within) {
  std::vector<HostTensor> inputs = sample_inputs(before);
  auto want = graph::interpret(before, inputs, sample_sizes(before));
  auto got = graph::interpret(after, inputs, sample_sizes(after));
  if (want.size() != got.size()) return "another number of results";
  for (size_t k = 0; k < want.size(); ++k)
    if (std::string found = difference(want[k], got[k], within); !found.empty())
      return "result " + std::to_string(k) + ": " + found;
  return "";
}

void expect_passes_keep_meaning(const Graph& g, std::set<std::string>* seen) {
  auto note = [&](const Graph& interpreted) {
    if (seen) seen->merge(operators_of(interpreted));
  };
  graph::interpret(g, sample_inputs(g), sample_sizes(g));
  note(g);
  Graph sofar = g;
  for (const Pass& pass : pipeline()) {
    for (bool alone : {true, false}) {
      const Graph& before = alone ? g : sofar;
      Graph after = pass.run(before, machine());
      graph::verify(after);
      std::string was = graph::print(before), made = graph::print(after);
      if (made == was) continue;
      SCOPED_TRACE(std::string(pass.name) + (alone ? " alone" : " in its place") + " made\n" + made + "of\n" + was);
      ASSERT_EQ(difference(before, after, rounds(pass.name) ? Within::Rounding : Within::Nothing), "");
      note(after);
      if (!alone) sofar = std::move(after);
    }
  }
}

std::set<std::string> operators_of(const Graph& g) {
  std::set<std::string> out;
  for (const graph::Node& n : g.nodes())
    out.emplace(n.op == graph::Op::Extern ? n.extern_name : std::string(graph::op_name(n.op)));
  return out;
}

std::string source(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<std::string> sources(const std::string& folder, std::string_view suffix) {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(std::string(BRAZE_SOURCES) + "/" + folder))
    if (entry.path().string().ends_with(suffix)) out.push_back(entry.path().string());
  std::sort(out.begin(), out.end());
  EXPECT_FALSE(out.empty()) << folder;
  return out;
}

}  // namespace braze::passes
