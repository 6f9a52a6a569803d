// dict, OrderedDict, defaultdict, and their views.
#pragma once
#include "capture/eval/variable.h"

namespace braze::capture {

class DictVariable final : public Variable {
 public:
  struct Entry {
    Ref hash_key;
    Variable* key;
    Variable* value;      // nullptr: deleted (only while not loaded)
    uint64_t serial = 0;  // grows along the entries of a plain dict, as places in CPython's table do
  };

  explicit DictVariable(PyTypeObject* t = &PyDict_Type);
  // A pre-existing dict, read key by key until its order or size matters.
  DictVariable(PyObject* real, SourceId s, PyTypeObject* t);

  PyTypeObject* type() const override { return cls; }
  Variable* getattr(Translator&, PyObject* name) override;
  void setattr(Translator&, PyObject* name, Variable* value) override;  // of an OrderedDict
  Variable* call_method(Translator&, const char* name, Args&) override;
  Variable* getitem(Translator&, Variable* key) override;
  void setitem(Translator&, Variable* key, Variable* value) override;
  void delitem(Translator&, Variable* key) override;
  bool contains(Translator& tr, Variable* key) override { return get(tr, key) != nullptr; }
  Variable* iter(Translator&) override;
  bool has_len(Translator&) override { return true; }
  int64_t len(Translator&) override;
  bool truth(Translator& tr) override { return len(tr) != 0; }
  std::vector<Variable*> items(Translator& tr) override;  // the keys
  Reg build(Codegen&) override;
  void emit_changes(Codegen&, Reg self);

  Variable* get(Translator&, Variable* key);  // nullptr: not there
  Variable* get(Translator& tr, PyObject* key);
  bool wrote(Translator& tr, PyObject* key) {
    return find(tr, key) >= 0;
  }  // of one that was there before: the key was written or deleted here, or all is known
  void set(Translator&, Variable* key, Variable* value);
  void set(Translator& tr, PyObject* key, Variable* value);
  void set(Translator&, const Ref& hash_key, Variable* key, Variable* value);  // whose hash is known
  bool remove(Translator&, Variable* key);
  void clear(Translator&);
  const std::vector<Entry>& entries(Translator&);           // all, in order
  DictVariable* copy(Translator&);                          // of the same class
  bool move_to_end(Translator&, Variable* key, bool last);  // of an OrderedDict; false: the key is not there
  void pop(Translator&, const Entry& e);                    // what popitem takes: its place is the next one's
  bool is_ordered_dict() const;

  PyTypeObject* cls;
  uint64_t structure = 0;  // counts keys that came, went or moved
  uint64_t clears = 0;     // how often all of them went at once
  Variable* default_factory = nullptr;
  Ref real;

 private:
  void load(Translator&);
  void guard_key(Translator&, const Ref& hash_key, Variable* key);
  Ref key_in(Translator&, Variable* key);
  void load_for(Translator&, PyObject* hash_key);
  void change(Translator&);
  Py_ssize_t find(Translator&, PyObject* hash_key);
  void enter(Translator&, PyObject* hash_key, size_t at);  // into the index
  void reindex();

  void append(Entry e) {
    e.serial = next_serial_++;
    entries_.push_back(std::move(e));
  }

  std::vector<Entry> entries_;  // not loaded: only what was written
  uint64_t next_serial_ = 1;
  Ref index_;  // hash_key -> position in entries_
  // What was done to a pre-existing dict, one row per key.
  struct Change {
    Ref hash_key;
    Variable* key;
    bool original;   // the key was there at first
    bool deleted;    // at some time
    uint64_t order;  // of the insertion that counts
  };
  void note(Translator&, PyObject* hash_key, Variable* key, bool deleted, bool inserted);
  Change* change_of(Translator&, PyObject* hash_key);  // nullptr: none

  bool loaded_ = true;
  bool rewrite_ = false;  // the order changed in a way that only writing everything restores
  std::vector<Change> changes_;
  Ref change_at_;  // hash_key -> position in changes_; none while that is empty
  std::vector<std::pair<PyObject*, Variable*>> attributes_;  // of an OrderedDict that was made here
  uint64_t next_order_ = 0;
};

// The dict that an object's or a function's __dict__ is, also where that is an instance of a subclass of dict.
DictVariable* dict_behind(Translator&, Variable* v);
// The __dict__ of an object or function that the code makes.
DictVariable* instance_dict_of(Translator&, Variable* owner);

// A types.MappingProxyType of a dict: the dict without the ways to change it.
class MappingProxyVariable final : public Variable {
 public:
  explicit MappingProxyVariable(Variable* d) : Variable(Kind::MappingProxy), mapping(d) {}
  PyTypeObject* type() const override { return &PyDictProxy_Type; }
  Variable* call_method(Translator&, const char* name, Args&) override;
  Variable* getitem(Translator& tr, Variable* key) override { return mapping->getitem(tr, key); }
  bool contains(Translator& tr, Variable* key) override { return mapping->contains(tr, key); }
  Variable* iter(Translator& tr) override { return mapping->iter(tr); }
  bool has_len(Translator&) override { return true; }
  int64_t len(Translator& tr) override { return mapping->len(tr); }
  bool truth(Translator& tr) override { return mapping->len(tr) != 0; }
  std::vector<Variable*> items(Translator& tr) override { return mapping->items(tr); }
  Reg build(Codegen&) override;
  Variable* mapping;  // forced
};

class DictViewVariable final : public Variable {
 public:
  enum class What : uint8_t { Keys, Values, Items };
  DictViewVariable(DictVariable* d, What w) : Variable(Kind::DictView), dict(d), what(w) {}
  PyTypeObject* type() const override;
  Variable* getattr(Translator&, PyObject* name) override;
  Variable* call_method(Translator&, const char* name, Args&) override;
  bool contains(Translator&, Variable* item) override;
  Variable* iter(Translator&) override;
  bool has_len(Translator&) override { return true; }
  int64_t len(Translator& tr) override { return dict->len(tr); }
  bool truth(Translator& tr) override { return dict->len(tr) != 0; }
  std::vector<Variable*> items(Translator&) override;
  Reg build(Codegen&) override;
  DictVariable* dict;
  What what;
};

}  // namespace braze::capture
