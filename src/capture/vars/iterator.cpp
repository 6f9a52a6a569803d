#include "capture/vars/iterator.h"

#include <algorithm>

#include "capture/cpython/iterators.h"
#include "capture/eval/library_objects.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"

namespace braze::capture {
namespace {

Reg builtin_call(Codegen& cg, PyObject* type, std::vector<Reg> args) {
  args.insert(args.begin(), cg.constant(type));
  return cg.recipe.make(StepKind::Call, args);
}

Reg iter_of(Codegen& cg, Reg r) {
  static PyObject* iter = native::builtin("iter");
  return builtin_call(cg, iter, {r});
}

Reg integer(Codegen& cg, int64_t n) {
  Ref i = Ref::steal(PyLong_FromLongLong(n));
  return cg.constant(i.get());
}

PyObject* of(PyTypeObject& t) { return reinterpret_cast<PyObject*>(&t); }

// The iterator that its class in C gives, whatever __iter__ the class of an owner has.
Reg own_iter(Codegen& cg, Variable* container) {
  if (!container->owner) return iter_of(cg, cg.reg(container));
  Ref iter = Ref::steal(native::attr(Ground::fixed(), of(*container->type()), "__iter__"));
  return builtin_call(cg, iter.get(), {cg.reg(container)});
}

}  // namespace

void IteratorVariable::advance(Translator& tr) {
  tr.mutate();
  tr.effects.modified(this);
}

Variable* IteratorVariable::getattr(Translator& tr, PyObject* name) { return Variable::getattr(tr, name); }

Variable* IteratorVariable::call_method(Translator& tr, const char* name, Args& args) {
  std::string_view n = name;
  if (n == "__iter__" && args.size() == 0) return this;
  if (n == "__next__" && args.size() == 0) {
    if (Variable* v = next(tr)) return v;
    tr.raise(tr.call(tr.global_object(PyExc_StopIteration, Ground::fixed()), std::vector<Variable*>{}));
  }
  return nullptr;
}

PyTypeObject* SequenceIterator::type() const {
  if (PyObject* o = constant_of(sequence))
    if (Ref it = Ref::steal(PyObject_GetIter(o))) return Py_TYPE(it.get());
  PyErr_Clear();
  if (sequence->type() == library().deque) return cpython::deque_iterator_type();
  return sequence->is(Kind::Tuple) ? &PyTupleIter_Type : &PyListIter_Type;
}

Variable* SequenceIterator::next(Translator& tr) {
  advance(tr);
  if (done) return nullptr;
  bool live = sequence->is(Kind::List) || sequence->is(Kind::Tuple);
  if (sequence->type() == library().deque && changes != sequence->as<ListVariable>()->changes) {
    tr.raise(PyExc_RuntimeError, "deque mutated during iteration");
  }
  const auto& from = live ? static_cast<SequenceVariable*>(sequence)->elements : snapshot;
  if (index < from.size()) return from[index++];
  done = true;
  return nullptr;
}

// An iterator that has given n items already.
static Reg advanced(Codegen& cg, Reg it, size_t n) {
  if (!n) return it;
  static PyObject* next = native::builtin("next");
  static PyObject* skip = [] {
    Ref m = Ref::steal(PyImport_ImportModule("itertools"));
    return native::attr(Ground::fixed(), m.get(), "islice");
  }();
  Reg last =
      builtin_call(cg, skip, {it, integer(cg, static_cast<int64_t>(n) - 1), integer(cg, static_cast<int64_t>(n))});
  builtin_call(cg, next, {last});
  return it;
}

// What the code changed in a list that was there before is written at the end; the place of an iterator is cut off at
// the list's length, so such a list is written before already.
static Reg written(Codegen& cg, SequenceVariable* list) {
  Reg self = cg.reg(list);
  PyObject* real =
      list->is(Kind::List) && list->type() == &PyList_Type ? list->as<ListVariable>()->real.get() : nullptr;
  if (!real || PyList_GET_SIZE(real) == static_cast<Py_ssize_t>(list->elements.size())) return self;
  std::vector<Reg> args{self};
  for (Variable* e : list->elements) args.push_back(cg.reg(e));
  cg.recipe.effect(StepKind::ListAssign, args);
  return self;
}

Reg SequenceIterator::build(Codegen& cg) {
  // Built from what is left: a list's own iterator would also see later changes of the list.
  if (sequence->type() == library().deque && !done) {
    if (changes != sequence->as<ListVariable>()->changes)
      throw CannotRebuild{this, "an iterator over a deque that was changed"};
    return advanced(cg, iter_of(cg, cg.reg(sequence)), index);
  }
  if (sequence->is(Kind::List) && !done) {
    if (index) written(cg, static_cast<SequenceVariable*>(sequence));
    Reg it = own_iter(cg, sequence);
    if (index) {
      static PyObject* set_state = native::attr(Ground::fixed(), of(PyListIter_Type), "__setstate__");
      builtin_call(cg, set_state, {it, integer(cg, static_cast<int64_t>(index))});
    }
    return it;
  }
  if (PyObject* o = constant_of(sequence); o && (PyUnicode_Check(o) || PyBytes_Check(o))) {
    Reg it = iter_of(cg, cg.constant(o));
    // Of the class that this text's iterator has: there is another one for texts of ASCII alone.
    Ref trial = Ref::steal(PyObject_GetIter(o)),
        set_state = Ref::steal(native::attr(Ground::fixed(), of(*Py_TYPE(trial.get())), "__setstate__"));
    int64_t at = done ? PyObject_Size(o) : static_cast<int64_t>(index);
    if (at) builtin_call(cg, set_state.get(), {it, integer(cg, at)});
    return it;
  }
  const auto& from = sequence->is(Kind::Tuple) ? static_cast<SequenceVariable*>(sequence)->elements : snapshot;
  std::vector<Variable*> rest;
  if (!done) rest.assign(from.begin() + static_cast<long>(index), from.end());
  return iter_of(cg, cg.recipe.make(sequence->is(Kind::List) ? StepKind::List : StepKind::Tuple, cg.regs(rest)));
}

DictIterator::DictIterator(Translator& tr, DictVariable* dict, What what, bool reversed)
    : dict(dict), what(what), reversed(reversed), structure(dict->structure), clears(dict->clears) {
  for (const DictVariable::Entry& e : dict->entries(tr)) {
    keys.push_back(e.key);
    serials.push_back(e.serial);
  }
  size = static_cast<int64_t>(keys.size());
  structure = dict->structure;
  if (reversed) {
    std::reverse(keys.begin(), keys.end());
    std::reverse(serials.begin(), serials.end());
  }
}

PyTypeObject* DictIterator::type() const {
  if (dict->is_ordered_dict()) return &PyODictIter_Type;
  if (reversed)
    return what == What::Keys     ? &PyDictRevIterKey_Type
           : what == What::Values ? &PyDictRevIterValue_Type
                                  : &PyDictRevIterItem_Type;
  return what == What::Keys ? &PyDictIterKey_Type : what == What::Values ? &PyDictIterValue_Type : &PyDictIterItem_Type;
}

// CPython's table keeps the place of a key that went free, and puts what comes behind it; an iterator goes on from the
// place that it is at. nullptr: there is none.
static const DictVariable::Entry* next_place(Translator& tr, const DictIterator& it) {
  const auto& now = it.dict->entries(tr);
  uint64_t at = it.visited ? it.visited : it.index ? it.serials[it.index - 1] : it.reversed ? UINT64_MAX : 0;
  if (it.reversed) {
    auto e = std::find_if(now.rbegin(), now.rend(), [&](const auto& x) { return x.serial < at; });
    return e == now.rend() ? nullptr : &*e;
  }
  auto e = std::find_if(now.begin(), now.end(), [&](const auto& x) { return x.serial > at; });
  return e == now.end() ? nullptr : &*e;
}

Variable* DictIterator::next(Translator& tr) {
  advance(tr);
  if (done) return nullptr;
  bool ordered = dict->is_ordered_dict(), mutated = ordered && structure != dict->structure;
  if (mutated || dict->len(tr) != size) {
    if (!ordered) size = -1;  // for good
    tr.raise(PyExc_RuntimeError, mutated   ? "OrderedDict mutated during iteration"
                                 : ordered ? "OrderedDict changed size during iteration"
                                           : "dictionary changed size during iteration");
  }
  Variable *key = nullptr, *value = nullptr;
  if (structure != dict->structure) {
    if (clears != dict->clears) tr.unsupported("a dict that is emptied and filled while it is iterated over");
    if (const DictVariable::Entry* e = next_place(tr, *this)) key = e->key, value = e->value, visited = e->serial;
    if (key && !reversed && index == keys.size()) {
      done = true;
      tr.raise(PyExc_RuntimeError, "dictionary keys changed during iteration");
    }
    if (key && index < keys.size()) ++index;
  } else if (index < keys.size()) {
    key = keys[index++];
    value = dict->get(tr, key);
  }
  if (!key) {
    done = true;
    return nullptr;
  }
  return what == What::Keys ? key : what == What::Values ? value : tr.tuple({key, value});
}

bool DictIterator::went_wrong(Translator& tr) { return dict->structure != 0 || dict->len(tr) != size; }

Reg DictIterator::build(Codegen& cg) {
  if (!done && dict->source.valid() && dict->structure)
    throw CannotRebuild{this, "an iterator over a dict that is still to be written"};
  if (!done && (structure != dict->structure || dict->len(cg.tr) != size))
    throw CannotRebuild{this, "an iterator over a dict that was changed"};
  static const char* names[] = {"keys", "values", "items"};
  Ref method = Ref::steal(native::attr(Ground::fixed(), of(*dict->type()), names[static_cast<int>(what)]));
  static PyObject* reverse = native::builtin("reversed");
  // One that came to its end let go of the dict.
  PyTypeObject* cls = dict->is_ordered_dict() ? library().ordered_dict : &PyDict_Type;
  Reg over = done ? builtin_call(cg, of(*cls), {}) : cg.reg(dict);
  Reg view =
      what == What::Keys && !dict->is_ordered_dict() && !dict->owner ? over : builtin_call(cg, method.get(), {over});
  return advanced(cg, reversed ? builtin_call(cg, reverse, {view}) : iter_of(cg, view), done ? 0 : index);
}

SetIterator::SetIterator(SetVariable* set, std::vector<Variable*> elements)
    : set(set), elements(std::move(elements)), changes(set->changes) {}

Variable* SetIterator::next(Translator& tr) {
  advance(tr);
  if (done) return nullptr;
  if (set->len(tr) != static_cast<int64_t>(elements.size())) {
    index = 0;
    elements.assign(static_cast<size_t>(set->len(tr)) + 1, nullptr);  // never equal again
    tr.raise(PyExc_RuntimeError, "Set changed size during iteration");
  }
  if (changes != set->changes) {
    // It goes on through the table's places, wherever the elements are now.
    if (set->elements() != elements) tr.unsupported("a set that changes while it is iterated over");
    changes = set->changes;
  }
  if (index == elements.size()) {
    done = true;
    return nullptr;
  }
  return elements[index++];
}

bool SetIterator::went_wrong(Translator& tr) {
  return set->changed || set->len(tr) != static_cast<int64_t>(elements.size());
}

Reg SetIterator::build(Codegen& cg) {
  if (done) return iter_of(cg, builtin_call(cg, of(PySet_Type), {}));
  if (changes != set->changes && set->elements() != elements)
    throw CannotRebuild{this, "an iterator over a set that was changed"};
  if (set->source.valid() ? set->changed : index != 0) {
    // The set that is made anew, or written at the end, may have another order.
    return iter_of(
        cg, cg.recipe.make(StepKind::Tuple, cg.regs({elements.begin() + static_cast<long>(index), elements.end()})));
  }
  return advanced(cg, own_iter(cg, set), index);
}

static bool is_deque(const Variable* v) { return v->type() == library().deque; }

ReversedIterator::ReversedIterator(SequenceVariable* s)
    : sequence(s),
      index(static_cast<int64_t>(s->elements.size()) - 1),
      changes(is_deque(s) ? s->as<ListVariable>()->changes : 0) {}

PyTypeObject* ReversedIterator::type() const {
  if (is_deque(sequence)) return cpython::deque_reverse_iterator_type();
  return sequence->type() == &PyList_Type ? &PyListRevIter_Type : &PyReversed_Type;
}

Variable* ReversedIterator::next(Translator& tr) {
  advance(tr);
  if (is_deque(sequence) && changes != sequence->as<ListVariable>()->changes)
    tr.raise(PyExc_RuntimeError, "deque mutated during iteration");
  if (index < 0 || index >= static_cast<int64_t>(sequence->elements.size())) {
    index = -1;
    done = true;
    return nullptr;
  }
  return sequence->elements[static_cast<size_t>(index--)];
}

Reg ReversedIterator::build(Codegen& cg) {
  static PyObject* reverse = native::builtin("reversed");
  if (is_deque(sequence)) {
    if (changes != sequence->as<ListVariable>()->changes)
      throw CannotRebuild{this, "an iterator over a deque that was changed"};
    return advanced(cg, builtin_call(cg, reverse, {cg.reg(sequence)}),
                    static_cast<size_t>(static_cast<int64_t>(sequence->elements.size()) - 1 - index));
  }
  // One that has come to its end lets go of the sequence.
  if (done)
    return builtin_call(cg, reverse,
                        {cg.recipe.make(type() == &PyListRevIter_Type ? StepKind::List : StepKind::Tuple, {})});
  const Reg self = written(cg, sequence);
  Ref own = sequence->owner ? Ref::steal(native::attr(Ground::fixed(), of(*sequence->type()), "__reversed__")) : Ref();
  Reg it = builtin_call(cg, own ? own.get() : reverse, {self});
  if (index + 1 == static_cast<int64_t>(sequence->elements.size()) ||
      (type() != &PyListRevIter_Type && type() != &PyReversed_Type))
    return it;
  Ref set_state = Ref::steal(native::attr(Ground::fixed(), of(*type()), "__setstate__"));
  builtin_call(cg, set_state.get(), {it, integer(cg, index)});
  return it;
}

Reg WrappedIterator::build(Codegen& cg) {
  if (advanced) return IteratorVariable::build(cg);
  std::vector<Reg> regs{cg.constant(reinterpret_cast<PyObject*>(cls))};
  for (Variable* a : of.pos) regs.push_back(cg.reg(a));
  Ref names = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(of.kw.size())));
  for (size_t i = 0; i < of.kw.size(); ++i) {
    PyTuple_SET_ITEM(names.get(), static_cast<Py_ssize_t>(i), Py_NewRef(of.kw[i].first));
    regs.push_back(cg.reg(of.kw[i].second));
  }
  return cg.recipe.make(StepKind::Call, regs, of.kw.empty() ? nullptr : names.get());
}

