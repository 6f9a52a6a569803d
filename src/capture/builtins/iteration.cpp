// Built-in functions that give iterators, ranges and slices, and that go through them.
#include "capture/builtins/builtins.h"
#include "capture/builtins/sorting.h"
#include "capture/eval/library_objects.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"
#include "capture/vars/tensor_number.h"

namespace braze::capture {
namespace {

Variable* do_iter(Translator& tr, Args& a) {
  if (a.size() == 2 && !tr.truth(tr.call(tr.global_object(native::builtin("callable"), Ground::pure(a)), {a[0]})))
    return nullptr;
  if (a.size() == 2) return tr.make<CallIterator>(a[0], a[1]);
  return a.size() == 1 ? tr.iter(a[0]) : nullptr;
}

Variable* do_next(Translator& tr, Args& a) {
  if (a.size() < 1 || a.size() > 2) return nullptr;
  if (Variable* v = tr.next(a[0])) return v;
  if (a.size() == 2) return a[1];
  std::vector<Variable*> args;
  if (a[0]->is(Kind::Generator) && !is_none(tr.force(a[0]->as<GeneratorVariable>()->result)))
    args.push_back(a[0]->as<GeneratorVariable>()->result);
  tr.raise(tr.call(tr.global_object(PyExc_StopIteration, Ground::fixed()), args));
}

Variable* do_enumerate(Translator& tr, Args& a) {
  Variable* start = a.size() > 1 ? a[1] : a.take_kw("start");
  if (a.size() < 1 || a.size() > 2 || !a.kw.empty()) return nullptr;
  int64_t n = 0;
  if (start) {
    Ref s = tr.real.to_python(start);
    n = PyLong_AsLongLong(s.get());
    if (n == -1 && PyErr_Occurred()) tr.raise_current();
  }
  return tr.make<EnumerateIterator>(tr.iter(a[0]), n);
}

Variable* do_zip(Translator& tr, Args& a) {
  Variable* strict = a.take_kw("strict");
  if (!a.kw.empty()) return nullptr;
  std::vector<Variable*> its;
  for (Variable* v : a.pos) its.push_back(tr.iter(v));
  return tr.make<ZipIterator>(std::move(its), strict && tr.truth(strict));
}

Variable* do_map(Translator& tr, Args& a) {
  if (a.size() < 2) return nullptr;
  std::vector<Variable*> its;
  for (size_t i = 1; i < a.size(); ++i) its.push_back(tr.iter(a[i]));
  return tr.make<MapIterator>(a[0], std::move(its));
}

Variable* do_filter(Translator& tr, Args& a) {
  if (a.size() != 2) return nullptr;
  return tr.make<FilterIterator>(a[0], tr.iter(a[1]));
}

Variable* do_reversed(Translator& tr, Args& a) {
  if (a.size() != 1) return nullptr;
  if (a[0]->is(Kind::Real) && PyType_Check(a[0]->as_constant()))  // of an enum
    if (Variable* f = tr.attributes.special_method(a[0], "__reversed__"); f && f->is(Kind::Function))
      return tr.call(f, {a[0]});
  bool object = a[0]->is(Kind::Object) || a[0]->is(Kind::Module);
  if (object && tr.attributes.lookup_on_type(a[0]->type(), tr.intern("__reversed__"), nullptr) == Py_None)
    tr.raise(PyExc_TypeError, std::string("'") + tr.name_of(a[0]->type()) + "' object is not reversible");
  if (object)
    if (Variable* f = tr.attributes.special_method(a[0], "__reversed__")) return tr.call(f, {a[0]});
  std::vector<Variable*> all;
  if (object) {
    if (!tr.attributes.special_method(a[0], "__getitem__"))
      tr.raise(PyExc_TypeError, std::string("'") + tr.name_of(a[0]->type()) + "' object is not reversible");
    int64_t n = tr.len(a[0]);
    for (int64_t i = n - 1; i >= 0; --i) all.push_back(tr.getitem(a[0], tr.integer(i, Ground::pure(a))));
  } else if (a[0]->is(Kind::Tuple) || a[0]->is(Kind::List)) {
    return tr.make<ReversedIterator>(static_cast<SequenceVariable*>(a[0]));
  } else if (a[0]->is(Kind::Dict) || a[0]->is(Kind::DictView)) {
    Args none;
    return a[0]->call_method(tr, "__reversed__", none);
  } else if (PyObject* c = constant_of(a[0]); c && PyRange_Check(c)) {
    auto part = [&](const char* name) {
      Ref n = Ref::steal(native::attr(Ground::pure(a), c, name));
      int64_t v = PyLong_AsLongLong(n.get());
      if (v == -1 && PyErr_Occurred()) PyErr_Clear(), tr.unsupported("a range beyond 64 bits");
      return v;
    };
    int64_t start = part("start"), step = part("step"), n = tr.len(a[0]);
    int64_t back, last;
    if (__builtin_sub_overflow(int64_t{0}, step, &back) || __builtin_mul_overflow(n - 1, step, &last) ||
        __builtin_add_overflow(start, last, &last))
      tr.unsupported("a range beyond 64 bits");
    return tr.make<RangeIterator>(last, back, n);
  } else if (c && PySequence_Check(c)) {
    return tr.make<ReversedIterator>(tr.tuple(tr.unpack(a[0])));
  } else {
    return nullptr;
  }
  return tr.tuple(all)->iter(tr);
}

Variable* do_sorted(Translator& tr, Args& a) {
  if (a.size() != 1) return nullptr;
  Variable *key = a.take_kw("key"), *reverse = a.take_kw("reverse");
  if (!a.kw.empty()) return nullptr;
  return tr.list(sort_variables(tr, tr.listed(a[0]), key, reverse && tr.truth(reverse)));
}

Variable* do_range(Translator& tr, Args& a) {
  // Bounds that are symbolic are specialised: the loop is unrolled.
  for (Variable*& v : a.pos)
    if (v->is(Kind::Sym)) {
      Ref n = Ref::steal(PyNumber_Long(v->as<SymVariable>()->value.get()));
      if (!n) tr.raise_current();
      v = tr.constant(n, Ground::pure(a));
    } else if (v->is(Kind::Tensor)) {
      if (Variable* n = tr.may_be_unbacked() ? number_of(tr, v->as<TensorVariable>(), &PyLong_Type) : nullptr) {
        v = tr.real.specialised(n);  // a literal's value, or the reason why there is none
        continue;
      }
      tr.unsupported(Reason::ScalarFromTensor, "range() of a tensor");
    }
  return tr.real.call_pure(reinterpret_cast<PyObject*>(&PyRange_Type), a);
}

Variable* do_slice(Translator& tr, Args& a) {
  if (a.size() == 1) return tr.make<SliceVariable>(tr.none(), a[0], tr.none());
  if (a.size() == 2) return tr.make<SliceVariable>(a[0], a[1], tr.none());
  return a.size() == 3 ? tr.make<SliceVariable>(a[0], a[1], a[2]) : nullptr;
}

}  // namespace

void register_iteration_builtins() {
  const BuiltinRow rows[] = {{"iter", do_iter},         {"next", do_next},     {"enumerate", do_enumerate},
                             {"zip", do_zip},           {"map", do_map},       {"filter", do_filter},
                             {"reversed", do_reversed}, {"sorted", do_sorted}, {"range", do_range},
                             {"slice", do_slice}};
  for (const BuiltinRow& r : rows) register_builtin("builtins", r.name, r.handler);
  for (const char* n : {"iter", "next", "map", "filter", "reversed", "slice", "list", "tuple", "set", "frozenset"})
    register_no_keywords("builtins", n);
}

}  // namespace braze::capture
