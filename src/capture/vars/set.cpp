#include "capture/vars/set.h"

#include "capture/translator.h"
#include "capture/vars/all.h"

namespace braze::capture {

bool SetVariable::add(Translator& tr, Variable* v) {
  Ref k = tr.force(v)->hash_key(tr);
  int there = PyDict_Contains(index_.get(), k.get());
  if (there < 0) tr.raise_current();
  if (there) return false;
  PyDict_SetItem(index_.get(), k.get(), Py_True);
  keys_.push_back(k);
  elements.push_back(v);
  return true;
}

bool SetVariable::remove(Translator& tr, Variable* v) {
  Ref k = tr.force(v)->hash_key(tr);
  if (PyDict_Contains(index_.get(), k.get()) != 1) return false;
  PyDict_DelItem(index_.get(), k.get());
  for (size_t i = 0; i < keys_.size(); ++i)
    if (PyObject_RichCompareBool(keys_[i].get(), k.get(), Py_EQ) == 1) {
      keys_.erase(keys_.begin() + static_cast<long>(i));
      elements.erase(elements.begin() + static_cast<long>(i));
      break;
    }
  return true;
}

bool SetVariable::contains(Translator& tr, Variable* item) {
  Ref k = tr.force(item)->hash_key(tr);
  int there = PyDict_Contains(index_.get(), k.get());
  if (there < 0) tr.raise_current();
  return there == 1;
}

Variable* SetVariable::iter(Translator& tr) { return tr.make<SequenceIterator>(this, elements); }

Ref SetVariable::hash_key(Translator& tr) {
  if (cls != &PyFrozenSet_Type) return Variable::hash_key(tr);
  Ref s = Ref::steal(PyFrozenSet_New(nullptr));
  for (Variable* v : elements) PySet_Add(s.get(), tr.force(v)->hash_key(tr).get());
  return s;
}

void SetVariable::change(Translator& tr) {
  tr.mutate();
  tr.modified(this);
}

Variable* SetVariable::call_method(Translator& tr, const char* name, Args& args) {
  std::string_view n = name;
  size_t c = args.size();
  auto copy = [&] {
    auto* s = tr.make<SetVariable>(cls);
    for (Variable* v : elements) s->add(tr, v);
    return s;
  };
  auto as_set = [&](Variable* v) {
    auto* s = tr.make<SetVariable>();
    for (Variable* e : tr.unpack(v)) s->add(tr, e);
    return s;
  };
  if (n == "__len__" && c == 0) return tr.integer(len(tr));
  if (n == "__iter__" && c == 0) return iter(tr);
  if (n == "__contains__" && c == 1) return tr.boolean(contains(tr, args[0]));
  if (n == "copy" && c == 0) return copy();
  if (n == "union" || n == "__or__") {
    auto* s = copy();
    for (Variable* a : args.pos)
      for (Variable* v : tr.unpack(a)) s->add(tr, v);
    return s;
  }
  if (n == "intersection" || n == "__and__") {
    auto* s = tr.make<SetVariable>(cls);
    std::vector<SetVariable*> others;
    for (Variable* a : args.pos) others.push_back(as_set(a));
    for (Variable* v : elements) {
      bool in = true;
      for (SetVariable* o : others) in = in && o->contains(tr, v);
      if (in) s->add(tr, v);
    }
    return s;
  }
  if (n == "difference" || n == "__sub__") {
    auto* s = copy();
    for (Variable* a : args.pos)
      for (Variable* v : tr.unpack(a)) s->remove(tr, v);
    return s;
  }
  if ((n == "symmetric_difference" || n == "__xor__") && c == 1) {
    auto* other = as_set(args[0]);
    auto* s = tr.make<SetVariable>(cls);
    for (Variable* v : elements)
      if (!other->contains(tr, v)) s->add(tr, v);
    for (Variable* v : other->elements)
      if (!contains(tr, v)) s->add(tr, v);
    return s;
  }
  if ((n == "issubset" || n == "__le__") && c == 1) {
    auto* other = as_set(args[0]);
    for (Variable* v : elements)
      if (!other->contains(tr, v)) return tr.boolean(false);
    return tr.boolean(true);
  }
  if ((n == "issuperset" || n == "__ge__") && c == 1) {
    for (Variable* v : tr.unpack(args[0]))
      if (!contains(tr, v)) return tr.boolean(false);
    return tr.boolean(true);
  }
  if (n == "isdisjoint" && c == 1) {
    for (Variable* v : tr.unpack(args[0]))
      if (contains(tr, v)) return tr.boolean(false);
    return tr.boolean(true);
  }
  if (n == "__eq__" && c == 1) return tr.compare(Py_EQ, this, args[0]);
  if (cls == &PyFrozenSet_Type) return nullptr;
  if (n == "add" && c == 1) return change(tr), add(tr, args[0]), tr.none();
  if (n == "discard" && c == 1) return change(tr), remove(tr, args[0]), tr.none();
  if (n == "remove" && c == 1) {
    if (!contains(tr, args[0])) tr.raise(tr.call(tr.global_object(PyExc_KeyError), {args[0]}));
    return change(tr), remove(tr, args[0]), tr.none();
  }
  if (n == "clear" && c == 0) {
    change(tr);
    while (!elements.empty()) remove(tr, elements.back());
    return tr.none();
  }
  if (n == "update" || n == "__ior__") {
    change(tr);
    for (Variable* a : args.pos)
      for (Variable* v : tr.unpack(a)) add(tr, v);
    return n == "update" ? tr.none() : this;
  }
  return nullptr;  // pop: which element goes depends on hashes
}

Reg SetVariable::build(Codegen& cg) {
  return cg.recipe.make(cls == &PyFrozenSet_Type ? StepKind::FrozenSet : StepKind::Set, cg.regs(elements));
}

}  // namespace braze::capture
