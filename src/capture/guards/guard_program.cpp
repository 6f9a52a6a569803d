#include <algorithm>
#include <functional>
#include <unordered_map>

#include "base/check.h"
#include "capture/cpython/dict.h"
#include "capture/guards/death_watch.h"
#include "capture/guards/group_guards.h"
#include "capture/guards/guards_eval.h"

namespace braze::capture {

namespace {

constexpr uint32_t kNone = UINT32_MAX;

// Guards that are done after the watch table, because they cost more than a few instructions.
bool is_late(GuardKind k) { return k == GuardKind::Tensor || k == GuardKind::Answer; }
bool is_pair(GuardKind k) { return k == GuardKind::SameObject || k == GuardKind::Distinct; }
// Guards on one value alone.
bool is_single(GuardKind k) { return !is_pair(k) && k != GuardKind::AllDistinct && k != GuardKind::Apart; }

int rank(GuardKind k) {
  switch (k) {
    case GuardKind::TypeIs: return 0;
    case GuardKind::Identity:
    case GuardKind::WeakIdentity: return 1;
    case GuardKind::Absent:
    case GuardKind::Exists:
    case GuardKind::Length: return 2;
    case GuardKind::Equal: return 3;
    default: return 4;
  }
}

// Objects of these types can't be given another __class__.
bool class_is_fixed(PyObject* o) {
  return (Py_TYPE(o)->tp_flags & Py_TPFLAGS_IMMUTABLETYPE) && !PyModule_Check(o);
}

// Refers to objects that may be large, or be its owners. Of other classes without weak references (numbers, strings, slices, properties,
// descriptors) the instances never change and hold little.
bool is_container(PyObject* o) {
  if (PyTuple_CheckExact(o)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); ++i)
      if (PyType_IS_GC(Py_TYPE(PyTuple_GET_ITEM(o, i)))) return true;
    return false;
  }
  return PyDict_Check(o) || PyList_Check(o) || PyTuple_Check(o) || PyAnySet_Check(o) || PyCell_Check(o) || PyExceptionInstance_Check(o) ||
         Py_TYPE(o) == &PyDictProxy_Type || (Py_TYPE(o)->tp_flags & Py_TPFLAGS_HEAPTYPE && PyType_IS_GC(Py_TYPE(o)));
}

class Program final : public GuardProgram {
 public:
  Program(std::shared_ptr<const Sources> sources, const GuardSet& guards, const std::vector<SourceId>& wanted,
          uint64_t global_state, size_t num_locals_plus, SizeGuards sizes)
      : sources_(std::move(sources)),
        guards_(guards.items()),
        global_state_(global_state),
        num_locals_plus_(num_locals_plus),
        sizes_(std::move(sizes)) {
    build(wanted);
    build_sizes();
    loosen();
  }

  bool check(PyObject* const* slots) override {
    if (over_) return false;
    unsigned lost = lost_;
    return holds_for(slots) && lost_ == lost;  // what a check calls may end an object
  }

  const std::unordered_set<PyObject*>& mortals() const override { return mortals_; }
  void when_over(std::function<void()> then) override { then_ = std::move(then); }
  bool is_over() const override { return over_; }

  PyObject* const* values() const override { return values_.data(); }
  const int64_t* size_values() const override { return size_values_.data(); }
  int traverse(visitproc visit, void* arg) const {
    for (const Guard& g : guards_) {
      Py_VISIT(g.object.owned());
      for (const LooseRef& m : g.members) Py_VISIT(m.owned());
    }
    for (const Ref& r : pins_) Py_VISIT(r.get());
    return 0;
  }
  size_t num_watched() const override { return words_.size() + short_words_.size(); }
  size_t num_steps() const override { return moving_.size() + trailing_.size() + late_.size() + late_groups_.size() + apart_.size(); }

  std::string failure() override {
    if (over_) {
      bool printable = failed_ && sources_->is_held(failed_->source);
      return (printable ? sources_->print(failed_->source) : "an object that was compared by identity") + (failed_ && !failed_->members.empty() ? " has a key that is gone" : " is gone");
    }
    if (global_changed_) return "global state of PyTorch changed (grad mode, autocast, default dtype or device, deterministic mode)";
    if (size_failure_ != SizeFailure::None) return describe_size_failure();
    if (!failed_) return "none";
    return describe_failure(*failed_, *sources_, failed_value_);
  }