Variable* WrappedIterator::next(Translator& tr) {
  advance(tr);
  advanced = true;
  return tr.next(inner);
}

Variable* RangeIterator::next(Translator& tr) {
  advance(tr);
  if (count <= 0) return nullptr;
  Variable* v = tr.integer(start, Ground::pure(this));
  start += step;
  --count;
  return v;
}

Reg RangeIterator::build(Codegen& cg) {
  // The end may be beyond 64 bits.
  Ref first = Ref::steal(PyLong_FromLongLong(start)), by = Ref::steal(PyLong_FromLongLong(step)),
      n = Ref::steal(PyLong_FromLongLong(std::max<int64_t>(count, 0)));
  Ref length = Ref::steal(PyNumber_Multiply(by.get(), n.get()));
  Ref end = Ref::steal(PyNumber_Add(first.get(), length.get()));
  Ref range = Ref::steal(PyObject_CallFunctionObjArgs(of(PyRange_Type), first.get(), end.get(), by.get(), nullptr));
  return iter_of(cg, cg.constant(range.get()));
}

Variable* EnumerateIterator::next(Translator& tr) {
  advance(tr);
  Variable* v = tr.next(inner);
  return v ? tr.tuple({tr.integer(index++, Ground::pure(this)), v}) : nullptr;
}

