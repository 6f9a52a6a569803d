#include "capture/guards/watch_table.h"

#include <algorithm>

#include "capture/cpython/dict.h"
#include "capture/cpython/imported.h"
#include "capture/guards/guard_eval.h"

namespace braze::capture {
namespace {

constexpr uint32_t kNone = CheckOrder::kNone;

// Objects of these types can't be given another __class__.
bool class_is_fixed(PyObject* o) { return (Py_TYPE(o)->tp_flags & Py_TPFLAGS_IMMUTABLETYPE) && !PyModule_Check(o); }

bool is_namespace(PyObject* o) {
  static auto* cls = reinterpret_cast<PyTypeObject*>(imported("types", "SimpleNamespace"));
  return PyObject_TypeCheck(o, cls);
}

// Refers to objects that may be large, or be its owners. Of other classes without weak references (numbers, strings,
// slices, properties, descriptors) the instances never change and hold little.
bool is_container(PyObject* o) {
  if (PyTuple_CheckExact(o)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); ++i)
      if (PyType_IS_GC(Py_TYPE(PyTuple_GET_ITEM(o, i)))) return true;
    return false;
  }
  return PyDict_Check(o) || PyList_Check(o) || PyTuple_Check(o) || PyAnySet_Check(o) || PyCell_Check(o) ||
         PyExceptionInstance_Check(o) || Py_TYPE(o) == &PyDictProxy_Type || is_namespace(o) ||
         (Py_TYPE(o)->tp_flags & Py_TPFLAGS_HEAPTYPE && PyType_IS_GC(Py_TYPE(o)));
}

PyTypeObject* as_type(PyObject* o) { return reinterpret_cast<PyTypeObject*>(o); }

// A collection may end objects and run their finalizers.
class NoCollection {
 public:
  NoCollection() : was_on_(PyGC_Disable()) {}
  ~NoCollection() {
    if (was_on_) PyGC_Enable();
  }
  NoCollection(const NoCollection&) = delete;

 private:
  int was_on_;
};

bool type_lookup_runs_no_code(PyTypeObject* type) {
  PyObject* mro = type->tp_mro;
  for (Py_ssize_t i = 0; mro && i < PyTuple_GET_SIZE(mro); ++i)
    if (PyObject* dict = cpython::type_dict(as_type(PyTuple_GET_ITEM(mro, i)));
        !dict || !cpython::lookups_run_no_code(dict))
      return false;
  return mro != nullptr;
}

}  // namespace

WatchTable::WatchTable(const CheckOrder& order, const std::unordered_set<PyObject*>& secured)
    : order_(order), secured_(secured) {}

bool WatchTable::fill(PyObject* const* slots, size_t num_locals_plus, PyObject* const* registers,
                      GuardFailure& failure) {
  NoCollection while_written;
  std::vector<PyObject*> values(order_.num_all);
  std::copy_n(registers, order_.num_registers, values.begin());
  std::vector<Ref> held;
  held.reserve(order_.anchored.size());
  auto fails = [&](const Guard* g, PyObject* v) {
    failure.kind = GuardFailure::Value;
    failure.guard = g;
    failure.value = Ref::borrow(v);
    return false;
  };
  for (uint32_t r : order_.roots) watch_class(values[r]);
  for (const CheckOrder::Node& n : order_.anchored) {
    PyObject* base = n.base == kNone ? nullptr : values[n.base];
    if (base) before_step(*n.source, base);
    PyObject* v = step(*n.source, base, slots, num_locals_plus);
    held.push_back(Ref::borrow(v));
    values[n.reg] = v;
    if (base) after_step(*n.source, base, v);
    if (v) secure(v, n.source->kind);
    for (uint32_t g = n.guards_begin; g < n.guards_end; ++g) {
      if (v) watch_guard(*order_.early[g], v);
      if (!holds(*order_.early[g], v, nullptr)) return fails(order_.early[g], v);
    }
  }
  for (const CheckOrder::Late& l : order_.anchored_pairs)
    if (!holds(*l.guard, values[l.reg], values[l.other])) return fails(l.guard, values[l.reg]);
  for (const CheckOrder::Group& g : order_.anchored_groups) {
    auto& group = groups_.emplace_back();
    for (uint32_t r : g.registers)
      if (!group.insert(values[r]).second) return fails(g.guard, nullptr);
  }
  for (uint32_t r : order_.imported) imported_.push_back(values[r]);
  seen_.clear();
  tag_of_.clear();
  pinned_.clear();
  return true;
}

void WatchTable::import_values(PyObject** registers) const {
  for (size_t i = 0; i < imported_.size(); ++i) registers[order_.imported[i]] = Py_XNewRef(imported_[i]);
}