 private:
  struct Node {
    uint32_t reg, base;  // indices into vals_
    const Source* source;
    uint32_t guards_begin = 0, guards_end = 0;  // in early_
  };
  struct Late {
    const Guard* guard;
    uint32_t reg, other;
    const trace::TensorSpec* tensor;  // of a Tensor guard
  };
  struct Group {
    const Guard* guard;
    std::vector<uint32_t> registers;
  };
  // What to look up again when a tag moved.
  struct KeyRead {
    PyObject* key;
    PyObject* value;  // nullptr: was not there
    PyTypeObject* type = nullptr;  // of the value
  };
  struct Tagged {
    PyObject* object;  // a dict or a type
    std::vector<KeyRead> keys;
    std::vector<std::pair<const Guard*, PyObject*>> whole;  // guards over the whole dict
    bool any_change = false;  // the order of keys was read: no change can be taken
  };
  struct Word {
    const uint64_t* at;
    uint64_t expected;
  };
  struct ShortWord {
    const unsigned* at;
    unsigned expected;
  };

  bool holds_for(PyObject* const* slots) {
    failed_ = nullptr;
    size_failure_ = SizeFailure::None;
    global_changed_ = false;
    if (trace::global_state_key() != global_state_) return fail_global();
    for (const Node& n : moving_) {
      PyObject* v = fetch(n, slots);
      vals_[n.reg] = v;
      for (uint32_t g = n.guards_begin; g < n.guards_end; ++g)
        if (!holds(*early_[g], v, nullptr)) return fail(early_[g], v);
    }
    for (size_t i = 0; i < arguments_; ++i)
      if (const Late& l = late_[i]; !holds(*l.guard, vals_[l.reg], l.other == kNone ? nullptr : vals_[l.other])) return fail(l.guard, vals_[l.reg]);
    if (!fresh_ || !watched_hold()) {
      if (!refresh(slots)) return false;
    }
    for (const Node& n : trailing_) {
      PyObject* v = fetch(n, slots);
      vals_[n.reg] = v;
      for (uint32_t g = n.guards_begin; g < n.guards_end; ++g)
        if (!holds(*early_[g], v, nullptr)) return fail(early_[g], v);
    }
    for (size_t i = arguments_; i < late_.size(); ++i) {
      const Late& l = late_[i];
      PyObject* v = vals_[l.reg];
      if (l.tensor) [[likely]] {
        if (!v || !trace::matches(*l.tensor, v)) return fail(l.guard, v);
        continue;
      }
      if (!holds(*l.guard, v, l.other == kNone ? nullptr : vals_[l.other])) return fail(l.guard, v);
    }
    for (const Group& g : late_groups_)
      if (!all_distinct(g.registers, vals_)) return fail(g.guard, nullptr);
    for (auto& [guard, storages] : apart_)
      if (!storages.hold(vals_)) return fail(guard, nullptr);
    if (!places_.empty() && !sizes_hold()) return false;
    for (auto [to, reg] : wanted_moving_) values_[to] = vals_[reg];
    return true;
  }

  bool fail(const Guard* g, PyObject* v) {
    failed_ = g;
    failed_value_ = v;
    global_changed_ = false;
    return false;
  }
  bool fail_global() {
    global_changed_ = true;
    return false;
  }

  PyObject* fetch(const Node& n, PyObject* const* slots) const {
    if (n.source->kind == SourceKind::Local) return slots[n.source->index];
    return step(*n.source, n.base == kNone ? nullptr : vals_[n.base], slots, num_locals_plus_);
  }

