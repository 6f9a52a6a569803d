// Where a Python value comes from when a compiled entry is called: a path that can be walked natively, without running
// any Python code. Paths are interned: the same path is the same id.
#pragma once
#include <deque>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/hash_index.h"
#include "base/ids.h"
#include "capture/cpython/ref.h"

namespace braze::capture {

enum class SourceKind : uint8_t {
  Local,    // index: slot of localsplus (for a cell or free variable: the cell object itself)
  Stack,    // index: value stack of the frame where the segment starts, 0 = bottom
  Handled,  // the exception that the thread handles (sys.exc_info), None when it handles none
  Const,    // key: an object that is held alive for good (globals dicts, modules, types, code of guarded functions),
            // unless it is loosened
  CellContents,  // of a cell object
  DictItem,      // key: any key whose hash and equality run no Python code. On subclasses of dict: the raw item
  DictKeyAt,     // index: the key at that position in order
  ListItem,      // index
  TupleItem,     // index
  TypeOf,        // Py_TYPE
  InstanceDict,  // obj.__dict__, made if it was inline
  MadeDict,      // obj.__dict__ if it was made already: of functions and tensors, which mostly have none
  TypeAttr,      // key: name; of a type: what _PyType_Lookup finds (raw, no descriptor applied)
  Slot,          // index: byte offset of a T_OBJECT/T_OBJECT_EX member (__slots__), key: name
  FuncCode,
  FuncGlobals,
  FuncDefaults,
  FuncKwDefaults,
  FuncClosure,  // of a Python function
  MethodSelf,
  MethodFunc,    // of a bound method
  PropertyGet,   // fget of a property object
  StaticTarget,  // __func__ of a staticmethod or classmethod object
  PartialFunc,
  PartialArgs,
  PartialKeywords,  // of a functools.partial
  MappingOrigin,    // the dict that a types.MappingProxyType wraps
  WeakTarget,       // referent of a weakref
  CachedCall,       // of a functools.lru_cache: what it holds; key: its key of the call
  ContextValue,     // of a contextvars.ContextVar: its value in the current context
  ArrayTensor,      // a tensor on the memory of a numpy.ndarray, see array_memory.h
  Content,          // of an object in C: a tuple of what it holds, see content.h
  TensorAttr,  // key: name of an attribute of a tensor that a getter in C reads, and that lives as long as the tensor
               // does: its gradient, its hooks
};

struct SourceTag;
using SourceId = Id<SourceTag>;

struct Source {
  SourceKind kind;
  SourceId base;  // invalid for Local, Stack, Handled, Const
  int64_t index = 0;
  LooseRef key;
};

class Sources {
 public:
  Sources() = default;
  // Names of the frame's slots, for printing.
  explicit Sources(PyCodeObject* code) : code_(code) {}

  SourceId local(int slot) { return add(SourceKind::Local, {}, slot, nullptr); }
  SourceId handled() { return add(SourceKind::Handled, {}, 0, nullptr); }
  SourceId stack(int depth) { return add(SourceKind::Stack, {}, depth, nullptr); }
  // `label`: how it prints, e.g. "G" for the frame's globals; by default the object's name.
  SourceId constant(PyObject* object, const std::string& label = {});
  SourceId contents(SourceId cell) { return add(SourceKind::CellContents, cell, 0, nullptr); }
  SourceId dict_item(SourceId dict, PyObject* key) { return add(SourceKind::DictItem, dict, 0, key); }
  SourceId dict_item(SourceId dict, const char* key);
  SourceId instance_dict(SourceId object) { return add(SourceKind::InstanceDict, object, 0, nullptr); }
  // An attribute found in the instance's dict.
  SourceId instance_attr(SourceId object, PyObject* name) { return dict_item(instance_dict(object), name); }
  SourceId instance_attr(SourceId object, const char* name) { return dict_item(instance_dict(object), name); }
  SourceId list_item(SourceId list, int64_t i) { return add(SourceKind::ListItem, list, i, nullptr); }
  SourceId tuple_item(SourceId tuple, int64_t i) { return add(SourceKind::TupleItem, tuple, i, nullptr); }
  SourceId type_of(SourceId object) { return add(SourceKind::TypeOf, object, 0, nullptr); }
  SourceId type_attr(SourceId type, PyObject* name) { return add(SourceKind::TypeAttr, type, 0, name); }
  SourceId derived(SourceKind kind, SourceId base) { return add(kind, base, 0, nullptr); }
  SourceId add(SourceKind kind, SourceId base, int64_t index, PyObject* key);

  const Source& operator[](SourceId id) const { return items_[id.index]; }
  // Gives up what is in `objects`: no path is to be walked any more once one of them is gone.
  void loosen(const std::unordered_set<PyObject*>& objects);
  bool is_held(SourceId) const;  // nothing on the path was
  size_t size() const { return items_.size(); }
  // How a constant prints; empty: by its own name.
  std::string label(SourceId id) const {
    auto it = labels_.find(id.index);
    return it == labels_.end() ? std::string() : it->second;
  }
  // As the user would write it: L['x'], G['torch'].nn, L['self'].layers[0].weight.
  std::string print(SourceId) const;

 private:
  std::deque<Source> items_;
  HashIndex interned_;
  std::unordered_map<uint32_t, std::string> labels_;
  PyCodeObject* code_ = nullptr;
};

// Whether what is found there may change while its base stays as it is, with nothing to watch.
constexpr bool is_fleeting(SourceKind k) {
  return k == SourceKind::TensorAttr || k == SourceKind::WeakTarget || k == SourceKind::CachedCall ||
         k == SourceKind::ContextValue || k == SourceKind::ArrayTensor || k == SourceKind::Content;
}

// The value at one step from its base (borrowed), or nullptr if there is none there (no exception is set).
// `slots`: localsplus, then the value stack. Runs no Python code.
PyObject* step(const Source& source, PyObject* base, PyObject* const* slots, size_t num_locals_plus);

// What SourceKind::Handled leads to, borrowed.
PyObject* handled_exception();

}  // namespace braze::capture
