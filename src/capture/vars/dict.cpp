#include "capture/vars/dict.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "capture/cpython/dict.h"
#include "capture/eval/library_objects.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"
#include "capture/vars/key.h"

namespace braze::capture {

namespace {

// Whether Python code says what a key's hash is.
bool is_compared_by_code(PyObject* key) {
  if (PyTuple_CheckExact(key)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); ++i)
      if (is_compared_by_code(PyTuple_GET_ITEM(key, i))) return true;
    return false;
  }
  PyTypeObject* t = Py_TYPE(key);
  if (!(t->tp_flags & Py_TPFLAGS_HEAPTYPE) || t->tp_hash == PyBaseObject_Type.tp_hash || PyType_Check(key) ||
      PyObject_TypeCheck(key, library().enum_) || PyObject_TypeCheck(key, library().tensor))
    return false;
  static PyObject* name = PyUnicode_InternFromString("__hash__");
  PyObject* hash = native::type_attr(Ground::conservative(), t, name);
  return hash && PyFunction_Check(hash) && !of_library(hash);
}

}  // namespace

DictVariable::DictVariable(PyTypeObject* t) : Variable(Kind::Dict), cls(t), index_(Ref::steal(PyDict_New())) {}

DictVariable::DictVariable(PyObject* r, SourceId s, PyTypeObject* t) : DictVariable(t) {
  real = Ref::borrow(r);
  source = s;
  loaded_ = false;
}

bool DictVariable::is_ordered_dict() const { return PyType_IsSubtype(cls, library().ordered_dict); }

Py_ssize_t DictVariable::find(Translator& tr, PyObject* hash_key) {
  // Where the == of a key changes this dict, the search begins again, as CPython's does.
  for (;;) {
    const Ref index = index_;
    const uint64_t before = structure;
    PyObject* at = native::item(Ground::made(), index.get(), hash_key);
    if (!at && PyErr_Occurred()) tr.raise_current();
    if (index.get() == index_.get() && structure == before) return at ? PyLong_AsSsize_t(at) : -1;
  }
}

void DictVariable::enter(Translator& tr, PyObject* hash_key, size_t at) {
  const Ref index = index_, n = Ref::steal(PyLong_FromSize_t(at));
  const uint64_t before = structure;
  if (!n || PyDict_SetItem(index.get(), hash_key, n.get()) < 0) tr.raise_current();
  if (index.get() != index_.get() || structure != before)
    tr.unsupported("a dict that the comparison of its keys changes");
}

void DictVariable::reindex() {
  Ref index = Ref::steal(PyDict_New());
  for (size_t i = 0; i < entries_.size(); ++i) {
    Ref n = Ref::steal(PyLong_FromSize_t(i));
    PyDict_SetItem(index.get(), entries_[i].hash_key.get(), n.get());
  }
  index_ = std::move(index);
}

// Of a key that was written: which entry of a dict that was there before a tensor finds says which tensor it has to be.
void DictVariable::guard_key(Translator& tr, const Ref& hash_key, Variable* key) {
  if (real && key->is(Kind::Tensor) && key->source.valid()) tr.guard_identity(key->source, hash_key.get());
}

Ref DictVariable::key_in(Translator& tr, Variable* key) {
  Ref k = key_of(tr, key);
  guard_key(tr, k, key);
  return k;
}

