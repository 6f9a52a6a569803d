// Methods of dict, OrderedDict and defaultdict.
#include "capture/cpython/texts.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"
#include "capture/vars/methods.h"

namespace braze::capture {
namespace {

[[noreturn]] void raise_key_error(Translator& tr, Variable* key) {
  tr.raise(tr.call(tr.global_object(PyExc_KeyError, Ground::fixed()), {key}));
}

Variable* get(Translator& tr, DictVariable& d, Args& a) {
  Variable* v = d.get(tr, a[0]);
  return v ? v : a.size() == 2 ? a[1] : tr.none();
}

template <DictViewVariable::What what>
Variable* view(Translator& tr, DictVariable& d, Args&) {
  return tr.make<DictViewVariable>(&d, what);
}

Variable* get_item(Translator& tr, DictVariable& d, Args& a) { return d.getitem(tr, a[0]); }
Variable* set_item(Translator& tr, DictVariable& d, Args& a) { return d.set(tr, a[0], a[1]), tr.none(); }
Variable* delete_item(Translator& tr, DictVariable& d, Args& a) { return d.delitem(tr, a[0]), tr.none(); }
Variable* contains(Translator& tr, DictVariable& d, Args& a) {
  return tr.boolean(d.contains(tr, a[0]), Ground::pure(&d, a));
}
Variable* length(Translator& tr, DictVariable& d, Args&) { return tr.integer(d.len(tr), Ground::pure(&d)); }
Variable* iterate(Translator& tr, DictVariable& d, Args&) { return d.iter(tr); }

template <int op>
Variable* compare(Translator& tr, DictVariable& d, Args& a) {
  if (!PyType_IsSubtype(a[0]->type(), &PyDict_Type)) return tr.constant(Py_NotImplemented, Ground::fixed());
  return tr.compare(op, &d, a[0]);
}

// The items of an element of an update; a note in the exception says which element has none.
std::vector<Variable*> noted_items(Translator& tr, Variable* element, const std::string& name) {
  auto is_type_error = [&](const PyRaise& e) { return tr.is_instance(e.exception, PyExc_TypeError); };
  auto iterator = [&] {
    try {
      return tr.iter(element);
    } catch (const PyRaise& e) {
      if (!is_type_error(e)) throw;
    }
    tr.raise(PyExc_TypeError, "object is not iterable");
  };
  try {
    return tr.unpack(iterator());
  } catch (const PyRaise& e) {
    if (is_type_error(e))
      tr.call_method(e.exception, "add_note", {tr.string("Cannot convert " + name + " to a sequence", Ground::made())});
    throw;
  }
}

void update_with(Translator& tr, DictVariable& d, Variable* other) {
  other = tr.force(other);
  if (other->is(Kind::Object) && other->as<ObjectVariable>()->base &&
      other->as<ObjectVariable>()->base->is(Kind::Dict)) {
    // Read as a dict, unless its class iterates in a way of its own.
    PyObject* own = tr.attributes.lookup_on_type(other->type(), tr.intern("__iter__"), nullptr);
    if (!own || !PyFunction_Check(own)) other = other->as<ObjectVariable>()->base;
  }
  if (other->is(Kind::Dict)) {
    auto* from = other->as<DictVariable>();
    auto copy = from->entries(tr);
    const bool known = from->type() == &PyDict_Type && d.type() == &PyDict_Type;  // CPython asks no key for its hash
    for (const DictVariable::Entry& e : copy) {
      if (known)
        d.set(tr, e.hash_key, e.key, e.value);
      else
        d.set(tr, e.key, e.value);
      if (from != &d && from->entries(tr).size() != copy.size())
        tr.raise(PyExc_RuntimeError, "dict mutated during update");
    }
    return;
  }
  if (Variable* keys = tr.getattr_or_null(other, "keys")) {
    for (Variable* k : tr.unpack(tr.call(keys, std::vector<Variable*>{}))) d.set(tr, k, tr.getitem(other, k));
    return;
  }
  size_t at = 0;
  each_item(tr, other, [&](Variable* pair) {
    std::string element = "dictionary update sequence element #" + std::to_string(at++);
    std::vector<Variable*> kv;
    try {
      kv = cpython::kNotesElement && !d.is_ordered_dict() ? noted_items(tr, pair, element) : tr.unpack(pair);
    } catch (const PyRaise& e) {
      if (cpython::kNotesElement || d.is_ordered_dict() || !tr.is_instance(e.exception, PyExc_TypeError)) throw;
      tr.raise(PyExc_TypeError, "cannot convert " + element + " to a sequence");
    }
    if (kv.size() != 2 && d.is_ordered_dict())
      tr.raise(PyExc_ValueError, kv.empty()       ? "need more than 0 values to unpack"
                                 : kv.size() == 1 ? "need more than 1 value to unpack"
                                                  : "too many values to unpack (expected 2)");
    if (kv.size() != 2)
      tr.raise(PyExc_ValueError, element + " has length " + std::to_string(kv.size()) + "; 2 is required");
    d.set(tr, kv[0], kv[1]);
  });
}

Variable* update(Translator& tr, DictVariable& d, Args& a) {
  if (a.size()) update_with(tr, d, a[0]);
  auto kw = std::move(a.kw);
  a.kw.clear();
  for (auto& [k, v] : kw) d.set(tr, k, v);
  return tr.none();
}

Variable* merge_in_place(Translator& tr, DictVariable& d, Args& a) { return update_with(tr, d, a[0]), &d; }

Variable* merge(Translator& tr, DictVariable& d, Args& a) {
  Variable* other = tr.force(a[0]);
  if (other->is(Kind::Object) && other->as<ObjectVariable>()->base) other = other->as<ObjectVariable>()->base;
  if (!other->is(Kind::Dict)) return tr.constant(Py_NotImplemented, Ground::fixed());
  return merge_in_place(tr, *d.copy(tr), a);
}

Variable* set_default(Translator& tr, DictVariable& d, Args& a) {
  if (Variable* v = d.get(tr, a[0])) return v;
  Variable* v = a.size() == 2 ? a[1] : tr.none();
  d.set(tr, a[0], v);
  return v;
}

Variable* pop(Translator& tr, DictVariable& d, Args& a) {
  Variable* v = d.get(tr, a[0]);
  if (!v && a.size() == 2) return a[1];
  if (!v)
    if (Variable* otherwise = a.take_kw("default")) return otherwise;
  if (!v) raise_key_error(tr, a[0]);
  d.remove(tr, a[0]);
  return v;
}

Variable* pop_item(Translator& tr, DictVariable& d, Args& a) {
  if (a.size() && !d.is_ordered_dict()) return nullptr;
  Variable* last = a.size() ? a[0] : a.take_kw("last");
  const auto& all = d.entries(tr);
  if (all.empty()) tr.raise(PyExc_KeyError, "popitem(): dictionary is empty");
  DictVariable::Entry e = !last || tr.truth(last) ? all.back() : all.front();
  if (d.is_ordered_dict())
    d.remove(tr, e.key);
  else
    d.pop(tr, e);
  return tr.tuple({e.key, e.value});
}

Variable* copy(Translator& tr, DictVariable& d, Args&) { return d.copy(tr); }
Variable* clear(Translator& tr, DictVariable& d, Args&) { return d.clear(tr), tr.none(); }

Variable* move_to_end(Translator& tr, DictVariable& d, Args& a) {
  if (!d.is_ordered_dict()) return nullptr;
  Variable* last = a.size() > 1 ? a[1] : a.take_kw("last");
  if (!d.move_to_end(tr, a[0], !last || tr.truth(last))) raise_key_error(tr, a[0]);
  return tr.none();
}

Variable* reversed(Translator& tr, DictVariable& d, Args&) {
  return tr.make<DictIterator>(tr, &d, DictIterator::What::Keys, true);
}

using What = DictViewVariable::What;
constexpr Method<DictVariable> kMethods[] = {
    {"get", 1, 2, get},
    {"keys", 0, 0, view<What::Keys>},
    {"values", 0, 0, view<What::Values>},
    {"items", 0, 0, view<What::Items>},
    {"__getitem__", 1, 1, get_item},
    {"__setitem__", 2, 2, set_item},
    {"__delitem__", 1, 1, delete_item},
    {"__contains__", 1, 1, contains},
    {"__len__", 0, 0, length},
    {"__iter__", 0, 0, iterate},
    {"__eq__", 1, 1, compare<Py_EQ>},
    {"__ne__", 1, 1, compare<Py_NE>},
    {"__or__", 1, 1, merge},
    {"__ior__", 1, 1, merge_in_place},
    {"setdefault", 1, 2, set_default},
    {"pop", 1, 2, pop},
    {"popitem", 0, 1, pop_item},
    {"update", 0, 1, update},
    {"__init__", 0, 1, update},
    {"copy", 0, 0, copy},
    {"__copy__", 0, 0, copy},
    {"clear", 0, 0, clear},
    {"move_to_end", 1, 2, move_to_end},
    {"__reversed__", 0, 0, reversed},
};

}  // namespace

Variable* DictVariable::call_method(Translator& tr, const char* name, Args& args) {
  return run_method<DictVariable>(kMethods, tr, *this, name, args);
}

}  // namespace braze::capture
