#include "capture/cpython/once_loaded.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "capture/cpython/versions.h"

namespace braze::capture {
namespace {

struct Waiting {
  const char* module;
  std::function<void()> then;
};

std::vector<Waiting>& waiting() {
  static auto* w = new std::vector<Waiting>;
  return *w;
}

bool is_loaded(const char* module) { return PyDict_GetItemString(PyImport_GetModuleDict(), module) != nullptr; }

}  // namespace

void register_loaded() {
  static const auto* version = new cpython::DictVersion(PyImport_GetModuleDict());
  static uint64_t seen = 0;
  uint64_t now = *version->word();
  if (now == seen) [[likely]]
    return;
  seen = now;
  auto& all = waiting();
  auto come = std::stable_partition(all.begin(), all.end(), [](const Waiting& w) { return !is_loaded(w.module); });
  std::vector<Waiting> due(std::make_move_iterator(come), std::make_move_iterator(all.end()));
  all.erase(come, all.end());
  for (Waiting& w : due) w.then();
}

void once_loaded(const char* module, std::function<void()> then) {
  if (is_loaded(module))
    then();
  else
    waiting().push_back({module, std::move(then)});
}

}  // namespace braze::capture
