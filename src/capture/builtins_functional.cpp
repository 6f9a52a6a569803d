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
  std::vector<std::pair<PyObject*, Variable*>> kw = a.kw;
  return tr.make<PartialVariable>(a[0], std::vector<Variable*>(a.pos.begin() + 1, a.pos.end()), kw);
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

}  // namespace

void register_functional_builtins() {
  register_builtin("functools", "partial", do_partial);
  register_builtin("functools", "reduce", do_reduce);
}

}  // namespace braze::capture
