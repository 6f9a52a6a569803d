// nn.Module: attribute access and calls as torch.nn.modules.module does them, without running its Python code.
#include <iterator>

#include "capture/cpython/imported.h"
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

// torch.nn.Buffer, by its metaclass.
bool is_buffer(Translator& tr, Variable* tensor) {
  static PyObject *isinstance = native::builtin("isinstance"), *buffer = imported("torch.nn", "Buffer", true);
  Args args{{tensor, tr.global_object(buffer, Ground::fixed())}, {}};
  return tr.truth(tr.call(tr.global_object(isinstance, Ground::fixed()), args));
}

}  // namespace

Variable* module_getattr(Translator& tr, ObjectVariable* m, PyObject* name) {
  for (const char* t : kTables)
    if (DictVariable* d = table(tr, m, t))
      if (Variable* v = d->get(tr, name)) return v;
  return nullptr;
}

// The plain cases; others are what PyTorch's own code says.
void module_setattr(Translator& tr, ObjectVariable* m, PyObject* name, Variable* value) {
  value = value ? tr.force(value) : nullptr;
  auto as_pytorch_does = [&] {
    std::vector<Variable*> args{m, tr.constant(name, Ground::pure(m, value))};
    if (value) args.push_back(value);
    tr.call(tr.attributes.special_method(m, value ? "__setattr__" : "__delattr__"), args);
  };
  const bool module = value && value->is(Kind::Module), tensor = value && value->is(Kind::Tensor),
             parameter = tensor && value->type() == library().parameter;
  size_t in = 0;  // the first table that has the name
  DictVariable* held = nullptr;
  while (in < std::size(kTables) && !((held = table(tr, m, kTables[in])) && held->get(tr, name))) ++in, held = nullptr;
  if (!value) {
    if (held) {
      held->remove(tr, tr.constant(name, Ground::pure(m, value)));
      return;
    }
    for (const char* t : kTables)
      if (!table(tr, m, t)) return as_pytorch_does();
    return m->generic_setattr(tr, name, value);
  }
  using enum pytorch::Attribute;
  auto hooked = [&](pytorch::Attribute hooks) { return !is_empty(tr, module_global(tr, hooks)); };
  if (module || parameter) {
    const size_t into = module ? 2 : 0;
    DictVariable* d = table(tr, m, kTables[into]);
    if (!d || (held && in != into) || m->instance_get(tr, name) ||
        hooked(module ? module_registration_hooks : parameter_registration_hooks))
      return as_pytorch_does();
    d->set(tr, name, value);
    return;
  }
  if (held) {
    // Only a buffer may be given another tensor without more ado.
    const bool plain =
        in == 1 && (tensor ? !is_buffer(tr, value) : is_none(value)) && !hooked(buffer_registration_hooks);
    if (!plain) return as_pytorch_does();
    held->set(tr, name, value);
    return;
  }
  if (tensor && is_buffer(tr, value)) return as_pytorch_does();
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
