#include "capture/cpython/versions.h"

#include <unordered_map>

#include "base/check.h"

namespace braze::capture::cpython {

#if PY_VERSION_HEX < 0x030C0000

DictVersion::DictVersion(PyObject* dict) : word_(&reinterpret_cast<PyDictObject*>(dict)->ma_version_tag) {}

#else

namespace {

using Counts = std::unordered_map<PyObject*, std::shared_ptr<uint64_t> >;

// Never destroyed: dicts die after static objects.
Counts& counts() {
  static auto* all = new Counts;
  return *all;
}

// Told before each change, and before the dict's end.
int dict_changes(PyDict_WatchEvent event, PyObject* dict, PyObject*, PyObject*) {
  auto it = counts().find(dict);
  if (it == counts().end()) return 0;
  ++*it->second;
  if (event == PyDict_EVENT_DEALLOCATED) counts().erase(it);
  return 0;
}

int watcher() {
  static const int id = PyDict_AddWatcher(dict_changes);
  if (id < 0) throw InternalError("no dict watcher is left");
  return id;
}

}  // namespace

DictVersion::DictVersion(PyObject* dict) : dict_(dict) {
  std::shared_ptr<uint64_t>& count = counts()[dict];
  if (!count) {
    if (PyDict_Watch(watcher(), dict) < 0) {
      counts().erase(dict);
      throw InternalError("a dict cannot be watched");
    }
    count = std::make_shared<uint64_t>(1);
  }
  count_ = count;
}

DictVersion::~DictVersion() {
  if (!count_ || count_.use_count() > 2) return;
  auto it = counts().find(dict_);
  if (it == counts().end() || it->second != count_) return;  // the dict is gone
  counts().erase(it);
  if (PyDict_Unwatch(watcher(), dict_) < 0) PyErr_Clear();
}

#endif

}  // namespace braze::capture::cpython
