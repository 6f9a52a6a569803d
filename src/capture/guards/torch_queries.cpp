#include "capture/guards/torch_queries.h"

#include <unordered_map>

#include "capture/cpython/imported.h"
#include "capture/cpython/once_loaded.h"
#include "trace/pytorch/names.h"

namespace braze::capture {
namespace {

struct Row {
  const char *module, *name;
  QueryGround ground;
};
const Row kRows[] = {
#define BRAZE_TORCH_QUERY(module, name, ground) {module, name, QueryGround::ground},
#define BRAZE_PRIVATE_QUERY(name, ground) \
  {pytorch::row(pytorch::Name::name).module, pytorch::row(pytorch::Name::name).path, QueryGround::ground},
#include "capture/guards/torch_queries.def"
#undef BRAZE_PRIVATE_QUERY
#undef BRAZE_TORCH_QUERY
};

std::unordered_map<PyObject*, QueryGround>& grounds() {
  static std::unordered_map<PyObject*, QueryGround> by_function;  // what imported() gave, held for good
  return by_function;
}

}  // namespace

void register_torch_queries() {
  for (const Row& row : kRows)
    once_loaded(row.module, [row] {
      if (PyObject* f = imported(row.module, row.name, true)) grounds().emplace(f, row.ground);
    });
}

std::optional<QueryGround> query_ground(PyObject* function) {
  auto it = grounds().find(function);
  return it == grounds().end() ? std::nullopt : std::optional(it->second);
}

}  // namespace braze::capture