void DictVariable::load(Translator& tr) {
  if (loaded_) return;
  tr.guards().dict_keys(source, real.get(), tr.line());
  // The order of an OrderedDict is its own.
  Ref ordered = Ref::steal(PyODict_Check(real.get()) ? cpython::keys_in_order(real.get()) : nullptr);
  if (PyErr_Occurred()) {
    PyErr_Clear();
    tr.unsupported(Reason::RaisedException, "an OrderedDict whose keys are not found");
  }
  std::vector<Entry> written = std::move(entries_);
  entries_.clear();
  loaded_ = true;
  auto put = [&](PyObject* key, PyObject* value) {
    SourceId at = tr.sources().dict_item(source, key);
    // What code of the user's compares, the capture compares: such a key stands in the index as one of the capture's
    // own.
    Variable* k = tr.global_object(key, Ground::pure(this));
    append({is_compared_by_code(key) ? tr.force(k)->hash_key(tr) : Ref::borrow(key), k, tr.wrap(value, at)});
  };
  if (ordered) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(ordered.get()); ++i) {
      PyObject* key = PyTuple_GET_ITEM(ordered.get(), i);
      PyObject* value = native::item(Ground::guarded(source), real.get(), key);
      if (!value && PyErr_Occurred()) tr.raise_current();
      if (!value) tr.unsupported("an OrderedDict without a value for one of its keys");
      put(key, value);
    }
  } else {
    PyObject *k, *v;
    Py_ssize_t pos = 0;
    while (PyDict_Next(real.get(), &pos, &k, &v)) put(k, v);
  }
  reindex();
  for (Entry& w : written) {
    Py_ssize_t i = find(tr, w.hash_key.get());
    const Change* change = change_of(tr, w.hash_key.get());
    const bool moved = change && change->deleted;
    if (i >= 0 && (!w.value || moved)) {
      entries_.erase(entries_.begin() + i);
      reindex();
      i = -1;
    }
    if (!w.value) continue;
    if (i >= 0) {
      entries_[static_cast<size_t>(i)].value = w.value;
    } else {
      append(w);
      enter(tr, w.hash_key.get(), entries_.size() - 1);
    }
  }
}

const std::vector<DictVariable::Entry>& DictVariable::entries(Translator& tr) {
  load(tr);
  return entries_;
}

// Where user code compares the key, all keys are to be known: the place of one such key can't be guarded alone.
void DictVariable::load_for(Translator& tr, PyObject* hash_key) {
  if (!loaded_ && holds_made_key(hash_key)) load(tr);
}

Variable* DictVariable::get(Translator& tr, PyObject* key) {
  load_for(tr, key);
  Py_ssize_t i = find(tr, key);
  if (i >= 0) return entries_[static_cast<size_t>(i)].value;
  if (loaded_) return nullptr;
  PyObject* v = native::item(Ground::guarded(source), real.get(), key);
  if (!v && PyErr_Occurred()) tr.raise_current();
  SourceId at = tr.sources().dict_item(source, key);
  if (!v) {
    tr.guards().absent(at, tr.line());
    return nullptr;
  }
  tr.guards().exists(at, tr.line());
  return tr.wrap(v, at);
}

Variable* DictVariable::get(Translator& tr, Variable* key) {
  Ref k = key_in(tr, tr.force(key));
  return get(tr, k.get());
}

void DictVariable::note(Translator& tr, PyObject* hash_key, Variable* key, bool deleted, bool inserted) {
  if (!source.valid()) return;
  if (deleted && !loaded_) {
    // Whether the run finds it there too, also where the code itself has put a value under it before.
    SourceId at = tr.sources().dict_item(source, hash_key);
    int original = PyDict_Contains(real.get(), hash_key);
    if (original < 0) tr.raise_current();
    if (original)
      tr.guards().exists(at, tr.line());
    else
      tr.guards().absent(at, tr.line());
  }
  if (Change* c = change_of(tr, hash_key)) {
    c->deleted |= deleted;
    if (inserted) {
      // A key that was there keeps its place and itself; one that comes back is the one it comes back by.
      c->order = next_order_++;
      c->key = key;
    }
    return;
  }
  int original = PyDict_Contains(real.get(), hash_key);
  if (original < 0) tr.raise_current();
  if (!change_at_) change_at_ = Ref::steal(PyDict_New());
  Ref at = Ref::steal(PyLong_FromSize_t(changes_.size()));
  if (!at || PyDict_SetItem(change_at_.get(), hash_key, at.get()) < 0) tr.raise_current();
  changes_.push_back({Ref::borrow(hash_key), key, original == 1, deleted, next_order_++});
}

