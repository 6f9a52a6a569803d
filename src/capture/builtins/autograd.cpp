// Differentiation that the captured code asks for itself: autograd.Function, torch.autograd.grad and backward,
// inference mode.
#include <algorithm>
#include <string_view>

#include "capture/builtins/builtins.h"
#include "capture/cpython/imported.h"
#include "capture/eval/library_objects.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"
#include "capture/vars/tensor_grad.h"

namespace braze::capture {
namespace {

// ---- autograd.Function ----

// PyTorch binds the arguments of a forward by its signature, those given by name by its code; defaults do not count
// where all are given.
void set_signature(Translator& tr, PyObject* callback, FunctionVariable* fn) {
  static PyObject* signature = imported("inspect", "signature", true);
  Ref globals = Ref::steal(PyDict_New());
  Ref like =
      fn->real ? fn->real : Ref::steal(PyFunction_New(reinterpret_cast<PyObject*>(fn->code_object()), globals.get()));
  Ref found = Ref::steal(like ? PyObject_CallOneArg(signature, like.get()) : nullptr);
  if (!found || PyObject_SetAttrString(callback, "__signature__", found.get()) < 0 ||
      PyObject_SetAttrString(callback, "__code__", reinterpret_cast<PyObject*>(fn->code_object())) < 0)
    tr.raise_current();
}

// A subclass of the user's class whose methods are evaluated by the capture, so that what they read is guarded and what
// they compute is recorded: the forward now, the backward when the graph is differentiated.
Ref traced_class(Translator& tr, Variable* cls) {
  auto* type = reinterpret_cast<PyTypeObject*>(cls->as_constant());
  static PyObject* base = imported("torch.autograd", "Function", true);
  Ref body = Ref::steal(PyDict_New());
  for (const char* name : {"forward", "backward", "vjp", "jvp", "vmap", "setup_context"}) {
    PyObject* key = tr.intern(name);
    if (tr.attributes.lookup_on_type(type, key, nullptr) ==
        native::type_attr(Ground::fixed(), reinterpret_cast<PyTypeObject*>(base), key))
      continue;
    Variable* callee = tr.force(tr.getattr(cls, key));
    Ref callback = tr.host.callback(callee);
    if (std::string_view(name) == "forward" && callee->is(Kind::Function))
      set_signature(tr, callback.get(), callee->as<FunctionVariable>());
    Ref method = Ref::steal(PyStaticMethod_New(callback.get()));
    PyDict_SetItem(body.get(), key, method.get());
  }
  Ref module = Ref::steal(native::attr(Ground::conservative(), cls->as_constant(), "__module__"));
  if (module) PyDict_SetItemString(body.get(), "__module__", module.get());
  Ref made = Ref::steal(PyObject_CallFunction(reinterpret_cast<PyObject*>(Py_TYPE(type)), "s(O)O", type->tp_name,
                                              cls->as_constant(), body.get()));
  if (!made) tr.raise_current();
  tr.keep(made);
  return made;
}

// Whether what stands for it in a call is the value itself.
bool has_value(Translator& tr, Variable* v) {
  v = tr.force(v);
  if (v->is(Kind::Tuple) || v->is(Kind::List)) {
    const auto& elements = static_cast<SequenceVariable*>(v)->elements;
    return std::all_of(elements.begin(), elements.end(), [&](Variable* e) { return has_value(tr, e); });
  }
  if (v->is(Kind::Dict)) {
    const auto& entries = v->as<DictVariable>()->entries(tr);
    return std::all_of(entries.begin(), entries.end(),
                       [&](const auto& e) { return has_value(tr, e.key) && has_value(tr, e.value); });
  }
  return v->is(Kind::Tensor) || v->is(Kind::Sym) || v->as_constant();
}

// PyTorch hands on what is no tensor: containers come to the forward as the very objects that they are. `stood_in`: one
// of them did, which a graph of torch's functions cannot show.
Variable* handed_on(Translator& tr, Variable* v, bool& stood_in) {
  v = tr.force(v);
  // What stands for it in the forward and the backward is of no class of the program's.
  if (v->is(Kind::Tensor) && v->type() != library().tensor && v->type() != library().parameter)
    tr.unsupported(Reason::UnsupportedTensor,
                   std::string("an autograd.Function of a tensor of class ") + v->type()->tp_name);
  const bool whole = has_value(tr, v);
  if (tr.view().torch_level && !whole) tr.unsupported("an autograd.Function of objects in a graph of PyTorch's calls");
  const bool container = v->is(Kind::List) || v->is(Kind::Dict) || v->is(Kind::Set) || v->is(Kind::Tuple);
  stood_in = stood_in || (container && !tr.view().torch_level) || !whole;
  if (!container || tr.view().torch_level) return v;
  Ref token = Ref::steal(PyObject_CallNoArgs(reinterpret_cast<PyObject*>(&PyBaseObject_Type)));
  if (!token) tr.raise_current();
  tr.stand_in_for(token.get(), v);
  return tr.host.host_object(std::move(token));
}

Variable* function_apply(Translator& tr, Args& a) {
  if (a.size() < 1 || !a[0]->as_constant() || !PyType_Check(a[0]->as_constant())) return nullptr;
  Ref cls = traced_class(tr, a[0]);
  static PyObject* descr = [] {
    return native::item(Ground::fixed(), type_dict(pytorch::get_type(pytorch::Name::FunctionBase)), "apply");
  }();
  Ref apply = Ref::steal(Py_TYPE(descr)->tp_descr_get(descr, nullptr, cls.get()));
  // torch.fx names functions by their module: a function of the class's own module.
  static PyObject* node = imported("braze.polyfills", "apply_of", true);
  Ref noted = Ref::steal(PyObject_CallOneArg(node, a[0]->as_constant()));
  if (!apply || !noted) tr.raise_current();
  Args given;
  bool stood_in = false;
  for (size_t i = 1; i < a.size(); ++i) given.pos.push_back(handed_on(tr, a[i], stood_in));
  for (const auto& [name, v] : a.kw) given.kw.emplace_back(name, handed_on(tr, v, stood_in));
  return tr.host.call(apply.get(), given, stood_in ? nullptr : noted.get());
}

// Function.apply below a transform of functions: PyTorch's own code takes the class apart, and calls what the user
// defined.
Variable* transformed_apply(Translator& tr, Args& a) {
  static PyObject *active = pytorch::get(pytorch::Name::are_functorch_transforms_active),
                  *base = imported("torch.autograd", "Function", true),
                  *function_call = pytorch::get(pytorch::Name::custom_function_call);
  Ref transformed = Ref::steal(PyObject_CallNoArgs(active));
  if (transformed.get() != Py_True || a.size() < 1 || !a[0]->as_constant() || !PyType_Check(a[0]->as_constant()) ||
      !a.kw.empty())
    return nullptr;
  // Without a setup_context PyTorch raises an error; where arguments are left out it fills in the defaults, by the
  // signature.
  PyObject* setup = tr.intern("setup_context");
  if (tr.attributes.lookup_on_type(reinterpret_cast<PyTypeObject*>(a[0]->as_constant()), setup, nullptr) ==
      native::type_attr(Ground::fixed(), reinterpret_cast<PyTypeObject*>(base), setup))
    return nullptr;
  Variable* forward = tr.force(tr.getattr(a[0], "forward"));
  if (!forward->is(Kind::Function)) return nullptr;
  PyCodeObject* code = forward->as<FunctionVariable>()->code_object();
  if (!(code->co_flags & CO_VARARGS) && static_cast<size_t>(code->co_argcount) != a.size() - 1) return nullptr;
  Args all{{tr.global_object(traced_class(tr, a[0]).get(), Ground::pure(a))}, {}};
  all.pos.insert(all.pos.end(), a.pos.begin() + 1, a.pos.end());
  return tr.host.call(function_call, all);
}

Variable* as_given(Translator&, Args& a) { return a.size() == 1 ? a[0] : nullptr; }

// ---- the engine ----

// nullptr: it is not given.
Variable* argument(const Args& a, size_t position, const char* name) {
  if (position < a.size()) return a[position];
  for (auto& [key, value] : a.kw)
    if (PyUnicode_CompareWithASCIIString(key, name) == 0) return value;
  return nullptr;
}

bool given(Translator& tr, const Args& a, size_t position, const char* name) {
  Variable* v = argument(a, position, name);
  return v && !is_none(tr.force(v)) && tr.truth(v);
}

// grad(outputs, inputs, grad_outputs=None, retain_graph=None, create_graph=False, ...)
Variable* autograd_grad(Translator& tr, Args& a) {
  static PyObject* fn = imported("torch.autograd", "grad", true);
  Variable *roots = argument(a, 0, "outputs"), *inputs = argument(a, 1, "inputs");
  if (!roots || !inputs) return nullptr;
  return run_engine(tr, fn, a, roots, inputs, false,
                    given(tr, a, 3, "retain_graph") || given(tr, a, 4, "create_graph"));
}

// backward(tensors, grad_tensors=None, retain_graph=None, create_graph=False, ...); the same order as Tensor.backward's
Variable* autograd_backward(Translator& tr, Args& a) {
  static PyObject* fn = imported("torch.autograd", "backward", true);
  Variable* roots = argument(a, 0, "tensors");
  if (!roots) return nullptr;
  return run_engine(tr, fn, a, roots, argument(a, 5, "inputs"), true,
                    given(tr, a, 2, "retain_graph") || given(tr, a, 3, "create_graph"));
}

Variable* tensor_backward(Translator& tr, Args& a) {
  static PyObject* fn = native::type_attr(Ground::fixed(), library().tensor, PyUnicode_InternFromString("backward"));
  if (a.size() < 1) return nullptr;
  return run_engine(tr, fn, a, a[0], argument(a, 4, "inputs"), true,
                    given(tr, a, 2, "retain_graph") || given(tr, a, 3, "create_graph"));
}

// ---- hooks ----

// What links the two hooks of a module's backward is seen by no one else. The function itself is evaluated.
Variable* module_backward_hook(Translator& tr, Args& a) {
  if (a.size() != 3 || !a[0]->is(Kind::Object) || a[0]->source.valid()) return nullptr;
  if (DictVariable* state = a[0]->as<ObjectVariable>()->instance_dict(tr)) tr.effects.private_to_capture(state);
  return nullptr;
}

// ---- inference mode ----

// Whether the capture runs in the mode.
Variable* outer_inference_mode(Translator& tr) {
  static PyObject* fn = imported("torch", "is_inference_mode_enabled", true);
  return tr.real.query_torch(fn, Args{});
}

// Called by the polyfill of its guard: returns what was set before.
Variable* set_inference(Translator& tr, Args& a) {
  if (a.size() != 1) return nullptr;
  tr.mutate();
  bool on = tr.truth(a[0]);
  if (!on && !tr.effects.inference && tr.truth(outer_inference_mode(tr)))
    tr.unsupported("torch.inference_mode(False) inside of it");
  if (on && !tr.effects.inference) {
    // To stop there is to stop before the program's own statement: what stands for the mode's guard in the frames below
    // enters nothing.
    Frame* outermost = tr.frame();
    while (outermost->parent) outermost = outermost->parent;
    tr.effects.inference_since = outermost->ordinal;
  }
  return tr.boolean(std::exchange(tr.effects.inference, on), Ground::pure(a));
}

Variable* is_inference_mode(Translator& tr, Args&) {
  if (tr.effects.inference) return tr.boolean(true, Ground::process(ProcessState::GradMode));
  return outer_inference_mode(tr);
}

// torch.is_inference(tensor)
Variable* is_inference(Translator& tr, Args& a) {
  if (a.size() != 1 || !a.kw.empty()) return nullptr;
  Variable* v = tr.force(a[0]);
  if (!v->is(Kind::Tensor)) return nullptr;
  return tr.call(tr.getattr(v, "is_inference"), Args{});
}

}  // namespace

void register_autograd_builtins() {
  register_builtin(pytorch::Name::FunctionBase_apply, function_apply);
  register_builtin("torch.autograd", "Function.apply.__func__", transformed_apply);
  // No transform is over while the code that it calls still runs.
  register_builtin(pytorch::Name::unwrap_dead_wrappers, as_given);
  register_builtin("torch.autograd", "grad", autograd_grad);
  register_builtin("torch.autograd", "backward", autograd_backward);
  register_builtin("torch", "Tensor.backward", tensor_backward);
  register_builtin(pytorch::Name::apply_on_tensors, module_backward_hook);
  register_polyfill(pytorch::Name::InferenceMode, "InferenceMode");
  register_builtin("braze.polyfills", "set_inference", set_inference);
  register_builtin("torch", "is_inference_mode_enabled", is_inference_mode);
  register_builtin("torch", "is_inference", is_inference);
}

}  // namespace braze::capture
