// nn.Module: attribute access and calls as torch.nn.modules.module does them, without running its Python code.
#include "capture/eval/library_objects.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"
#include "trace/pytorch/names.h"

namespace braze::capture {
namespace {

const char* const kTables[] = {pytorch::text(pytorch::Attribute::parameters),
                               pytorch::text(pytorch::Attribute::buffers), pytorch::text(pytorch::Attribute::modules)};

// A dict held by the instance dict; nullptr when there is none.
DictVariable* table(Translator& tr, ObjectVariable* m, const char* name) {
  Variable* v = m->instance_get(tr, tr.intern(name));
  if (!v) return nullptr;
  v = tr.force(v);
  return v->is(Kind::Dict) ? v->as<DictVariable>() : nullptr;
}

bool is_empty(Translator& tr, Variable* v) { return v && tr.force(v)->has_len(tr) && tr.len(v) == 0; }

Variable* module_global(Translator& tr, pytorch::Attribute name) {
  PyObject* key = pytorch::interned(name);
  PyObject* v = native::item(Ground::fixed(), library().module_globals, key);
  if (!v) return nullptr;
  return tr.wrap(
      v, tr.sources().dict_item(tr.sources().constant(library().module_globals, "torch.nn.modules.module"), key));
}

}  // namespace

Variable* module_getattr(Translator& tr, ObjectVariable* m, PyObject* name) {
  for (const char* t : kTables)
    if (DictVariable* d = table(tr, m, t))
      if (Variable* v = d->get(tr, name)) return v;
  return nullptr;
}

void module_setattr(Translator& tr, ObjectVariable* m, PyObject* name, Variable* value) {
  value = value ? tr.force(value) : nullptr;
  auto refuse = [&] {
    tr.unsupported(Reason::UnsupportedMutation,
                   "a parameter, buffer or submodule is set: '" + std::string(PyUnicode_AsUTF8(name)) + "'");
  };
  bool module = value && value->is(Kind::Module),
       parameter = value && value->is(Kind::Tensor) && value->type() == library().parameter;
  if (module || parameter) {
    const char* into = kTables[module ? 2 : 0];
    if (m->instance_get(tr, name)) refuse();
    for (const char* t : kTables)
      if (DictVariable* d = table(tr, m, t); t != into && d && d->get(tr, name)) refuse();
    DictVariable* d = table(tr, m, into);
    if (!d) refuse();
    d->set(tr, name, value);
    return;
  }
  for (const char* t : kTables) {
    DictVariable* d = table(tr, m, t);
    if (!d && !value) {
      // Module.__delattr__ reads self._parameters and the others; before Module.__init__() ran that is an
      // AttributeError.
      tr.getattr(m, t);
      refuse();
    }
    if (!d || !d->get(tr, name)) continue;
    if (!value) {
      d->remove(tr, tr.constant(name, Ground::pure(m, value)));
      return;
    }
    // Only a buffer may be given another tensor without more ado.
    if (t != kTables[1] || !(value->is(Kind::Tensor) || is_none(value))) refuse();
    d->set(tr, name, value);
    return;
  }
  m->generic_setattr(tr, name, value);
}

Variable* module_call_target(Translator& tr, ObjectVariable* m) {
  PyTypeObject* cls = m->type();
  SourceId at;
  PyObject* call = tr.attributes.lookup_on_type(cls, tr.intern("__call__"), &at);
  if (call != library().module_call) return tr.make<BoundMethodVariable>(tr.force(tr.wrap(call, at)), m);
  tr.guard_identity(at, call);
  SourceId impl_at;
  PyObject* impl = tr.attributes.lookup_on_type(cls, pytorch::interned(pytorch::Attribute::call_impl), &impl_at);
  bool plain = impl == library().module_call_impl;
  if (plain) {
    tr.guard_identity(impl_at, impl);
    using enum pytorch::Attribute;
    constexpr pytorch::Attribute own[] = {module_backward_hooks, backward_pre_hooks, forward_hooks, forward_pre_hooks};
    constexpr pytorch::Attribute global[] = {global_backward_pre_hooks, global_backward_hooks, global_forward_hooks,
                                             global_forward_pre_hooks};
    plain = !m->instance_get(tr, pytorch::interned(pytorch::Attribute::call_impl));
    for (pytorch::Attribute h : own) plain = plain && is_empty(tr, m->instance_get(tr, pytorch::interned(h)));
    for (pytorch::Attribute h : global) plain = plain && is_empty(tr, module_global(tr, h));
  }
  return tr.getattr(m, plain ? "forward" : pytorch::text(pytorch::Attribute::call_impl));
}

}  // namespace braze::capture