DictVariable::Change* DictVariable::change_of(Translator& tr, PyObject* hash_key) {
  if (changes_.empty()) return nullptr;
  PyObject* at = native::item(Ground::made(), change_at_.get(), hash_key);
  if (!at && PyErr_Occurred()) tr.raise_current();
  return at ? &changes_[PyLong_AsSize_t(at)] : nullptr;
}

void DictVariable::change(Translator& tr) {
  tr.mutate();
  tr.effects.modified(this);
}

void DictVariable::set(Translator& tr, Variable* key, Variable* value) {
  key = tr.force(key);
  set(tr, key_of(tr, key), key, value);
}

void DictVariable::set(Translator& tr, const Ref& k, Variable* key, Variable* value) {
  guard_key(tr, k, key);
  load_for(tr, k.get());
  Py_ssize_t i = find(tr, k.get());
  bool there = i >= 0 ? entries_[static_cast<size_t>(i)].value != nullptr
                      : !loaded_ && PyDict_Contains(real.get(), k.get()) == 1;
  change(tr);
  structure += !there;
  note(tr, k.get(), key, false, !there);
  if (i >= 0) {
    if (there) {
      entries_[static_cast<size_t>(i)].value = value;
      return;
    }
    entries_.erase(entries_.begin() + i);  // a tombstone: the key comes back at the end
    reindex();
  }
  enter(tr, k.get(), entries_.size());
  append({k, key, value});
}

void DictVariable::set(Translator& tr, PyObject* key, Variable* value) {
  set(tr, tr.constant(key, Ground::pure(this, value)), value);
}

bool DictVariable::remove(Translator& tr, Variable* key) {
  key = tr.force(key);
  Ref k = key_in(tr, key);
  if (!get(tr, k.get())) return false;
  change(tr);
  ++structure;
  note(tr, k.get(), key, true, false);
  Py_ssize_t i = find(tr, k.get());
  if (!loaded_) {
    if (i >= 0) {
      entries_[static_cast<size_t>(i)].value = nullptr;
    } else {
      append({k, key, nullptr});
      enter(tr, k.get(), entries_.size() - 1);
    }
    return true;
  }
  entries_.erase(entries_.begin() + i);
  reindex();
  return true;
}

void DictVariable::pop(Translator& tr, const Entry& e) {
  uint64_t serial = e.serial;
  remove(tr, e.key);
  next_serial_ = serial;
}

void DictVariable::clear(Translator& tr) {
  change(tr);
  ++structure;
  ++clears;
  entries_.clear();
  index_ = Ref::steal(PyDict_New());
  loaded_ = true;
  rewrite_ = true;
}

Variable* DictVariable::getattr(Translator& tr, PyObject* name) {
  if (default_factory && PyUnicode_CompareWithASCIIString(name, "default_factory") == 0) return default_factory;
  for (auto& [own, v] : attributes_)
    if (PyUnicode_Compare(own, name) == 0) return v;
  Variable* of_class = Variable::getattr(tr, name);
  if (!of_class && real && cls == library().ordered_dict)
    tr.unsupported("an attribute of an OrderedDict that was there before");
  return of_class;
}

void DictVariable::setattr(Translator& tr, PyObject* name, Variable* value) {
  SourceId at;
  if (cls != library().ordered_dict || real || source.valid() || !value || tr.attributes.lookup_on_type(cls, name, &at))
    return Variable::setattr(tr, name, value);
  tr.mutate();
  for (auto& [own, v] : attributes_)
    if (PyUnicode_Compare(own, name) == 0) {
      v = value;
      return;
    }
  attributes_.emplace_back(tr.keep(Ref::borrow(name)), value);
}

