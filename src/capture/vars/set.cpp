#include "capture/vars/set.h"

#include "capture/cpython/set_table.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"
#include "capture/vars/key.h"

namespace braze::capture {

// A set, a frozenset, or the content of an object of a subclass; else nullptr.
static SetVariable* set_of(Translator& tr, Variable* v) {
  v = tr.force(v);
  if (v->is(Kind::Object) && v->as<ObjectVariable>()->base) v = v->as<ObjectVariable>()->base;
  return v->is(Kind::Set) ? v->as<SetVariable>() : nullptr;
}

SetVariable::SetVariable(PyTypeObject* t) : Variable(Kind::Set), cls(t), keys_(Ref::steal(PySet_New(nullptr))) {}

SetVariable::SetVariable(PyTypeObject* t, Ref keys, std::unordered_map<PyObject*, Variable*> known)
    : Variable(Kind::Set), cls(t), keys_(std::move(keys)), of_(std::move(known)) {}

SetVariable::SetVariable(Translator& tr, PyTypeObject* t, PyObject* like, const std::vector<Variable*>& elements)
    : SetVariable(t) {
  std::vector<PyObject*> keys;
  for (Variable* e : elements) {
    Ref k = key_of(tr, e);
    of_.try_emplace(k.get(), e);
    tr.keep(k);
    keys.push_back(k.get());
  }
  if (!set_becomes(keys_.get(), like, keys)) tr.raise_current();
}

std::vector<Variable*> SetVariable::elements() const {
  std::vector<Variable*> out;
  Py_ssize_t place = 0;
  while (PyObject* key = next_element(keys_.get(), place)) out.push_back(of_.at(key));
  return out;
}

void SetVariable::look_at_order(Translator& tr) const {
  if (PySet_GET_SIZE(keys_.get()) < 2) return;
  Py_ssize_t place = 0;
  while (PyObject* key = next_element(keys_.get(), place))
    if (!PyLong_Check(key)) tr.segment().here_only = kOrder;  // numbers hash alike everywhere
}

std::vector<Variable*> SetVariable::items(Translator& tr) {
  look_at_order(tr);
  return elements();
}

bool SetVariable::add(Translator& tr, Variable* v) {
  Ref k = key_of(tr, v);
  Py_ssize_t before = PySet_GET_SIZE(keys_.get());
  of_.try_emplace(k.get(), v);
  tr.keep(k);  // the address stands for the key
  if (PySet_Add(keys_.get(), k.get()) < 0) tr.raise_current();
  return PySet_GET_SIZE(keys_.get()) != before;
}

bool SetVariable::remove(Translator& tr, Variable* v) {
  Ref k = key_of(tr, v);
  int r = PySet_Discard(keys_.get(), k.get());
  if (r < 0) tr.raise_current();
  return r == 1;
}

void SetVariable::merge(Translator& tr, Variable* iterable) {
  iterable = tr.force(iterable);
  if (!set_of(tr, iterable) && iterable->type() != &PyDict_Type) {
    for (Variable* v : tr.unpack(iterable)) add(tr, v);
  } else if (!Ref::steal(PyObject_CallMethod(keys_.get(), "update", "O", operand(tr, iterable).get()))) {
    tr.raise_current();
  }
}

SetVariable* SetVariable::copy(Translator& tr, PyTypeObject* t) const {
  return tr.make<SetVariable>(t, set_like(&PySet_Type, keys_.get()), of_);
}

bool SetVariable::contains(Translator& tr, Variable* item) {
  item = tr.force(item);
  Ref k;
  if (item->is(Kind::Set) && item->as<SetVariable>()->cls == &PySet_Type)
    k = Ref::steal(PyFrozenSet_New(item->as<SetVariable>()->keys_.get()));
  else
    k = key_of(tr, item);
  int there = PySet_Contains(keys_.get(), k.get());
  if (there < 0) tr.raise_current();
  return there == 1;
}

Variable* SetVariable::iter(Translator& tr) { return tr.make<SetIterator>(this, items(tr)); }

Ref SetVariable::hash_key(Translator& tr) {
  if (cls == &PySet_Type) return Variable::hash_key(tr);
  return Ref::steal(PyFrozenSet_New(keys_.get()));
}

void SetVariable::change(Translator& tr) {
  changed = true;
  ++changes;
  tr.mutate();
  tr.effects.modified(this);
}

Ref SetVariable::operand(Translator& tr, Variable* v) {
  if (SetVariable* s = set_of(tr, v)) {
    for (auto& [k, e] : s->of_) of_.try_emplace(k, e);
    return s->keys_;
  }
  v = tr.force(v);
  if (v->is(Kind::Dict)) {
    Ref keys = Ref::steal(PyDict_New());
    for (const auto& e : v->as<DictVariable>()->entries(tr)) {
      of_.try_emplace(e.hash_key.get(), e.key);
      tr.keep(e.hash_key);
      if (PyDict_SetItem(keys.get(), e.hash_key.get(), Py_None) < 0) tr.raise_current();
    }
    return keys;
  }
  Ref out = Ref::steal(PyList_New(0));
  for (Variable* e : v->items(tr)) {
    Ref k = key_of(tr, e);
    of_.try_emplace(k.get(), e);
    tr.keep(k);
    if (PyList_Append(out.get(), k.get()) < 0) tr.raise_current();
  }
  return out;
}

Variable* SetVariable::made(Translator& tr, PyTypeObject* t, Ref keys) {
  if (!keys) tr.raise_current();
  // A frozenset of keys would be shared, not copied.
  if (PyFrozenSet_CheckExact(keys.get())) keys = set_like(&PySet_Type, keys.get());
  return tr.make<SetVariable>(t, std::move(keys), of_);
}

void SetVariable::become(Translator& tr, Ref keys) {
  if (!keys) tr.raise_current();
  change(tr);
  keys_ = std::move(keys);
}

Variable* SetVariable::call_method(Translator& tr, const char* name, Args& args) {
  std::string_view n = name;
  size_t c = args.size();
  bool mutable_set = cls == &PySet_Type;
  if (n == "__len__" && c == 0) return tr.integer(len(tr), Ground::pure(this, args));
  if (n == "__iter__" && c == 0) return iter(tr);
  if (n == "__contains__" && c == 1) return tr.boolean(contains(tr, args[0]), Ground::pure(this, args));
  if (n == "copy" && c == 0) return mutable_set ? made(tr, cls, Ref::steal(PySet_New(keys_.get()))) : this;
  auto on_keys = [&](const char* method) {
    Ref name_object = Ref::steal(PyUnicode_FromString(method));
    std::vector<Ref> owned;
    std::vector<PyObject*> raw{keys_.get()};
    for (Variable* a : args.pos) {
      owned.push_back(operand(tr, a));
      raw.push_back(owned.back().get());
    }
    return Ref::steal(PyObject_VectorcallMethod(name_object.get(), raw.data(), raw.size(), nullptr));
  };
  // Operators take sets only.
  static const std::pair<const char*, const char*> operators[] = {{"__or__", "union"},
                                                                  {"__and__", "intersection"},
                                                                  {"__sub__", "difference"},
                                                                  {"__xor__", "symmetric_difference"},
                                                                  {"__ior__", "update"},
                                                                  {"__iand__", "intersection_update"},
                                                                  {"__isub__", "difference_update"},
                                                                  {"__ixor__", "symmetric_difference_update"}};
  bool inplace_operator = false;
  for (auto& [op, method] : operators)
    if (n == op && c == 1) {
      if (!set_of(tr, args[0])) return tr.constant(Py_NotImplemented, Ground::fixed());
      inplace_operator = n[2] == 'i';
      if (inplace_operator && !mutable_set) return nullptr;
      n = method;
    }
  for (const char* method : {"union", "intersection", "difference"})
    if (n == method) return made(tr, cls, on_keys(method));
  if (n == "symmetric_difference" && c == 1) return made(tr, cls, on_keys("symmetric_difference"));
  // They ask an iterator for no more than they need.
  if (const bool superset = n == "issuperset"; c == 1 && (superset || n == "isdisjoint")) {
    Variable* other = tr.force(args[0]);
    if (other->is(Kind::Generator) || other->is(Kind::Iterator) || other->is(Kind::Object)) {
      if (!set_of(tr, other)) {
        Variable* iterator = tr.iter(other);
        while (Variable* v = tr.next(iterator))
          if (contains(tr, v) != superset) return tr.boolean(false, Ground::pure(this, args));
        return tr.boolean(true, Ground::pure(this, args));
      }
    }
  }
  for (const char* method : {"issubset", "issuperset", "isdisjoint"})
    if (n == method && c == 1) {
      Ref r = on_keys(method);
      if (!r) tr.raise_current();
      return tr.boolean(r.get() == Py_True, Ground::pure(this, args));
    }
  if (c == 1)
    for (auto [method, op] : {std::pair{"__le__", Py_LE},
                              {"__ge__", Py_GE},
                              {"__lt__", Py_LT},
                              {"__gt__", Py_GT},
                              {"__eq__", Py_EQ},
                              {"__ne__", Py_NE}})
      if (n == method)
        return set_of(tr, args[0]) ? tr.compare(op, this, args[0]) : tr.constant(Py_NotImplemented, Ground::fixed());
  if (!mutable_set) return nullptr;
  if (n == "add" && c == 1) return change(tr), add(tr, args[0]), tr.none();
  if (n == "discard" && c == 1) return change(tr), remove(tr, args[0]), tr.none();
  if (n == "remove" && c == 1) {
    change(tr);
    if (!remove(tr, args[0])) tr.raise(tr.call(tr.global_object(PyExc_KeyError, Ground::fixed()), {args[0]}));
    return tr.none();
  }
  if (n == "pop" && c == 0) {
    change(tr);
    if (!truth(tr))
      tr.raise(tr.call(tr.global_object(PyExc_KeyError, Ground::fixed()),
                       {tr.string("pop from an empty set", Ground::fixed())}));
    look_at_order(tr);
    Ref k = Ref::steal(PySet_Pop(keys_.get()));
    if (!k) tr.raise_current();
    return of_.at(k.get());
  }
  if (n == "clear" && c == 0) return become(tr, Ref::steal(PySet_New(nullptr))), tr.none();
  for (const char* method : {"update", "intersection_update", "difference_update", "symmetric_difference_update"})
    if (n == method && (c == 1 || n != "symmetric_difference_update")) {
      change(tr);
      if (!on_keys(method)) tr.raise_current();
      return inplace_operator ? static_cast<Variable*>(this) : tr.none();
    }
  if (n == "__init__" && c <= 1) {
    Ref keys = Ref::steal(c ? PySet_New(operand(tr, args[0]).get()) : PySet_New(nullptr));
    return become(tr, std::move(keys)), tr.none();
  }
  return nullptr;
}

void SetVariable::add_content(Codegen& cg, std::vector<Reg>& args) {
  args.push_back(cg.constant(set_like(&PySet_Type, keys_.get()).get()));
  for (Variable* e : elements()) args.push_back(cg.reg(e));
}

Reg SetVariable::build(Codegen& cg) {
  std::vector<Reg> args;
  add_content(cg, args);
  return cg.recipe.make(cls == &PyFrozenSet_Type ? StepKind::FrozenSet : StepKind::Set, args);
}

}  // namespace braze::capture
