// The container classes as constructors.
#include "capture/builtins/builtins.h"
#include "capture/eval/library_objects.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"

namespace braze::capture {
namespace {

Variable* do_list(Translator& tr, Args& a) {
  if (a.size() > 1 || !a.kw.empty()) return nullptr;
  return tr.list(a.size() ? tr.listed(a[0]) : std::vector<Variable*>{});
}

Variable* do_tuple(Translator& tr, Args& a) {
  if (a.size() > 1) return nullptr;
  if (a.size() && a[0]->type() == &PyTuple_Type) return a[0];
  return tr.tuple(a.size() ? tr.listed(a[0]) : std::vector<Variable*>{});
}

Variable* make_set(Translator& tr, Args& a, PyTypeObject* cls) {
  if (a.size() > 1) return nullptr;
  auto* s = tr.make<SetVariable>(cls);
  if (a.size()) s->merge(tr, a[0]);
  return s;
}
Variable* do_set(Translator& tr, Args& a) { return make_set(tr, a, &PySet_Type); }
Variable* do_frozenset(Translator& tr, Args& a) {
  if (a.size() == 1 && a[0]->type() == &PyFrozenSet_Type) return a[0];
  return make_set(tr, a, &PyFrozenSet_Type);
}

Variable* make_dict(Translator& tr, Args& a, PyTypeObject* cls) {
  if (a.size() > 1) return nullptr;
  auto* d = tr.make<DictVariable>(cls);
  d->call_method(tr, "update", a);
  return d;
}
Variable* do_dict(Translator& tr, Args& a) { return make_dict(tr, a, &PyDict_Type); }
Variable* do_ordered_dict(Translator& tr, Args& a) { return make_dict(tr, a, library().ordered_dict); }

Variable* do_default_dict(Translator& tr, Args& a) {
  auto* d = tr.make<DictVariable>(library().default_dict);
  Args rest{{}, a.kw};
  if (a.size() > 0) {
    PyObject* c = a[0]->as_constant();
    if (c ? c != Py_None && !PyCallable_Check(c) : !a[0]->type()->tp_call)
      tr.raise(PyExc_TypeError, "first argument must be callable or None");
    d->default_factory = a[0];
    rest.pos.assign(a.pos.begin() + 1, a.pos.end());
  } else {
    d->default_factory = tr.none();
  }
  d->call_method(tr, "update", rest);
  return d;
}

// cls.fromkeys(iterable, value=None): an object of the class, filled by its own __setitem__.
Variable* do_dict_fromkeys(Translator& tr, Args& a) {
  if (a.size() < 2 || a.size() > 3 || !a.kw.empty() || !a[0]->as_constant()) return nullptr;
  Variable* d = tr.force(tr.call(a[0], std::vector<Variable*>{}));
  for (Variable* k : tr.unpack(a[1])) tr.setitem(d, k, a.size() == 3 ? a[2] : tr.none());
  return d;
}

Variable* do_ordered_fromkeys(Translator& tr, Args& a) {
  if (Variable* value = a.size() == 2 ? a.take_kw("value") : nullptr) a.pos.push_back(value);
  return do_dict_fromkeys(tr, a);
}

Variable* do_deque(Translator& tr, Args& a) {
  if (a.size() > 2) return nullptr;
  Variable* maxlen = a.size() > 1 ? a[1] : a.take_kw("maxlen");
  if (!a.kw.empty()) return nullptr;
  auto* l = tr.make<ListVariable>(a.size() ? tr.unpack(a[0]) : std::vector<Variable*>{}, library().deque);
  if (maxlen && !is_none(tr.force(maxlen))) {
    Ref n = tr.real.to_python(maxlen);
    l->maxlen = PyLong_Check(n.get()) ? PyLong_AsLongLong(n.get()) : -1;
    if (l->maxlen < 0) {
      PyErr_Clear();
      return nullptr;
    }
    while (l->len(tr) > l->maxlen) l->elements.erase(l->elements.begin());
  }
  return l;
}

Variable* do_size(Translator& tr, Args& a) {
  if (a.size() != 1) return nullptr;
  return tr.make<TupleVariable>(tr.unpack(a[0]), library().size);
}

Variable* do_mapping_proxy(Translator& tr, Args& a) {
  return a.size() == 1 && a[0]->is(Kind::Dict) ? tr.make<MappingProxyVariable>(a[0]) : nullptr;
}

}  // namespace

void register_container_builtins() {
  register_builtin("builtins", "list", do_list);
  register_builtin("builtins", "tuple", do_tuple);
  register_builtin("builtins", "set", do_set);
  register_builtin("builtins", "frozenset", do_frozenset);
  register_builtin("builtins", "dict", do_dict);
  register_builtin("collections", "OrderedDict", do_ordered_dict);
  register_builtin("collections", "defaultdict", do_default_dict);
  register_builtin("collections", "deque", do_deque);
  register_builtin("torch", "Size", do_size);
  register_builtin("types", "MappingProxyType", do_mapping_proxy);
  register_builtin("builtins", "dict.fromkeys", do_dict_fromkeys);
  register_builtin("collections", "OrderedDict.fromkeys", do_ordered_fromkeys);
}

}  // namespace braze::capture