Variable* DictVariable::getitem(Translator& tr, Variable* key) {
  if (Variable* v = get(tr, key)) return v;
  if (default_factory && !is_none(tr.force(default_factory))) {
    Variable* v = tr.call(default_factory, std::vector<Variable*>{});
    if (Variable* stored = cpython::defaultdict_keeps_stored() ? get(tr, key) : nullptr) return stored;
    set(tr, key, v);
    return v;
  }
  tr.raise(tr.call(tr.global_object(PyExc_KeyError, Ground::fixed()), {key}));
}

void DictVariable::setitem(Translator& tr, Variable* key, Variable* value) { set(tr, key, value); }

void DictVariable::delitem(Translator& tr, Variable* key) {
  if (!remove(tr, key)) tr.raise(tr.call(tr.global_object(PyExc_KeyError, Ground::fixed()), {key}));
}

Variable* DictVariable::iter(Translator& tr) {
  return tr.make<DictIterator>(tr, this, DictIterator::What::Keys, false);
}

int64_t DictVariable::len(Translator& tr) {
  if (!loaded_ && entries_.empty()) {
    tr.guards().length(source, PyDict_GET_SIZE(real.get()), tr.line());
    return PyDict_GET_SIZE(real.get());
  }
  load(tr);
  return static_cast<int64_t>(entries_.size());
}

std::vector<Variable*> DictVariable::items(Translator& tr) {
  std::vector<Variable*> out;
  for (const Entry& e : entries(tr)) out.push_back(e.key);
  return out;
}

DictVariable* DictVariable::copy(Translator& tr) {
  auto* d = tr.make<DictVariable>(cls);
  d->default_factory = default_factory;
  for (const Entry& e : entries(tr)) d->append(e);
  d->reindex();
  return d;
}

bool DictVariable::move_to_end(Translator& tr, Variable* key, bool last) {
  load(tr);
  Ref k = key_in(tr, tr.force(key));
  Py_ssize_t i = find(tr, k.get());
  if (i < 0) return false;
  change(tr);
  ++structure;
  rewrite_ = true;
  Entry e = entries_[static_cast<size_t>(i)];
  entries_.erase(entries_.begin() + i);
  entries_.insert(last ? entries_.end() : entries_.begin(), e);
  reindex();
  return true;
}

Reg DictVariable::build(Codegen& cg) {
  std::vector<Reg> args;
  for (const Entry& e : entries_) {
    args.push_back(cg.reg(e.key));
    args.push_back(cg.reg(e.value));
  }
  Reg d = cg.recipe.make(StepKind::Dict, args);
  if (cls == &PyDict_Type) return d;
  Reg c = cg.constant(reinterpret_cast<PyObject*>(cls));
  if (cls == library().default_dict)
    return cg.recipe.make(StepKind::Call, {c, cg.reg(default_factory ? default_factory : cg.tr.none()), d});
  Reg made = cg.recipe.make(StepKind::Call, {c, d});
  for (auto& [name, v] : attributes_) cg.recipe.effect(StepKind::SetAttr, {made, cg.reg(v)}, name);
  return made;
}

void DictVariable::emit_changes(Codegen& cg, Reg self) {
  if (rewrite_) {
    std::vector<Reg> args{self};
    for (const Entry& e : entries_) {
      args.push_back(cg.reg(e.key));
      args.push_back(cg.reg(e.value));
    }
    cg.recipe.effect(StepKind::DictAssign, args);
    return;
  }
  std::vector<Change> changes = changes_;
  std::sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) { return a.order < b.order; });
  for (const Change& c : changes) {
    PyObject* at = native::item(Ground::made(), index_.get(), c.hash_key.get());
    Variable* value = at ? entries_[PyLong_AsSize_t(at)].value : nullptr;
    if (c.original && (c.deleted || !value)) cg.recipe.effect(StepKind::DelItem, {self, cg.reg(c.key)});
    if (value) cg.recipe.effect(StepKind::SetItem, {self, cg.reg(c.key), cg.reg(value)});
  }
}

DictVariable* instance_dict_of(Translator& tr, Variable* owner) {
  DictVariable* dict = tr.dict();
  dict->owner = owner, dict->is_instance_dict = true;
  return dict;
}