Reg EnumerateIterator::build(Codegen& cg) {
  return builtin_call(cg, of(PyEnum_Type), {cg.reg(inner), integer(cg, index)});
}

Variable* ZipIterator::next(Translator& tr) {
  advance(tr);
  std::vector<Variable*> out;
  for (size_t i = 0; i < inner.size(); ++i) {
    Variable* v = tr.next(inner[i]);
    if (!v) {
      if (!strict) return nullptr;
      auto ordinal = [](size_t k) { return k == 1 ? std::string("argument 1") : "arguments 1-" + std::to_string(k); };
      if (i > 0)
        tr.raise(PyExc_ValueError, "zip() argument " + std::to_string(i + 1) + " is shorter than " + ordinal(i));
      for (size_t j = 1; j < inner.size(); ++j)
        if (tr.next(inner[j]))
          tr.raise(PyExc_ValueError, "zip() argument " + std::to_string(j + 1) + " is longer than " + ordinal(j));
      return nullptr;
    }
    out.push_back(v);
  }
  return out.empty() ? nullptr : tr.tuple(out);
}

Reg ZipIterator::build(Codegen& cg) {
  if (strict) throw CannotRebuild{this, "zip(strict=True) in progress"};
  return builtin_call(cg, of(PyZip_Type), cg.regs(inner));
}

