#include "codegen/nvptx/together.h"

#include <algorithm>

#include "codegen/nvptx/local_rows.h"

namespace braze::codegen::nvptx {
namespace {

constexpr size_t kMostParts = 8;

std::optional<int64_t> threads_of(const Program& p, const Shape& s) {
  auto blocks = p.arena->as_const(s.blocks);
  if (!blocks || *blocks <= 0) return std::nullopt;
  return *blocks * s.threads;
}

// A launch of more threads than the GPU holds at a time has nothing to gain.
bool is_small(const Program& p, const Shape& s, const Target& target) {
  auto threads = threads_of(p, s);
  return threads && *threads <= int64_t{target.multiprocessors} * target.threads;
}

// The shapes of nests that share a launch; empty: they want blocks of different sizes.
std::vector<Shape> shared_shapes(const Program& p, const std::vector<const Nest*>& nests,
                                 const std::vector<Shape>& alone, const Target& target) {
  int64_t all = 0;
  for (const Shape& s : alone) all += *threads_of(p, s);
  auto choose = [&](int block) {
    std::vector<Shape> shapes;
    for (size_t i = 0; i < nests.size(); ++i)
      shapes.push_back(choose_shape(p, *nests[i], target, {all - *threads_of(p, alone[i]), block}));
    return shapes;
  };
  std::vector<Shape> shapes = choose(0);
  int block = 0, widest = 0;
  for (const Shape& s : shapes) {
    widest = std::max(widest, s.threads);
    if (!fits_any_block(s)) block = s.threads;
  }
  shapes = choose(block ? block : widest);
  for (const Shape& s : shapes)
    if (s.threads != shapes.front().threads || !threads_of(p, s)) return {};
  for (size_t i = 0; i < nests.size(); ++i)
    if (!fits_block(p, *nests[i], shapes[i], target)) return {};
  return shapes;
}

}  // namespace

std::vector<std::vector<Part>> launches_of(const Program& program, const Run& run, const Target& target) {
  std::vector<std::vector<Part>> launches;
  for (size_t first = 0; first < run.size();) {
    std::vector<const Nest*> nests{run[first]};
    std::vector<Shape> alone{choose_shape(program, *run[first], target)}, shapes = alone;
    while (first + nests.size() < run.size() && nests.size() < kMostParts && is_small(program, alone.back(), target)) {
      nests.push_back(run[first + nests.size()]);
      alone.push_back(choose_shape(program, *nests.back(), target));
      std::vector<Shape> wider;
      if (is_small(program, alone.back(), target)) wider = shared_shapes(program, nests, alone, target);
      if (wider.empty()) {
        nests.pop_back();
        break;
      }
      shapes = std::move(wider);
    }
    // What may still run as they begin is what may run as the first one does.
    const bool ahead = nests.front()->mapping.ahead;
    std::vector<Part>& parts = launches.emplace_back();
    for (size_t i = 0; i < nests.size(); ++i)
      parts.push_back({nests[i], signature_of(program, *nests[i]), shapes[i], ahead && nests[i]->mapping.ahead});
    first += nests.size();
  }
  return launches;
}

}  // namespace braze::codegen::nvptx