DictVariable* dict_behind(Translator& tr, Variable* v) {
  v = tr.force(v);
  if (v->is(Kind::Object) && v->as<ObjectVariable>()->base) v = v->as<ObjectVariable>()->base;
  if (!v->is(Kind::Dict)) tr.unsupported("a __dict__ that is " + v->describe());
  return v->as<DictVariable>();
}

// ---- proxies ----

Variable* MappingProxyVariable::call_method(Translator& tr, const char* name, Args& args) {
  static const std::unordered_set<std::string_view> reads{
      "get", "keys", "values", "items", "copy", "__getitem__", "__contains__", "__len__", "__iter__", "__reversed__"};
  return reads.count(name) ? tr.call(tr.getattr(mapping, name), args) : nullptr;
}

Reg MappingProxyVariable::build(Codegen& cg) {
  return cg.recipe.make(StepKind::Call, {cg.constant(reinterpret_cast<PyObject*>(&PyDictProxy_Type)), cg.reg(mapping)});
}

// ---- views ----

PyTypeObject* DictViewVariable::type() const {
  if (dict->is_ordered_dict())
    return what == What::Keys ? &PyODictKeys_Type : what == What::Values ? &PyODictValues_Type : &PyODictItems_Type;
  return what == What::Keys ? &PyDictKeys_Type : what == What::Values ? &PyDictValues_Type : &PyDictItems_Type;
}

std::vector<Variable*> DictViewVariable::items(Translator& tr) {
  std::vector<Variable*> out;
  auto all = dict->entries(tr);
  for (const auto& e : all)
    out.push_back(what == What::Keys     ? e.key
                  : what == What::Values ? e.value
                                         : static_cast<Variable*>(tr.tuple({e.key, e.value})));
  return out;
}

bool DictViewVariable::contains(Translator& tr, Variable* item) {
  if (what == What::Keys) return dict->contains(tr, item);
  if (what == What::Items) {
    item = tr.force(item);
    if (!item->is(Kind::Tuple) || item->len(tr) != 2) return false;
    const auto& pair = item->as<TupleVariable>()->elements;
    Variable* v = dict->get(tr, pair[0]);
    return v && tr.same_item(v, pair[1]);
  }
  return Variable::contains(tr, item);
}

Variable* DictViewVariable::iter(Translator& tr) {
  return tr.make<DictIterator>(tr, dict, static_cast<DictIterator::What>(what), false);
}

Variable* DictViewVariable::getattr(Translator& tr, PyObject* name) {
  if (PyUnicode_CompareWithASCIIString(name, "mapping") == 0) return tr.make<MappingProxyVariable>(dict);
  return Variable::getattr(tr, name);
}

Variable* DictViewVariable::call_method(Translator& tr, const char* name, Args& args) {
  std::string_view n = name;
  if (n == "__len__") return tr.integer(len(tr), Ground::pure(this, args));
  if (n == "__iter__") return iter(tr);
  if (n == "__contains__" && args.size() == 1) return tr.boolean(contains(tr, args[0]), Ground::pure(this, args));
  if (n == "__reversed__") return tr.make<DictIterator>(tr, dict, static_cast<DictIterator::What>(what), true);
  if (n == "isdisjoint" && args.size() == 1 && what != What::Values) {
    for (Variable* v : tr.unpack(args[0]))
      if (contains(tr, v)) return tr.boolean(false, Ground::pure(this, args));
    return tr.boolean(true, Ground::pure(this, args));
  }
  return nullptr;
}

Reg DictViewVariable::build(Codegen& cg) {
  static const char* names[] = {"keys", "values", "items"};
  Ref method = Ref::steal(
      native::attr(Ground::fixed(), reinterpret_cast<PyObject*>(dict->type()), names[static_cast<int>(what)]));
  return cg.recipe.make(StepKind::Call, {cg.constant(method.get()), cg.reg(dict)});
}

}  // namespace braze::capture