Variable* MapIterator::next(Translator& tr) {
  advance(tr);
  std::vector<Variable*> args;
  for (Variable* it : inner) {
    Variable* v = tr.next(it);
    if (!v) return nullptr;
    args.push_back(v);
  }
  return tr.call(fn, args);
}

Reg MapIterator::build(Codegen& cg) {
  std::vector<Reg> args = cg.regs(inner);
  args.insert(args.begin(), cg.reg(fn));
  return builtin_call(cg, of(PyMap_Type), args);
}

Variable* FilterIterator::next(Translator& tr) {
  advance(tr);
  while (Variable* v = tr.next(inner))
    if (tr.truth(is_none(tr.force(fn)) ? v : tr.call(fn, {v}))) return v;
  return nullptr;
}

Variable* CallIterator::next(Translator& tr) {
  advance(tr);
  if (done) return nullptr;
  if (sentinel) {
    Variable* v = tr.call(fn, std::vector<Variable*>{});
    if (tr.equal(v, sentinel)) {
      done = true;
      return nullptr;
    }
    return v;
  }
  try {
    return tr.getitem(fn, tr.integer(index++, Ground::pure(this)));
  } catch (PyRaise& e) {
    if (!tr.is_instance(e.exception, PyExc_IndexError) && !tr.is_instance(e.exception, PyExc_StopIteration)) throw;
    done = true;
    return nullptr;
  }
}

}  // namespace braze::capture
