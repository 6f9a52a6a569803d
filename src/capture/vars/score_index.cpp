#include "capture/vars/score_index.h"

#include "capture/eval/library_objects.h"
#include "capture/vars/all.h"

namespace braze::capture {

Variable* element_of_scores(Translator& tr, TensorVariable* t, Variable* key) {
  if (!tr.in_score_function) return nullptr;
  key = tr.force(key);
  std::vector<Variable*> keys = key->is(Kind::Tuple) ? tr.unpack(key) : std::vector<Variable*>{key};
  static PyObject* const index = [] {
    Ref ops = Ref::steal(native::attr(Ground::fixed(), library().torch, "ops"));
    Ref aten = Ref::steal(ops ? native::attr(Ground::fixed(), ops.get(), "aten") : nullptr);
    return aten ? native::attr(Ground::fixed(), aten.get(), "index") : nullptr;
  }();
  static PyObject* const full = native::attr(Ground::fixed(), library().torch, "full");
  static PyObject* const int64 = native::attr(Ground::fixed(), library().torch, "int64");
  bool any = false;
  for (Variable*& k : keys) {
    k = tr.force(k);
    if (k->is(Kind::Tensor)) {
      Ref rank = Ref::steal(native::of_tensor(k->as<TensorVariable>()->value(tr), "ndim"));
      if (!rank || PyLong_AsLong(rank.get()) != 0) return nullptr;
      any = true;
    } else if (!k->is(Kind::Constant) || k->type() != &PyLong_Type) {
      return nullptr;
    }
  }
  if (!any || !index) return nullptr;
  for (Variable*& k : keys) {
    if (k->is(Kind::Tensor)) continue;
    Args a{{tr.tuple({}), k}, {}};
    a.kw.emplace_back(tr.intern("dtype"), tr.constant(int64, Ground::fixed()));
    Ref device = Ref::steal(native::of_tensor(t->value(tr), "device"));
    a.kw.emplace_back(tr.intern("device"), tr.constant(device.get(), Ground::pure(t)));
    k = tr.real.call_torch(full, a);
  }
  return tr.real.call_torch(index, Args{{t, tr.list(std::move(keys))}, {}});
}

}  // namespace braze::capture
