#include "capture/cpython/versions.h"

#include <unordered_map>

#include "base/check.h"
#include "capture/cpython/ref.h"

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

uint64_t g_changes = 1;

// Told before each change, and before the dict's end.
int note_change(PyDict_WatchEvent event, PyObject* dict, PyObject*, PyObject*) {
  auto it = counts().find(dict);
  if (it == counts().end()) return 0;
  ++*it->second;
  ++g_changes;
  if (event == PyDict_EVENT_DEALLOCATED) counts().erase(it);
  return 0;
}

int watcher() {
  static const int id = PyDict_AddWatcher(note_change);
  if (id < 0) throw InternalError("no dict watcher is left");
  return id;
}

}  // namespace

namespace {

// An instance's dict whose values lie in the instance. CPython 3.13.0 tells no watcher when one is stored there.
bool is_in_instance(PyObject* dict) { return reinterpret_cast<PyDictObject*>(dict)->ma_values != nullptr; }

bool watcher_hears_of_instances() {
  static const bool hears = [] {
    Ref cls = Ref::steal(PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyType_Type), "s(){}", "Trial"));
    Ref object = Ref::steal(cls ? PyObject_CallNoArgs(cls.get()) : nullptr);
    Ref dict = Ref::steal(object ? PyObject_GenericGetDict(object.get(), nullptr) : nullptr);
    if (!dict || PyDict_Watch(watcher(), dict.get()) < 0) throw InternalError("a dict cannot be watched");
    auto count = counts()[dict.get()] = std::make_shared<uint64_t>(0);
    PyObject_SetAttrString(object.get(), "a", Py_None);
    return *count != 0;
  }();
  return hears;
}

// Gives the dict a table of its own, by taking its last item out and putting it back.
void move_out_of_instance(PyObject* dict) {
  bool empty = PyDict_GET_SIZE(dict) == 0;
  if (empty) PyDict_SetItemString(dict, "_", Py_None);
  Ref item = Ref::steal(PyObject_CallMethod(dict, "popitem", nullptr));
  if (item && !empty) PyDict_SetItem(dict, PyTuple_GET_ITEM(item.get(), 0), PyTuple_GET_ITEM(item.get(), 1));
  if (PyErr_Occurred() || is_in_instance(dict)) {
    PyErr_Clear();
    throw InternalError("a dict cannot be watched");
  }
}

}  // namespace

DictVersion::DictVersion(PyObject* dict) : dict_(dict) {
  if (is_in_instance(dict) && !watcher_hears_of_instances()) move_out_of_instance(dict);
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

uint64_t dict_changes() { return g_changes; }

DictVersion::~DictVersion() {
  if (!count_ || count_.use_count() > 2) return;
  auto it = counts().find(dict_);
  if (it == counts().end() || it->second != count_) return;  // the dict is gone
  counts().erase(it);
  if (PyDict_Unwatch(watcher(), dict_) < 0) PyErr_Clear();
}

#endif

}  // namespace braze::capture::cpython
