// functools, itertools, copy, contextlib: what is modelled; the rest is inlined as Python or has a polyfill.
#include <opcode.h>

#include "capture/builtins.h"
#include "capture/known.h"
#include "capture/translator.h"
#include "capture/vars/all.h"

namespace braze::capture {
namespace {

Variable* do_partial(Translator& tr, Args& a) {
  if (a.size() < 1) return nullptr;
  Args own{std::vector<Variable*>(a.pos.begin() + 1, a.pos.end()), a.kw};
  Variable* fn = a[0];
  if (fn->is(Kind::Partial)) {  // partials of partials are one
    fn->as<PartialVariable>()->merge(own);
    fn = fn->as<PartialVariable>()->function;
  }
  return tr.make<PartialVariable>(fn, own.pos, own.kw);
}

Variable* do_reduce(Translator& tr, Args& a) {
  if (a.size() < 2) return nullptr;
  auto items = tr.unpack(a[1]);
  size_t i = 0;
  Variable* total = a.size() > 2 ? a[2] : nullptr;
  if (!total) {
    if (items.empty()) tr.raise(PyExc_TypeError, "reduce() of empty iterable with no initial value");
    total = items[i++];
  }
  for (; i < items.size(); ++i) total = tr.call(a[0], {total, items[i]});
  return total;
}

// The signature of a function that is there for good is computed by inspect itself.
Variable* do_signature(Translator& tr, Args& a) {
  if (a.size() != 1 || !a.kw.empty()) return nullptr;
  Variable *v = a[0], *fn = v;
  bool method = v->is(Kind::BoundMethod);
  if (method) fn = tr.force(v->as<BoundMethodVariable>()->function);
  Ref target;
  if (fn->is(Kind::Function) && fn->as<FunctionVariable>()->real) {
    auto* f = fn->as<FunctionVariable>();
    if (!f->anchored) tr.guard_identity(f->source, f->real.get());
    target = f->real;
    if (method) target = Ref::steal(PyMethod_New(target.get(), Py_Ellipsis));  // any self will do
  } else if (PyObject* o = fn->as_constant(); o && !method) {
    target = Ref::borrow(o);
  } else {
    return nullptr;
  }
  static PyObject* signature = [] {
    Ref m = Ref::steal(PyImport_ImportModule("inspect"));
    return PyObject_GetAttrString(m.get(), "signature");
  }();
  Ref s = Ref::steal(PyObject_CallOneArg(signature, target.get()));
  if (!s) tr.raise_current();
  return tr.global_object(s.get());
}

}  // namespace

void register_functional_builtins() {
  for (const char* n : {"chain", "repeat", "count", "cycle", "islice", "product", "accumulate", "zip_longest", "pairwise", "starmap", "takewhile", "dropwhile",
                        "filterfalse", "compress", "combinations", "permutations", "groupby", "tee"})
    register_polyfill("itertools", n, n);
  register_polyfill("itertools", "chain.from_iterable", "chain_from_iterable");
  for (const char* n : {"itemgetter", "attrgetter", "methodcaller"}) register_polyfill("operator", n, n);
  register_polyfill("copy", "deepcopy", "deepcopy");
  register_builtin("functools", "partial", do_partial);
  register_builtin("functools", "reduce", do_reduce);
  register_builtin("inspect", "signature", do_signature);
}

}  // namespace braze::capture