  void build(const std::vector<SourceId>& wanted) {
    const Sources& all = *sources_;
    for (SourceId w : wanted) BRAZE_CHECK(w.index < all.size(), "a value without a source is loaded");
    for (const Guard& g : guards_) BRAZE_CHECK(g.source.index < all.size(), "a guard without a source");
    std::vector<char> needed(all.size()), identity(all.size());
    std::function<void(SourceId)> need = [&](SourceId s) {
      for (; s.valid() && !needed[s.index]; s = all[s].base) needed[s.index] = 1;
    };
    for (const Guard& g : guards_) {
      need(g.source);
      need(g.other);
      for (SourceId s : g.group) need(s);
      if (g.kind == GuardKind::Identity) identity[g.source.index] = 1;
    }
    for (SourceId s : wanted) need(s);
    for (const SizeGuards::Place& p : sizes_.places) need(p.source);

    std::vector<uint32_t> reg(all.size(), kNone);
    std::vector<char> anchored(all.size()), fixed(all.size()), trailing(all.size());
    std::vector<std::vector<const Guard*>> by_source(all.size());
    for (const Guard& g : guards_)
      if (!is_late(g.kind) && is_single(g.kind)) by_source[g.source.index].push_back(&g);
    // A base has a smaller id than what hangs off it.
    for (size_t i = 0; i < all.size(); ++i) {
      if (!needed[i]) continue;
      const Source& s = all[SourceId(i)];
      anchored[i] = s.kind == SourceKind::Const || (s.base.valid() && fixed[s.base.index] && !trailing[s.base.index] && !is_fleeting(s.kind));
      fixed[i] = anchored[i] || identity[i];
      reg[i] = static_cast<uint32_t>(vals_.size());
      vals_.push_back(nullptr);
      Node n{reg[i], s.base.valid() ? reg[s.base.index] : kNone, &s};
      auto& list = by_source[i];
      std::stable_sort(list.begin(), list.end(), [](auto* a, auto* b) { return rank(a->kind) < rank(b->kind); });
      n.guards_begin = static_cast<uint32_t>(early_.size());
      early_.insert(early_.end(), list.begin(), list.end());
      n.guards_end = static_cast<uint32_t>(early_.size());
      // What is fetched anew from something that is watched comes after the watched.
      trailing[i] = !anchored[i] && s.base.valid() && (anchored[s.base.index] || trailing[s.base.index]);
      (anchored[i] ? anchored_ : trailing[i] ? trailing_ : moving_).push_back(n);
      if (identity[i] && !anchored[i]) roots_.push_back(n.reg);
    }
    for (const Guard& g : guards_) {
      if (!g.group.empty()) {
        std::vector<uint32_t> registers;
        bool all_anchored = true;
        for (SourceId s : g.group) registers.push_back(reg[s.index]), all_anchored &= anchored[s.index] != 0;
        if (g.kind == GuardKind::Apart) apart_.emplace_back(&g, StoragesApart(std::move(registers), static_cast<size_t>(g.number)));
        else (all_anchored ? anchored_groups_ : late_groups_).push_back({&g, std::move(registers)});
        continue;
      }
      if (!is_late(g.kind) && !is_pair(g.kind)) continue;
      bool both_anchored = anchored[g.source.index] && (!g.other.valid() || anchored[g.other.index]);
      Late l{&g, reg[g.source.index], g.other.valid() ? reg[g.other.index] : kNone, g.kind == GuardKind::Tensor ? g.tensor.get() : nullptr};
      (both_anchored && !is_late(g.kind) ? anchored_pairs_ : late_).push_back(l);
    }
    // Cheap comparisons of identities before tensors, tensors that are arguments before parameters.
    std::stable_sort(late_.begin(), late_.end(), [&](const Late& a, const Late& b) {
      auto key = [&](const Late& l) {
        if (!is_late(l.guard->kind) || l.guard->kind == GuardKind::Answer) return 0;
        return anchored[l.guard->source.index] ? 2 : 1;
      };
      return key(a) < key(b);
    });
    // What looks at arguments only comes before the watched objects: another size is found at once.
    auto is_argument = [&](SourceId s) { return !anchored[s.index] && !trailing[s.index]; };
    auto moves = [&](const Late& l) { return is_argument(l.guard->source) && (!l.guard->other.valid() || is_argument(l.guard->other)); };
    arguments_ = static_cast<size_t>(std::stable_partition(late_.begin(), late_.end(), moves) - late_.begin());
    for (const SizeGuards::Place& p : sizes_.places) places_.push_back({reg[p.source.index], p.dim, p.symbol, p.integer});
    values_.assign(wanted.size(), nullptr);
    for (size_t i = 0; i < wanted.size(); ++i) {
      std::pair<uint32_t, uint32_t> w{static_cast<uint32_t>(i), reg[wanted[i].index]};
      (anchored[wanted[i].index] ? wanted_anchored_ : wanted_moving_).push_back(w);
    }
  }

