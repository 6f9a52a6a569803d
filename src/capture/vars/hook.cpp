#include "capture/vars/hook.h"

#include "capture/cpython/imported.h"
#include "capture/eval/library_objects.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"

namespace braze::capture {

Variable* HookHandleVariable::getattr(Translator& tr, PyObject*) {
  tr.unsupported("the handle of a hook, in the code that registers it");
}

Reg HookHandleVariable::build(Codegen& cg) {
  if (before) cg.reg(before);
  return cg.recipe.make(StepKind::Call, {cg.constant(method), cg.reg(tensor), cg.reg(hook)});
}

Variable* hook_on_leaf(Translator& tr, TensorVariable* t, const char* method, Variable* hook) {
  Ref leaf = Ref::steal(native::attr(Ground::pure(t), t->value(tr), "is_leaf")),
      wants = Ref::steal(native::attr(Ground::pure(t), t->value(tr), "requires_grad"));
  if (!t->real || leaf.get() != Py_True || wants.get() != Py_True) return nullptr;
  tr.effects.no_effect("registers a hook");
  tr.mutate();
  static PyObject* handle = imported("torch.utils.hooks", "RemovableHandle");
  PyObject* function =
      tr.keep(Ref::steal(native::attr(Ground::fixed(), reinterpret_cast<PyObject*>(library().tensor), method)));
  auto* made = tr.make<HookHandleVariable>(reinterpret_cast<PyTypeObject*>(handle), function, t, hook, t->last_hook);
  t->last_hook = made;
  tr.effects.make_always(made);
  return made;
}

}  // namespace braze::capture