bool WatchTable::unchanged() {
  // Each round that is done again has remembered one tag more, unless code of the user's goes on changing things.
  for (size_t round = 0; round <= tagged_.size(); ++round) {
    if (contradicts_ || lost_) return false;
    Scan result = scan();
    if (result != Scan::Again) return result == Scan::Same && !lost_;
  }
  return false;
}

// A word is only read after those on the way to it were found unchanged: it is there then. Types lie on the way to what
// hangs off them, and are there themselves as long as the table has not heard of the end of one, so their tags come
// first. After code of the user's none of this is known any more, and the scan begins anew.
WatchTable::Scan WatchTable::scan() {
  for (size_t i = 0, n = short_words_.size(); i < n; ++i) {
    unsigned now = *short_words_[i].at;
    if (now == short_words_[i].expected && now) [[likely]]
      continue;
    bool ran_code = false;
    if (!still_reads(tagged_[short_owner_[i]], ran_code)) return Scan::Differs;
    // A lookup gives a type a tag that lost its own.
    short_words_[i].expected = now || ran_code ? now : *short_words_[i].at;
    if (ran_code) return Scan::Again;
  }
  const uint64_t changes = cpython::dict_changes();
  if (changes && changes == dict_changes_) [[likely]]
    return same_but_for_dicts() ? Scan::Same : Scan::Differs;
  for (size_t i = 0, n = words_.size(); i < n; ++i) {
    uint64_t now = *words_[i].at;
    if (now == words_[i].expected) [[likely]]
      continue;
    bool ran_code = false;
    if (owner_[i] == kNone || !still_reads(tagged_[owner_[i]], ran_code)) return Scan::Differs;
    words_[i].expected = now;
    if (ran_code) return Scan::Again;
  }
  dict_changes_ = changes;
  return Scan::Same;
}

bool WatchTable::same_but_for_dicts() const {
  for (const Word& w : words_beside_dicts_)
    if (*w.at != w.expected) return false;
  return true;
}

bool WatchTable::still_reads(const Tagged& t, bool& ran_code) const {
  if (t.any_change) return false;
  bool is_type = PyType_Check(t.object);
  ran_code = is_type ? !type_lookup_runs_no_code(as_type(t.object))
                     : PyODict_Check(t.object) || !cpython::lookups_run_no_code(t.object);
  for (const KeyRead& k : t.keys) {
    PyObject* v = is_type ? _PyType_Lookup(as_type(t.object), k.key) : cpython::dict_get(t.object, k.key);
    if (v != k.value || (v && Py_TYPE(v) != k.type)) return false;
  }
  for (const Guard* g : t.whole)
    if (!holds(*g, t.object, nullptr)) return false;
  return true;
}

// Another object that comes to lie where `v` lies is not to be taken for it. The table hears of the end of v; or it
// holds v, if that keeps nothing else alive; or v is a container, of which every word that was read is watched: holding
// it would keep alive what is in it, and what that has in turn, which may well be the container's own owner.
void WatchTable::secure(PyObject* v, SourceKind from) {
  if (secured_.count(v) || !pinned_.insert(v).second || deaths_.add(v)) return;
  if (!is_container(v)) return pins_.push_back(Ref::borrow(v));
  // A dict that did not change kept v; where it changed, the class of what it has now is compared. An instance's dict
  // is a dict.
  bool class_known = from == SourceKind::DictItem || from == SourceKind::TypeAttr || from == SourceKind::InstanceDict ||
                     from == SourceKind::MadeDict;
  if (!class_known) word(&v->ob_type, Py_TYPE(v));
}

void WatchTable::add_word(const uint64_t* at, uint64_t expected, uint32_t owner) {
  auto [known, fresh] = seen_.emplace(at, expected);
  contradicts_ |= known->second != expected;
  if (!fresh) return;
  words_.push_back({at, expected});
  owner_.push_back(owner);
  if (owner == kNone && cpython::dict_changes()) words_beside_dicts_.push_back({at, expected});
}

void WatchTable::watch_class(PyObject* o) {
  if (o && !class_is_fixed(o)) word(&o->ob_type, Py_TYPE(o));
}

WatchTable::Tagged& WatchTable::tag(PyObject* o) {
  auto [it, fresh] = tag_of_.emplace(o, static_cast<uint32_t>(tagged_.size()));
  if (fresh) {
    tagged_.push_back({o});
    if (PyType_Check(o)) {
      short_words_.push_back({cpython::type_version(as_type(o)), *cpython::type_version(as_type(o))});
      short_owner_.push_back(it->second);
    } else {
      const uint64_t* version = versions_.emplace_back(o).word();
      add_word(version, *version, it->second);
    }
  }
  return tagged_[it->second];
}

