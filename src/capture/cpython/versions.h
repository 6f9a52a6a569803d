// Words that change whenever what they stand for may have changed, and never take an earlier value again.
#pragma once
#include <Python.h>

#include <cstdint>
#include <memory>

namespace braze::capture::cpython {

// The version of one dict: changes at every store, also of an equal value, before anybody can see what was stored.
// CPython 3.11 keeps one in every dict; later versions call a watcher, who counts for the dicts that he was told of.
class DictVersion {
 public:
  // Watches the dict, which may die before this: its word has then moved, and is still there to be read.
  explicit DictVersion(PyObject* dict);
#if PY_VERSION_HEX < 0x030C0000
  const uint64_t* word() const { return word_; }  // readable while the dict lives

 private:
  const uint64_t* word_;
#else
  ~DictVersion();
  DictVersion(DictVersion&&) = default;
  DictVersion& operator=(DictVersion&&) = default;
  const uint64_t* word() const { return count_.get(); }

 private:
  PyObject* dict_;  // not held; alive as long as the watcher knows it
  std::shared_ptr<const uint64_t> count_;
#endif
};

// While this stays, so do the words of all dicts. 0: nobody counts, each is to be looked at.
#if PY_VERSION_HEX < 0x030C0000
inline uint64_t dict_changes() { return 0; }
#else
uint64_t dict_changes();
#endif

// Changes at every store to the class or one of its bases. 0: the class has none at present; looking an attribute up
// gives it one, as long as there are any left.
inline const unsigned* type_version(PyTypeObject* type) { return &type->tp_version_tag; }

}  // namespace braze::capture::cpython
