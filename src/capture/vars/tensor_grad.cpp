#include "capture/vars/tensor_grad.h"

#include <unordered_set>

#include "capture/eval/library_objects.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"
#include "trace/pytorch/names.h"

namespace braze::capture {
namespace {

Ref real_attribute(Translator& tr, PyObject* o, const char* name) {
  Ref v = Ref::steal(native::attr(Ground::made(), o, name));
  if (!v) tr.raise_current();
  return v;
}

bool is_true(Translator& tr, PyObject* o, const char* name) { return real_attribute(tr, o, name).get() == Py_True; }

SourceId attribute_source(Translator& tr, TensorVariable* t, const char* name) {
  return tr.sources().add(SourceKind::TensorAttr, t->source, 0, tr.intern(name));
}

// Guarded where there are none.
bool has_hooks(Translator& tr, TensorVariable* t) {
  if (t->last_hook) return true;
  if (t->hooks_read) return false;
  for (pytorch::Attribute hook : {pytorch::Attribute::backward_hooks, pytorch::Attribute::post_accumulate_grad_hooks}) {
    const char* name = pytorch::text(hook);
    Ref hooks = real_attribute(tr, t->real.get(), name);
    if (hooks.get() != Py_None && PyObject_IsTrue(hooks.get())) return true;
    if (hooks.get() == Py_None)
      tr.guards().equal(attribute_source(tr, t, name), Py_None, tr.line());
    else
      tr.guards().length(attribute_source(tr, t, name), 0, tr.line());
  }
  t->hooks_read = true;
  return false;
}

// The engine would run hooks of real tensors, which the fakes do not have.
void without_hooks(Translator& tr, TensorVariable* t, Reason reason) {
  if (has_hooks(tr, t)) tr.unsupported(reason, "a backward through a tensor with hooks");
}

// Whether something that this node of autograd's graph had saved is gone. PyTorch says so in the getters of what it
// saves, https://docs.pytorch.org/docs/stable/notes/autograd.html#saved-tensors.
bool has_freed(Translator& tr, PyObject* node) {
  static constexpr std::string_view kPrefix = "_saved_", kOfPython = "saved_tensors";
  for (PyTypeObject* type = Py_TYPE(node); type; type = type->tp_base)
    for (PyGetSetDef* g = type->tp_getset; g && g->name; ++g) {
      const std::string_view name = g->name;
      if (!name.starts_with(kPrefix) && name != kOfPython) continue;
      if (Ref::steal(native::attr(Ground::made(), node, g->name))) continue;
      if (!PyErr_ExceptionMatches(PyExc_RuntimeError)) tr.raise_current();
      PyErr_Clear();
      return true;
    }
  return false;
}

// Calls f on the tensor, or on those of the sequence.
template <class F>
void for_each_tensor(Translator& tr, Variable* v, F&& f) {
  if (!v) return;
  v = tr.force(v);
  if (v->is(Kind::Tensor)) return f(v->as<TensorVariable>());
  if (v->is(Kind::Tuple) || v->is(Kind::List))
    for (Variable* e : static_cast<SequenceVariable*>(v)->elements) for_each_tensor(tr, e, f);
}

}  // namespace

bool leaves_history_behind(Translator& tr, TensorVariable* t) {
  if (t->times_written() == 0 || !is_true(tr, t->real.get(), "requires_grad") || is_true(tr, t->real.get(), "is_leaf"))
    return false;
  if (is_true(tr, t->real.get(), "retains_grad") || has_hooks(tr, t)) return true;
  tr.guards().equal(attribute_source(tr, t, "retains_grad"), Py_False, tr.line());
  return false;
}

void read_gradient(Translator& tr, TensorVariable* t) {
  if (!t->real || std::exchange(t->grad_known, true)) return;
  PyObject* fake = t->value(tr);
  Ref g = real_attribute(tr, t->real.get(), "grad");
  Variable* v = tr.force(tr.wrap(g.get(), attribute_source(tr, t, "grad")));
  PyObject* before = v->is(Kind::Tensor) ? v->as<TensorVariable>()->value(tr) : nullptr;
  if (before && PyObject_SetAttrString(fake, "grad", before) < 0) {
    PyErr_Clear();
    t->grad_known = false;
    tr.unsupported("a gradient that is not of its tensor's kind, as .data was given another");
  }
  t->first_grad = before;
  tr.effects.watch_gradient(t);
}

Variable* get_gradient(Translator& tr, TensorVariable* t) {
  read_gradient(tr, t);
  return tr.from_python(real_attribute(tr, t->value(tr), "grad"), Ground::pure(t));
}

void set_gradient(Translator& tr, TensorVariable* t, Variable* value) {
  tr.effects.no_effect("sets a gradient");
  Ref v = value ? tr.real.to_python(value) : Ref::borrow(Py_None);
  tr.mutate();
  PyObject* fake = t->value(tr);
  if (t->real) {
    tr.effects.watch_gradient(t);
    t->grad_known = true;
  }
  t->grad_written = true;
  if (PyObject_SetAttrString(fake, "grad", v.get()) < 0) tr.raise_current();
}

Variable* run_engine(Translator& tr, PyObject* fn, const Args& args, Variable* roots, Variable* wanted,
                     bool accumulates, bool retains) {
  // It would add to gradients as they are when the graph runs, not as the program has set them by now; and what other
  // backends trace has no engine.
  if (tr.view().torch_level && (accumulates || !tr.view().gradients))
    tr.unsupported("a backward in a graph of PyTorch's calls");
  if (accumulates) tr.effects.no_effect("adds to gradients");
  if (retains) tr.branches.refuse("gradients that are differentiated again");
  std::unordered_set<TensorVariable*> asked;  // arguments whose gradients are wanted
  Reason reason = Reason::UnsupportedFeature;
  for_each_tensor(tr, roots, [&](TensorVariable* t) { t->value(tr); });
  for_each_tensor(tr, wanted, [&](TensorVariable* t) {
    t->value(tr);
    if (t->real)
      asked.insert(t);
    else
      reason = Reason::IntermediateHistory;  // which a compiled graph's results do not have among each other
  });
  std::vector<TensorVariable*> leaves;
  for (TensorVariable* t : tr.lifted_tensors())
    if (is_true(tr, t->real.get(), "requires_grad")) leaves.push_back(t);
  for (TensorVariable* t : leaves) {
    without_hooks(tr, t, reason);
    // Its gradient goes on to what it was computed from, of which the fakes know nothing.
    if (!is_true(tr, t->real.get(), "is_leaf") && (accumulates || asked.size() > asked.count(t)))
      tr.unsupported(reason, "a backward through an argument that was computed outside");
    if (accumulates) read_gradient(tr, t);
  }
  std::vector<Ref> before;
  for (TensorVariable* t : leaves) before.push_back(accumulates ? real_attribute(tr, t->value(tr), "grad") : Ref());
  Variable* result = tr.host.call(fn, args, accumulates ? nullptr : fn);
  for (size_t i = 0; accumulates && i < leaves.size(); ++i)
    if (real_attribute(tr, leaves[i]->value(tr), "grad").get() != before[i].get())
      tensor_attribute(tr, leaves[i], tr.intern("grad"));
  tr.effects.frees_histories |= !retains;
  return result;
}

bool history_is_freed(Translator& tr, PyObject* fake) {
  std::vector<Ref> todo{real_attribute(tr, fake, "grad_fn")};
  std::unordered_set<PyObject*> seen;
  std::vector<Ref> kept;
  while (!todo.empty()) {
    Ref node = std::move(todo.back());
    todo.pop_back();
    if (node.get() == Py_None || !seen.insert(node.get()).second) continue;
    if (has_freed(tr, node.get())) return true;
    Ref next = real_attribute(tr, node.get(), "next_functions");
    for (Py_ssize_t i = 0; i < PyTuple_Size(next.get()); ++i)
      todo.push_back(Ref::borrow(PyTuple_GetItem(PyTuple_GetItem(next.get(), i), 0)));
    kept.push_back(std::move(node));  // whose address is in `seen`
  }
  return false;
}

void Effects::emit_gradients(Codegen& cg) {
  for (size_t i = 0; i < gradients_.size(); ++i) {
    TensorVariable* t = gradients_[i];
    Ref now = Ref::steal(native::of_tensor(t->fake.get(), "grad"));
    if (!now) tr_.raise_current();
    if (!t->grad_written && (now.get() == t->first_grad || (now.get() == Py_None && !t->first_grad))) continue;
    cg.recipe.effect(StepKind::SetAttr, {cg.reg(t), cg.reg(tr_.from_python(now, Ground::made()))}, tr_.intern("grad"));
  }
}

}  // namespace braze::capture
