#include "capture/guards/guards.h"

#include <algorithm>
#include <unordered_map>

#include "base/hash.h"
#include "capture/cpython/dict.h"
#include "capture/cpython/set_table.h"
#include "capture/guards/guard_eval.h"
#include "launch/tensor_spec.h"

namespace braze::capture {

namespace {

constexpr size_t kFirstPlaces = 256;

uint64_t hash_of(const Guard& guard) {
  Hasher h;
  h.add(guard.kind);
  h.add(guard.source.index);
  h.add(guard.other.index);
  return h.value();
}

}  // namespace

bool GuardSet::add(Guard guard) {
  uint64_t hash = hash_of(guard);
  uint32_t known = index_.find(hash, [&](uint32_t id) {
    const Guard& g = items_[id];
    return g.kind == guard.kind && g.source == guard.source && g.other == guard.other && g.number == guard.number &&
           g.group == guard.group && (g.kind != GuardKind::FloatHolds || *g.floats == *guard.floats) &&
           (g.object.get() == guard.object.get() || guard.kind == GuardKind::DictKeys ||
            guard.kind == GuardKind::SetMembers ||
            (guard.kind == GuardKind::Answer && equal_constants(g.object.get(), guard.object.get())));
  });
  if (known != HashIndex::kNone) return false;
  index_.insert(hash, static_cast<uint32_t>(items_.size()));
  // A model has thousands, which are large: each move to a larger place touches fresh pages.
  static_assert(std::is_nothrow_move_constructible_v<Guard>);
  if (items_.size() == items_.capacity()) items_.reserve(std::max(kFirstPlaces, 4 * items_.size()));
  items_.push_back(std::move(guard));
  return true;
}

void GuardSet::truncate(size_t n) {
  if (n >= items_.size()) return;
  items_.resize(n);
  index_.clear();
  for (size_t i = 0; i < n; ++i) index_.insert(hash_of(items_[i]), static_cast<uint32_t>(i));
}

void GuardSet::forget(const std::unordered_set<PyObject*>& made, const Sources& sources) {
  std::erase_if(items_, [&](const Guard& g) {
    SourceId root = g.source;
    while (sources[root].base.valid()) root = sources[root].base;
    return g.group.empty() && sources[root].kind == SourceKind::Const && made.contains(sources[root].key.get());
  });
}

void GuardSet::simplify(const Sources& sources) {
  // What is compared where the value is fetched, before anything that hangs off it is: layouts of objects are only
  // known by their class.
  auto says_class = [](GuardKind k) { return k == GuardKind::Equal || k == GuardKind::RangeIs; };
  auto takes_class = [](GuardKind k) {
    return k == GuardKind::Identity || k == GuardKind::WeakIdentity || k == GuardKind::Length ||
           k == GuardKind::DictKeys || k == GuardKind::SetMembers;
  };
  // By source.
  std::vector<char> is_there(sources.size()), typed(sources.size());
  std::vector<Guard*> taker(sources.size());
  auto there = [&](SourceId s) {
    for (; s.valid() && !is_there[s.index]; s = sources[s].base) is_there[s.index] = 1;
  };
  for (Guard& g : items_) {
    if (g.kind == GuardKind::Exists) there(sources[g.source].base);
    if (g.kind == GuardKind::Absent || g.kind == GuardKind::Lacks || g.kind == GuardKind::Exists ||
        g.kind == GuardKind::Distinct || !g.group.empty())
      continue;
    there(g.source);
    there(g.other);
    typed[g.source.index] |= says_class(g.kind);
    if (takes_class(g.kind) && !taker[g.source.index]) taker[g.source.index] = &g;
  }
  // What one dict lacks is one guard.
  std::unordered_map<uint32_t, std::vector<Guard*>> absent;  // by dict
  for (Guard& g : items_)
    if (const Source& s = sources[g.source];
        g.kind == GuardKind::Absent && s.kind == SourceKind::DictItem && PyUnicode_CheckExact(s.key.get()))
      absent[s.base.index].push_back(&g);
  for (auto& [dict, guards] : absent) {
    if (guards.size() < 2) continue;
    std::vector<LooseRef> keys;
    for (Guard* g : guards) keys.push_back(sources[g->source].key);
    for (Guard* g : guards) g->kind = GuardKind::Lacks;
    guards[0]->source = SourceId(dict);
    guards[0]->members = std::move(keys);
  }
  std::vector<Guard> kept;
  for (Guard& g : items_) {
    if (g.kind != GuardKind::TypeIs) continue;
    if (Guard* t = taker[g.source.index]; t && !t->type) t->type = g.object;
    typed[g.source.index] |= taker[g.source.index] != nullptr;
  }
  for (Guard& g : items_) {
    bool implied = g.kind == GuardKind::Exists   ? is_there[g.source.index]
                   : g.kind == GuardKind::TypeIs ? typed[g.source.index]
                                                 : g.kind == GuardKind::Lacks && g.members.empty();
    if (!implied) kept.push_back(std::move(g));
  }
  items_ = std::move(kept);
  index_.clear();
  for (size_t i = 0; i < items_.size(); ++i) index_.insert(hash_of(items_[i]), static_cast<uint32_t>(i));
}

void GuardSet::type_is(SourceId s, PyTypeObject* type, UserLine line) {
  add({GuardKind::TypeIs, s, {}, 0, Ref::borrow(reinterpret_cast<PyObject*>(type)), nullptr, line});
}
void GuardSet::identity(SourceId s, PyObject* object, UserLine line) {
  add({GuardKind::Identity, s, {}, 0, Ref::borrow(object), nullptr, line});
}
void GuardSet::weak_identity(SourceId s, PyObject* object, UserLine line) {
  add({GuardKind::WeakIdentity, s, {}, 0, Ref::borrow(object), nullptr, line});
}
void GuardSet::equal(SourceId s, PyObject* object, UserLine line) {
  add({GuardKind::Equal, s, {}, 0, Ref::borrow(object), nullptr, line});
}
void GuardSet::tensor(SourceId s, PyObject* tensor, const std::vector<trace::SymbolicDim>& symbolic, UserLine line) {
  size_t before = items_.size();
  add({GuardKind::Tensor, s, {}, 0, {}, nullptr, line});
  if (items_.size() > before) items_.back().symbolic = symbolic;
  if (items_.size() > before) items_.back().tensor = launch::snapshot(tensor, symbolic);
}
void GuardSet::exists(SourceId s, UserLine line) { add({GuardKind::Exists, s, {}, 0, {}, nullptr, line}); }
void GuardSet::absent(SourceId s, UserLine line) { add({GuardKind::Absent, s, {}, 0, {}, nullptr, line}); }
void GuardSet::length(SourceId s, int64_t n, UserLine line) { add({GuardKind::Length, s, {}, n, {}, nullptr, line}); }
void GuardSet::dict_keys(SourceId s, PyObject* dict, UserLine line) {
  Ref keys = Ref::steal(cpython::keys_in_order(dict));
  if (!keys) {  // an OrderedDict whose keys' hashes change
    PyErr_Clear();
    throw Unsupported(Reason::RaisedException, "the keys of " + std::string(Py_TYPE(dict)->tp_name) + " are not found");
  }
  add({GuardKind::DictKeys, s, {}, 0, {}, nullptr, line, {}, {}, items_of(keys.get())});
}
void GuardSet::same_object(SourceId a, SourceId b, UserLine line) {
  add({GuardKind::SameObject, a, b, 0, {}, nullptr, line});
}
void GuardSet::distinct(SourceId a, SourceId b, UserLine line) {
  add({GuardKind::Distinct, a, b, 0, {}, nullptr, line});
}
void GuardSet::all_distinct(std::vector<SourceId> group, UserLine line) {
  SourceId first = group.front();
  add({GuardKind::AllDistinct, first, {}, 0, {}, nullptr, line, {}, std::move(group)});
}
void GuardSet::set_members(SourceId s, PyObject* set, UserLine line) {
  // As the set has them, whatever its class says of an iteration.
  std::vector<LooseRef> members;
  Py_ssize_t place = 0;
  while (PyObject* member = next_element(set, place)) members.push_back(Ref::borrow(member));
  add({GuardKind::SetMembers, s, {}, 0, {}, nullptr, line, {}, {}, std::move(members)});
}
void GuardSet::range_is(SourceId s, PyObject* range, UserLine line) {
  add({GuardKind::RangeIs, s, {}, 0, Ref::borrow(range), nullptr, line});
}
void GuardSet::answer(SourceId function, PyObject* arguments, PyObject* answer, UserLine line) {
  add({GuardKind::Answer, function, {}, 0, Ref::steal(PyTuple_Pack(2, arguments, answer)), nullptr, line});
}
void GuardSet::float_holds(FloatCondition condition, UserLine line) {
  SourceId first = condition.sources.front();
  std::vector<SourceId> group = condition.sources;
  add({GuardKind::FloatHolds,
       first,
       {},
       0,
       {},
       nullptr,
       line,
       {},
       std::move(group),
       {},
       {},
       std::make_shared<const FloatCondition>(std::move(condition))});
}
void GuardSet::apart(std::vector<SourceId> group, size_t written, UserLine line) {
  SourceId first = group.front();
  add({GuardKind::Apart, first, {}, static_cast<int64_t>(written), {}, nullptr, line, {}, std::move(group)});
}

}  // namespace braze::capture