  // What others keep alive as long as the guards can hold is not kept by them.
  void loosen() {
    auto give_up = [&](const Guard& g, LooseRef& r) {
      if (!mortals_.count(r.get())) {
        if (!deaths_.add(r.get())) return;
        mortals_.insert(r.get());
        first_guards_.push_back(&g);
      }
      r.loosen();
    };
    for (Guard& g : guards_) {
      if (g.kind == GuardKind::Identity || g.kind == GuardKind::WeakIdentity || g.kind == GuardKind::TypeIs) give_up(g, g.object);
      for (LooseRef& m : g.members)
        if (is_compared_by_address(m.get())) give_up(g, m);
    }
    secured_ = mortals_;
    for (const Guard& g : guards_)
      if (g.object) secured_.insert(g.object.get());
    for (size_t i = 0; i < sources_->size(); ++i)
      if (const Source& s = (*sources_)[SourceId(i)]; s.kind == SourceKind::Const) secured_.insert(s.key.get());
  }

  // One of mortals_ goes.
  void end(const Guard& of) {
    over_ = true;
    lose();
    failed_ = &of;
    if (std::function<void()> then = then_) then();
  }

  void build_sizes() {
    if (sizes_.empty()) return;
    std::vector<sym::Expr> inputs, conditions;
    for (const auto& s : sizes_.symbols) inputs.push_back(s.symbol);
    for (const auto& c : sizes_.conditions) conditions.push_back(c.condition);
    conditions_ = sym::IntProgram::compile(*sizes_.arena, conditions, inputs);
    formulas_ = sym::IntProgram::compile(*sizes_.arena, sizes_.values, inputs);
    symbol_values_.resize(sizes_.symbols.size());
    last_symbols_.resize(sizes_.symbols.size());
    size_values_.resize(sizes_.values.size());
    condition_values_.resize(sizes_.conditions.size());
    size_t n = 0;
    std::vector<char> seen(sizes_.symbols.size());
    for (Place& p : places_) p.first = !std::exchange(seen[p.symbol], 1), n += p.first;
    BRAZE_CHECK(n == seen.size(), "a size symbol without a place");
  }

  bool sizes_hold() {
    for (size_t i = 0; i < places_.size(); ++i) {
      const Place& p = places_[i];
      PyObject* o = vals_[p.reg];
      int64_t v = 0;
      if (p.integer) {
        int overflow = 0;
        if (!o || !PyLong_CheckExact(o)) return fail_size(SizeFailure::Place, i, 0);
        v = PyLong_AsLongLongAndOverflow(o, &overflow);
        if (overflow) return fail_size(SizeFailure::Place, i, 0);
      } else {
        if (!o) return fail_size(SizeFailure::Place, i, 0);
        v = trace::read_size(o, p.dim);
      }
      if (!p.first) {
        if (v != symbol_values_[p.symbol]) return fail_size(SizeFailure::Place, i, v);
        continue;
      }
      const sym::Range& r = sizes_.symbols[p.symbol].range;
      if (v < r.lo || v > r.hi) return fail_size(SizeFailure::Place, i, v);
      symbol_values_[p.symbol] = v;
    }
    if (known_ && symbol_values_ == last_symbols_) return true;
    known_ = false;
    conditions_.run(symbol_values_.data(), condition_values_.data());
    for (size_t i = 0; i < condition_values_.size(); ++i)
      if (!condition_values_[i]) return fail_size(SizeFailure::Condition, i, 0);
    formulas_.run(symbol_values_.data(), size_values_.data());
    last_symbols_ = symbol_values_;
    known_ = true;
    return true;
  }

  enum class SizeFailure : uint8_t { None, Place, Condition };
  bool fail_size(SizeFailure kind, size_t which, int64_t found) {
    size_failure_ = kind;
    size_failure_at_ = which;
    size_found_ = found;
    return false;
  }

