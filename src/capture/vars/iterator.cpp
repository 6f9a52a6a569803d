#include "capture/vars/iterator.h"

#include "capture/translator.h"
#include "capture/vars/all.h"

namespace braze::capture {
namespace {

Reg builtin_call(Codegen& cg, PyObject* type, std::vector<Reg> args) {
  args.insert(args.begin(), cg.constant(type));
  return cg.recipe.make(StepKind::Call, args);
}

Reg iter_of(Codegen& cg, Reg r) {
  static PyObject* iter = PyDict_GetItemString(PyEval_GetBuiltins(), "iter");
  return builtin_call(cg, iter, {r});
}

Reg integer(Codegen& cg, int64_t n) {
  Ref i = Ref::steal(PyLong_FromLongLong(n));
  return cg.constant(i.get());
}

PyObject* of(PyTypeObject& t) { return reinterpret_cast<PyObject*>(&t); }

}  // namespace

Variable* IteratorVariable::getattr(Translator& tr, PyObject* name) { return Variable::getattr(tr, name); }

Variable* IteratorVariable::call_method(Translator& tr, const char* name, Args& args) {
  std::string_view n = name;
  if (n == "__iter__" && args.size() == 0) return this;
  if (n == "__next__" && args.size() == 0) {
    if (Variable* v = next(tr)) return v;
    tr.raise(tr.call(tr.global_object(PyExc_StopIteration), std::vector<Variable*>{}));
  }
  return nullptr;
}

PyTypeObject* SequenceIterator::type() const { return sequence->is(Kind::Tuple) ? &PyTupleIter_Type : &PyListIter_Type; }

Variable* SequenceIterator::next(Translator& tr) {
  tr.mutate();
  if (done) return nullptr;
  bool live = sequence->is(Kind::List) || sequence->is(Kind::Tuple);
  const auto& from = live ? static_cast<SequenceVariable*>(sequence)->elements : snapshot;
  if (index < from.size()) return from[index++];
  done = true;
  return nullptr;
}

Reg SequenceIterator::build(Codegen& cg) {
  // Built from what is left: a list's own iterator would also see later changes of the list.
  if (sequence->is(Kind::List) && !done) {
    Reg it = iter_of(cg, cg.reg(sequence));
    if (index) {
      static PyObject* set_state = PyObject_GetAttrString(of(PyListIter_Type), "__setstate__");
      builtin_call(cg, set_state, {it, integer(cg, static_cast<int64_t>(index))});
    }
    return it;
  }
  const auto& from = sequence->is(Kind::Tuple) ? static_cast<SequenceVariable*>(sequence)->elements : snapshot;
  std::vector<Variable*> rest;
  if (!done) rest.assign(from.begin() + static_cast<long>(index), from.end());
  return iter_of(cg, cg.recipe.make(StepKind::Tuple, cg.regs(rest)));
}

Variable* RangeIterator::next(Translator& tr) {
  tr.mutate();
  if (count <= 0) return nullptr;
  Variable* v = tr.integer(start);
  start += step;
  --count;
  return v;
}

Reg RangeIterator::build(Codegen& cg) {
  Ref range = Ref::steal(PyObject_CallFunction(of(PyRange_Type), "LLL", static_cast<long long>(start),
                                               static_cast<long long>(start + step * count), static_cast<long long>(step)));
  return iter_of(cg, cg.constant(range.get()));
}

Variable* EnumerateIterator::next(Translator& tr) {
  tr.mutate();
  Variable* v = tr.next(inner);
  return v ? tr.tuple({tr.integer(index++), v}) : nullptr;
}

Reg EnumerateIterator::build(Codegen& cg) { return builtin_call(cg, of(PyEnum_Type), {cg.reg(inner), integer(cg, index)}); }

Variable* ZipIterator::next(Translator& tr) {
  tr.mutate();
  std::vector<Variable*> out;
  for (size_t i = 0; i < inner.size(); ++i) {
    Variable* v = tr.next(inner[i]);
    if (!v) {
      if (!strict) return nullptr;
      auto ordinal = [](size_t k) { return k == 1 ? std::string("argument 1") : "arguments 1-" + std::to_string(k); };
      if (i > 0) tr.raise(PyExc_ValueError, "zip() argument " + std::to_string(i + 1) + " is shorter than " + ordinal(i));
      for (size_t j = 1; j < inner.size(); ++j)
        if (tr.next(inner[j])) tr.raise(PyExc_ValueError, "zip() argument " + std::to_string(j + 1) + " is longer than " + ordinal(j));
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
  tr.mutate();
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
  tr.mutate();
  while (Variable* v = tr.next(inner))
    if (tr.truth(is_none(tr.force(fn)) ? v : tr.call(fn, {v}))) return v;
  return nullptr;
}

Variable* CallIterator::next(Translator& tr) {
  tr.mutate();
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
    return tr.getitem(fn, tr.integer(index++));
  } catch (PyRaise& e) {
    if (!tr.is_instance(e.exception, PyExc_IndexError) && !tr.is_instance(e.exception, PyExc_StopIteration)) throw;
    done = true;
    return nullptr;
  }
}

}  // namespace braze::capture
