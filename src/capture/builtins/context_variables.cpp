// contextvars.ContextVar: what was set before the capture is guarded, what the capture sets is set when the entry runs.
#include <algorithm>

#include "capture/builtins/builtins.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"
#include "capture/vars/context_token.h"

namespace braze::capture {
namespace {

// What set the value that the variable has; nullptr: it has that of before the capture.
ContextTokenVariable* last_set(Translator& tr, PyObject* var) {
  auto& tokens = tr.effects.context_tokens;
  auto it = std::find_if(tokens.rbegin(), tokens.rend(), [&](ContextTokenVariable* t) { return t->var == var; });
  return it == tokens.rend() ? nullptr : *it;
}

// ContextVar.get([default])
Variable* context_get(Translator& tr, Args& a) {
  if (a.size() < 1 || a.size() > 2 || !a.kw.empty() || !a[0]->is(Kind::Real)) return nullptr;
  PyObject* var = a[0]->as_constant();
  if (ContextTokenVariable* set = last_set(tr, var)) return set->value;
  PyObject* v = nullptr;
  // The default that is given comes before the variable's own, which its getter does not tell from a value that was
  // set.
  static PyObject* unset = PyObject_CallNoArgs(reinterpret_cast<PyObject*>(&PyBaseObject_Type));
  if (PyContextVar_Get(var, a.size() == 2 ? unset : nullptr, &v) < 0) tr.raise_current();
  Ref value = Ref::steal(v);
  if (a.size() == 2) {
    Ref empty = Ref::steal(PyContext_New());
    PyObject* own = nullptr;
    PyContext_Enter(empty.get());
    PyContextVar_Get(var, nullptr, &own);
    PyContext_Exit(empty.get());
    if (own) Py_DECREF(own), tr.unsupported("a context variable with two defaults");
  }
  if (value.get() == unset) value = Ref();
  SourceId at = tr.sources().derived(SourceKind::ContextValue, a[0]->source);
  if (value) return tr.wrap(value.get(), at);
  if (a.size() == 1) return nullptr;  // a LookupError
  tr.guards().absent(at, tr.line());
  return a[1];
}

// ContextVar.set(value)
Variable* context_set(Translator& tr, Args& a) {
  if (a.size() != 2 || !a.kw.empty() || !a[0]->is(Kind::Real)) return nullptr;
  auto* token = tr.make<ContextTokenVariable>(a[0]->as_constant(), a[1], last_set(tr, a[0]->as_constant()));
  tr.effects.set_context(token);
  return token;
}

// ContextVar.reset(token)
Variable* context_reset(Translator& tr, Args& a) {
  if (a.size() != 2 || !a.kw.empty() || !a[0]->is(Kind::Real) || !a[1]->is(Kind::ContextToken)) return nullptr;
  auto* token = a[1]->as<ContextTokenVariable>();
  if (token != last_set(tr, a[0]->as_constant())) return nullptr;  // an error, or not the latest
  tr.effects.reset_context(token);
  return tr.none();
}

}  // namespace

void register_context_variable_builtins() {
  register_builtin("contextvars", "ContextVar.get", context_get);
  register_builtin("contextvars", "ContextVar.set", context_set);
  register_builtin("contextvars", "ContextVar.reset", context_reset);
}

// The calls of set() are made in their order, also where a generator's state asks for a later one first.
Reg ContextTokenVariable::build(Codegen& cg) {
  if (used) return Variable::build(cg);
  if (below) cg.reg(below);
  Ref set = Ref::steal(native::attr(Ground::fixed(), reinterpret_cast<PyObject*>(&PyContextVar_Type), "set"));
  return cg.recipe.make(StepKind::Call, {cg.constant(set.get()), cg.constant(var), cg.reg(value)});
}

}  // namespace braze::capture