  std::string describe_size_failure() const {
    std::vector<std::string> text = print(sizes_, *sources_);
    size_t at = size_failure_ == SizeFailure::Place ? size_failure_at_ : sizes_.places.size() + size_failure_at_;
    std::string out = text[at];
    if (size_failure_ == SizeFailure::Place) return out + ": now " + std::to_string(size_found_);
    for (size_t i = 0; i < symbol_values_.size(); ++i)
      if (sizes_.arena->contains(sizes_.conditions[size_failure_at_].condition, sizes_.symbols[i].symbol))
        out += ", " + sizes_.arena->print(sizes_.symbols[i].symbol) + " is now " + std::to_string(symbol_values_[i]);
    return out;
  }

  // True when nothing that is watched changed. A word is only read after those on the way to it were found unchanged.
  bool watched_hold() {
    for (size_t i = 0, n = words_.size(); i < n; ++i) {
      if (*words_[i].at == words_[i].expected) [[likely]] continue;
      uint32_t t = owner_[i];
      if (t == kNone || !still_reads(tagged_[t]) || !fresh_) return false;
      words_[i].expected = *words_[i].at;
    }
    for (size_t i = 0, n = short_words_.size(); i < n; ++i) {
      if (*short_words_[i].at == short_words_[i].expected && short_words_[i].expected) [[likely]] continue;
      if (!still_reads(tagged_[short_owner_[i]]) || !fresh_) return false;
      short_words_[i].expected = *short_words_[i].at;
    }
    return true;
  }

  bool still_reads(const Tagged& t) const {
    if (t.any_change) return false;
    bool is_type = PyType_Check(t.object);
    for (const KeyRead& k : t.keys) {
      PyObject* v;
      if (is_type) {
        v = _PyType_Lookup(reinterpret_cast<PyTypeObject*>(t.object), k.key);
      } else {
        v = PyDict_GetItemWithError(t.object, k.key);
        if (!v && PyErr_Occurred()) PyErr_Clear();
      }
      if (v != k.value || (v && Py_TYPE(v) != k.type)) return false;
    }
    for (auto& [g, v] : t.whole)
      if (!holds(*g, v, nullptr)) return false;
    return true;
  }

  // Looks at everything that is watched and, if all guards hold, writes the table anew.
  bool refresh(PyObject* const* slots) {
    fresh_ = false;
    unsigned lost = lost_;
    std::vector<Ref> old;
    old.swap(pins_);  // released last: dropping a reference may run code
    pinned_.clear();
    pinned_deaths_.clear();
    for (const Node& n : anchored_) {
      PyObject* v = fetch(n, slots);
      vals_[n.reg] = v;
      for (uint32_t g = n.guards_begin; g < n.guards_end; ++g)
        if (!holds(*early_[g], v, nullptr)) return fail(early_[g], v);
    }
    for (const Late& l : anchored_pairs_)
      if (!holds(*l.guard, vals_[l.reg], vals_[l.other])) return fail(l.guard, vals_[l.reg]);
    for (const Group& g : anchored_groups_)
      if (!all_distinct(g.registers, vals_)) return fail(g.guard, nullptr);
    for (auto [to, reg] : wanted_anchored_) values_[to] = vals_[reg];

    words_.clear();
    owner_.clear();
    short_words_.clear();
    short_owner_.clear();
    tagged_.clear();
    seen_.clear();
    tag_of_.clear();
    for (uint32_t r : roots_) watch_class(vals_[r]);
    for (const Node& n : anchored_) watch(n);
    fresh_ = lost_ == lost;
    return true;
  }

  void lose() {
    fresh_ = false;
    ++lost_;
  }

  // Another object that comes to lie where `v` lies is not to be taken for it. The table hears of the end of v; or it holds v, if that
  // keeps nothing else alive; or v is a container, of which every word that was read is watched: holding it would keep alive what is in
  // it, and what that has in turn, which may well be the container's own owner.
  void secure(PyObject* v, SourceKind from) {
    if (secured_.count(v) || !pinned_.insert(v).second || pinned_deaths_.add(v)) return;
    if (!is_container(v)) return pins_.push_back(Ref::borrow(v));
    // A dict that did not change kept v; where it changed, the class of what it has now is compared. An instance's dict is a dict.
    bool class_known = from == SourceKind::DictItem || from == SourceKind::TypeAttr || from == SourceKind::InstanceDict;
    if (!class_known) word(&v->ob_type);
  }