// Tags are read before what they stand for is.
void WatchTable::before_step(const Source& s, PyObject* base) {
  if (s.kind == SourceKind::DictItem && PyDict_Check(base)) tag(base);
  if (s.kind == SourceKind::DictKeyAt && PyDict_Check(base)) tag(base).any_change = true;
  if (s.kind == SourceKind::TypeAttr && PyType_Check(base)) {
    if (!*cpython::type_version(as_type(base))) _PyType_Lookup(as_type(base), s.key.get());  // gives it a tag
    tag(base);
  }
}

// The words on the step from base to v.
void WatchTable::after_step(const Source& s, PyObject* base, PyObject* v) {
  switch (s.kind) {
    case SourceKind::CellContents: word(&reinterpret_cast<PyCellObject*>(base)->ob_ref, v); break;
    case SourceKind::DictItem:
      if (PyDict_Check(base)) tag(base).keys.push_back({s.key.get(), v, v ? Py_TYPE(v) : nullptr});
      break;
    case SourceKind::TypeAttr:
      if (PyType_Check(base)) tag(base).keys.push_back({s.key.get(), v, v ? Py_TYPE(v) : nullptr});
      break;
    case SourceKind::ListItem: {
      auto* l = reinterpret_cast<PyListObject*>(base);
      add_word(reinterpret_cast<const uint64_t*>(&reinterpret_cast<PyVarObject*>(base)->ob_size),
               static_cast<uint64_t>(PyList_GET_SIZE(base)), kNone);
      word(&l->ob_item, l->ob_item);
      if (v) word(&l->ob_item[s.index], v);
      break;
    }
    case SourceKind::TupleItem:
      if (!is_container(base)) break;
      add_word(reinterpret_cast<const uint64_t*>(&reinterpret_cast<PyVarObject*>(base)->ob_size),
               static_cast<uint64_t>(PyTuple_GET_SIZE(base)), kNone);
      if (v) word(&reinterpret_cast<PyTupleObject*>(base)->ob_item[s.index], v);
      break;
    case SourceKind::MappingOrigin: word(reinterpret_cast<PyObject**>(base + 1), v); break;
    case SourceKind::TypeOf: word(&base->ob_type, v); break;
    case SourceKind::MadeDict:
    case SourceKind::InstanceDict:
      if (PyObject** p = _PyObject_GetDictPtr(base)) word(p, v);
      break;
    case SourceKind::Slot: word(reinterpret_cast<PyObject**>(reinterpret_cast<char*>(base) + s.index), v); break;
    case SourceKind::FuncCode: word(&reinterpret_cast<PyFunctionObject*>(base)->func_code, v); break;
    case SourceKind::FuncDefaults: word(&reinterpret_cast<PyFunctionObject*>(base)->func_defaults, v); break;
    case SourceKind::FuncKwDefaults: word(&reinterpret_cast<PyFunctionObject*>(base)->func_kwdefaults, v); break;
    case SourceKind::FuncClosure: word(&reinterpret_cast<PyFunctionObject*>(base)->func_closure, v); break;
    case SourceKind::PartialFunc: word(reinterpret_cast<PyObject**>(base + 1), v); break;
    case SourceKind::PartialArgs: word(reinterpret_cast<PyObject**>(base + 1) + 1, v); break;
    case SourceKind::PartialKeywords: word(reinterpret_cast<PyObject**>(base + 1) + 2, v); break;
    default: break;  // immutable, and held or heard of: methods, properties, static methods, a function's globals
  }
}

// What a guard on one value reads of it. Before the guard is compared.
void WatchTable::watch_guard(const Guard& guard, PyObject* v) {
  auto size_word = [&](const Py_ssize_t* at) {
    add_word(reinterpret_cast<const uint64_t*>(at), static_cast<uint64_t>(*at), kNone);
  };
  if (guard.type) watch_class(v);
  switch (guard.kind) {
    case GuardKind::TypeIs:
    case GuardKind::Identity: watch_class(v); break;
    case GuardKind::Lacks:
    case GuardKind::Length:
    case GuardKind::DictKeys:
      if (PyDict_Check(v)) tag(v).whole.push_back(&guard);
      if (guard.kind == GuardKind::Lacks) break;
      // The order of an ordered dict is no part of the dict: it can change without the dict's version.
      if (PyODict_Check(v) && guard.kind == GuardKind::DictKeys && PyDict_GET_SIZE(v) > 1)
        always_.emplace_back(&guard, v);
      if (PyList_Check(v) || (PyTuple_Check(v) && is_container(v)))
        size_word(&reinterpret_cast<PyVarObject*>(v)->ob_size);
      if (PyAnySet_Check(v)) size_word(&reinterpret_cast<PySetObject*>(v)->used);
      break;
    case GuardKind::SetMembers:
      // Sets have no version: compared anew at every check.
      if (!PyFrozenSet_Check(v)) always_.emplace_back(&guard, v);
      break;
    default: break;
  }
}

}  // namespace braze::capture