  // Read only after the words on the way to it were found unchanged: it is still there then.
  template <class T>
  void word(T* at, uint32_t owner = kNone) {
    static_assert(sizeof(T) == 8);
    auto* p = reinterpret_cast<const uint64_t*>(at);
    if (!seen_.emplace(p, 1).second) return;
    words_.push_back({p, *p});
    owner_.push_back(owner);
  }

  void watch_class(PyObject* o) {
    if (o && !class_is_fixed(o)) word(&o->ob_type);
  }

  Tagged& tag(PyObject* o) {
    auto [it, fresh] = tag_of_.emplace(o, static_cast<uint32_t>(tagged_.size()));
    if (fresh) {
      tagged_.push_back({o});
      if (PyType_Check(o)) {
        auto* t = reinterpret_cast<PyTypeObject*>(o);
        short_words_.push_back({&t->tp_version_tag, t->tp_version_tag});
        short_owner_.push_back(it->second);
      } else {
        word(cpython::dict_version(o), it->second);
      }
    }
    return tagged_[it->second];
  }

  // The words on the step from base to node, and those that the node's own guards need.
  void watch(const Node& n) {
    PyObject* v = vals_[n.reg];
    PyObject* base = n.base == kNone ? nullptr : vals_[n.base];
    if (base) watch_step(*n.source, base, v);
    if (v) secure(v, n.source->kind);
    for (uint32_t g = n.guards_begin; g < n.guards_end; ++g) {
      const Guard& guard = *early_[g];
      if (!v) continue;
      switch (guard.kind) {
        case GuardKind::TypeIs:
        case GuardKind::Identity: watch_class(v); break;
        case GuardKind::Length:
        case GuardKind::DictKeys:
          if (PyDict_Check(v)) tag(v).whole.push_back({&guard, v});
          // The order of an ordered dict is no part of the dict: it can change without the dict's version.
          if (PyODict_Check(v) && guard.kind == GuardKind::DictKeys && PyDict_GET_SIZE(v) > 1) extra_late(guard, n.reg);
          if (PyList_Check(v) || (PyTuple_Check(v) && is_container(v))) word(&reinterpret_cast<PyVarObject*>(v)->ob_size);
          if (PyAnySet_Check(v)) word(&reinterpret_cast<PySetObject*>(v)->used);
          break;
        case GuardKind::SetMembers:
          // Sets have no version: compared anew at every check.
          if (!PyFrozenSet_Check(v)) extra_late(guard, n.reg);
          break;
        default: break;
      }
    }
  }

  void extra_late(const Guard& g, uint32_t reg) {
    for (const Late& l : late_)
      if (l.guard == &g) return;
    late_.push_back({&g, reg, kNone, nullptr});
  }

  void watch_step(const Source& s, PyObject* base, PyObject* v) {
    switch (s.kind) {
      case SourceKind::CellContents: word(&reinterpret_cast<PyCellObject*>(base)->ob_ref); break;
      case SourceKind::DictItem:
        if (PyDict_Check(base)) tag(base).keys.push_back({s.key.get(), v, v ? Py_TYPE(v) : nullptr});
        break;
      case SourceKind::DictKeyAt: if (PyDict_Check(base)) tag(base).any_change = true; break;
      case SourceKind::ListItem: {
        auto* l = reinterpret_cast<PyListObject*>(base);
        word(&reinterpret_cast<PyVarObject*>(base)->ob_size);
        word(&l->ob_item);
        if (v) word(&l->ob_item[s.index]);
        break;
      }
      case SourceKind::TupleItem:
        if (!is_container(base)) break;
        word(&reinterpret_cast<PyVarObject*>(base)->ob_size);
        if (v) word(&reinterpret_cast<PyTupleObject*>(base)->ob_item[s.index]);
        break;
      case SourceKind::MappingOrigin: word(reinterpret_cast<PyObject**>(base + 1)); break;
      case SourceKind::TypeOf: word(&base->ob_type); break;
      case SourceKind::InstanceDict:
        if (PyObject** p = _PyObject_GetDictPtr(base)) word(p);
        break;
      case SourceKind::TypeAttr:
        if (PyType_Check(base)) {
          // The lookup that found v has given the type a tag, if it had none.
          tag(base).keys.push_back({s.key.get(), v, v ? Py_TYPE(v) : nullptr});
        }
        break;
      case SourceKind::Slot: word(reinterpret_cast<PyObject**>(reinterpret_cast<char*>(base) + s.index)); break;
      case SourceKind::FuncCode: word(&reinterpret_cast<PyFunctionObject*>(base)->func_code); break;
      case SourceKind::FuncDefaults: word(&reinterpret_cast<PyFunctionObject*>(base)->func_defaults); break;
      case SourceKind::FuncKwDefaults: word(&reinterpret_cast<PyFunctionObject*>(base)->func_kwdefaults); break;
      case SourceKind::FuncClosure: word(&reinterpret_cast<PyFunctionObject*>(base)->func_closure); break;
      case SourceKind::PartialFunc:
      case SourceKind::PartialArgs:
      case SourceKind::PartialKeywords: {
        PyObject** first = reinterpret_cast<PyObject**>(base + 1);
        int at = s.kind == SourceKind::PartialFunc ? 0 : s.kind == SourceKind::PartialArgs ? 1 : 2;
        word(first + at);
        break;
      }
      case SourceKind::WeakTarget: word(&reinterpret_cast<PyWeakReference*>(base)->wr_object); break;
      default: break;  // immutable, and held or heard of: methods, properties, static methods, a function's globals
    }
  }

  std::shared_ptr<const Sources> sources_;
  std::vector<Guard> guards_;
  uint64_t global_state_;
  size_t num_locals_plus_;

  std::vector<PyObject*> vals_;  // by register; anchored ones are those of the last refresh
  std::vector<Node> moving_, anchored_, trailing_;
  std::vector<const Guard*> early_;
  std::vector<Late> late_, anchored_pairs_;
  std::vector<Group> late_groups_, anchored_groups_;
  std::vector<std::pair<const Guard*, StoragesApart>> apart_;
  std::vector<uint32_t> roots_;
  std::vector<std::pair<uint32_t, uint32_t>> wanted_moving_, wanted_anchored_;
  std::vector<PyObject*> values_;

  bool fresh_ = false, over_ = false;
  unsigned lost_ = 0;  // how often something went that is known by its address
  std::vector<Word> words_;
  std::vector<uint32_t> owner_;  // by word: the dict to look into when its tag moved
  std::vector<ShortWord> short_words_;
  std::vector<uint32_t> short_owner_;
  std::vector<Tagged> tagged_;
  // What the words and the values of keys are compared with.
  std::vector<Ref> pins_;
  std::unordered_set<PyObject*> pinned_;
  DeathWatch pinned_deaths_{[this](size_t) { lose(); }};
  std::unordered_map<const uint64_t*, char> seen_;
  std::unordered_map<PyObject*, uint32_t> tag_of_;

  SizeGuards sizes_;
  struct Place {
    uint32_t reg;
    int32_t dim;
    uint32_t symbol;
    bool integer, first = false;
  };
  size_t arguments_ = 0;  // the first so many of late_ look at nothing that is anchored
  std::vector<Place> places_;
  sym::IntProgram conditions_, formulas_;
  std::vector<int64_t> symbol_values_, last_symbols_, condition_values_, size_values_;
  bool known_ = false;    // size_values_ are those of last_symbols_
  SizeFailure size_failure_ = SizeFailure::None;
  size_t size_failure_at_ = 0;
  int64_t size_found_ = 0;

  std::unordered_set<PyObject*> mortals_;
  std::vector<const Guard*> first_guards_;  // of each
  DeathWatch deaths_{[this](size_t i) { end(*first_guards_[i]); }};
  std::function<void()> then_;
  std::unordered_set<PyObject*> secured_;  // what is held for as long as the program lives, and mortals_

  const Guard* failed_ = nullptr;
  PyObject* failed_value_ = nullptr;
  bool global_changed_ = false;
};

}  // namespace

int traverse(const GuardProgram& program, visitproc visit, void* arg) {
  return static_cast<const Program&>(program).traverse(visit, arg);  // there is no other kind
}

std::unique_ptr<GuardProgram> GuardProgram::compile(std::shared_ptr<const Sources> sources, const GuardSet& guards,
                                                    const std::vector<SourceId>& wanted, uint64_t global_state,
                                                    size_t num_locals_plus, SizeGuards sizes) {
  return std::make_unique<Program>(std::move(sources), guards, wanted, global_state, num_locals_plus, std::move(sizes));
}

}  // namespace braze::capture
