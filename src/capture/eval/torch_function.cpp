#include "capture/eval/torch_function.h"

#include <string_view>
#include <unordered_set>

#include "capture/builtins/builtins.h"
#include "capture/cpython/imported.h"
#include "capture/eval/library_objects.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"
#include "trace/pytorch/names.h"

namespace braze::capture {
namespace {

PyObject* disabled_function() { return pytorch::get(pytorch::Name::disabled_torch_function_impl); }

struct Stack {
  PyObject *length = pytorch::get(pytorch::Name::len_torch_function_stack),
           *at = pytorch::get(pytorch::Name::get_function_stack_at),
           *push = pytorch::get(pytorch::Name::push_on_torch_function_stack),
           *pop = pytorch::get(pytorch::Name::pop_torch_function_stack);
};
const Stack& stack() {
  static const Stack s;
  return s;
}

int64_t stack_length() {
  Ref n = Ref::steal(PyObject_CallNoArgs(stack().length));
  return n ? PyLong_AsLongLong(n.get()) : 0;
}

void push(PyObject* mode) {
  if (!Ref::steal(PyObject_CallOneArg(stack().push, mode))) PyErr_Clear();
}

Ref pop() {
  Ref mode = Ref::steal(PyObject_CallNoArgs(stack().pop));
  if (!mode) PyErr_Clear();
  return mode;
}

// PyTorch's own mode behind `with device`; it has no effects but on the arguments of factories.
bool is_device_context(PyObject* mode) { return Py_TYPE(mode) == pytorch::get_type(pytorch::Name::DeviceContext); }

PyObject* state_values() { return pytorch::get(pytorch::Name::TorchFunctionState); }
PyObject* state_getter() { return pytorch::get(pytorch::Name::get_torch_function_state); }

// Whether a mode is on that is more than the device of factories.
bool holds_own_mode() {
  for (int64_t i = 0, n = stack_length(); i < n; ++i) {
    Ref index = Ref::steal(PyLong_FromLongLong(i)), mode = Ref::steal(PyObject_CallOneArg(stack().at, index.get()));
    if (!mode || !is_device_context(mode.get())) return PyErr_Clear(), true;
  }
  return false;
}

// 0: on; 1: off for classes of tensors and other objects; 2: off for modes as well.
const char* const kStateNames[] = {"ENABLED", "SUBCLASSES_DISABLED", "ALL_DISABLED"};

int64_t torch_function_state() {
  Ref now = Ref::steal(PyObject_CallNoArgs(state_getter()));
  for (int64_t i = 0; now && i < 3; ++i) {
    Ref v = Ref::steal(native::attr(Ground::fixed(), state_values(), kStateNames[i]));
    if (v && PyObject_RichCompareBool(now.get(), v.get(), Py_EQ) == 1) return i;
  }
  PyErr_Clear();
  return 0;
}

void set_torch_function_state(Translator& tr, int64_t state) {
  tr.effects.set_state(state_getter(), {}, pytorch::get(pytorch::Name::set_torch_function_state),
                       {Ref::steal(native::attr(Ground::fixed(), state_values(), kStateNames[state]))});
}

// Runs with the state at least so far off.
template <class F>
Variable* with_functions_off(Translator& tr, int64_t state, F&& run) {
  const int64_t before = torch_function_state();
  if (before >= state) return run();
  set_torch_function_state(tr, state);
  Variable* result;
  try {
    result = run();
  } catch (...) {
    set_torch_function_state(tr, before);
    throw;
  }
  set_torch_function_state(tr, before);
  return result;
}

// Of the polyfills of the contexts: sets the state, returns what it was.
Variable* torch_function_at_least(Translator& tr, Args& a) {
  Ref n = a.size() == 1 ? tr.real.to_python(a[0]) : Ref();
  if (!n) return nullptr;
  int64_t before = torch_function_state(), to = PyLong_AsLongLong(n.get());
  if (before < to) set_torch_function_state(tr, to);
  return tr.integer(before, Ground::pure(a));
}
Variable* torch_function_back(Translator& tr, Args& a) {
  Ref n = a.size() == 1 ? tr.real.to_python(a[0]) : Ref();
  if (!n) return nullptr;
  set_torch_function_state(tr, PyLong_AsLongLong(n.get()));
  return tr.none();
}

bool holds_own(Translator& tr, Variable* v, int depth) {
  if (depth > 4) return false;
  v = tr.force(v);
  if (v->is(Kind::Tensor)) {
    PyTypeObject* t = v->type();
    return t != library().tensor && t != library().parameter && tr.torch_functions.of(t) == TorchFunction::Own;
  }
  if (v->is(Kind::Object)) return tr.torch_functions.of(v->type()) == TorchFunction::Own;
  // Of what has attributes of its own, PyTorch asks the object, not its class.
  if (v->is(Kind::Real) && PyModule_Check(v->as_constant())) tr.unsupported("a module as an operand of a tensor");
  if (v->is(Kind::Tuple) || v->is(Kind::List)) {
    for (Variable* e : static_cast<SequenceVariable*>(v)->elements)
      if (holds_own(tr, e, depth + 1)) return true;
  } else if (v->is(Kind::Dict)) {
    for (const auto& e : v->as<DictVariable>()->entries(tr))
      if (holds_own(tr, e.value, depth + 1)) return true;
  }
  return false;
}

Ref new_class(PyObject* name, PyObject* base, PyObject* torch_function, PyObject* above = nullptr) {
  Ref body = Ref::steal(PyDict_New()), method = Ref::steal(PyStaticMethod_New(torch_function));
  PyDict_SetItemString(body.get(), "__torch_function__", method.get());
  Ref bases = Ref::steal(above ? PyTuple_Pack(2, base, above) : base ? PyTuple_Pack(1, base) : PyTuple_New(0));
  PyObject* meta = base ? reinterpret_cast<PyObject*>(Py_TYPE(base)) : reinterpret_cast<PyObject*>(&PyType_Type);
  return Ref::steal(PyObject_CallFunctionObjArgs(meta, name, bases.get(), body.get(), nullptr));
}

Variable* push_mode(Translator& tr, Args& a) {
  if (a.size() != 1) return nullptr;
  tr.torch_functions.push_mode(a[0]);
  return tr.none();
}

Variable* pop_mode(Translator& tr, Args& a) { return a.size() == 0 ? tr.torch_functions.pop_mode() : nullptr; }

Variable* mode_at(Translator& tr, Args& a) {
  PyObject* i = a.size() == 1 ? constant_of(a[0]) : nullptr;
  Ref mode = Ref::steal(i ? PyObject_CallOneArg(stack().at, i) : nullptr);
  if (!mode) return PyErr_Clear(), nullptr;
  return tr.host.from_host(std::move(mode));
}

// Tensor.__torch_function__(func, types, args=(), kwargs=None) of a class: the function on plain tensors, the result of
// the class.
Variable* plain_function(Translator& tr, Args& a) {
  if (a.size() < 3 || a.size() > 5 || !a.kw.empty()) return nullptr;
  PyObject* cls = a[0]->as_constant();
  if (!cls || !PyType_Check(cls)) return nullptr;
  for (Variable* t : tr.unpack(a[2])) {
    PyObject* type = tr.force(t)->as_constant();
    if (!type || !PyType_Check(type)) return nullptr;
    if (!PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(cls), reinterpret_cast<PyTypeObject*>(type)))
      return tr.constant(Py_NotImplemented, Ground::fixed());
  }
  Args args;
  if (a.size() > 3) args.pos = tr.unpack(a[3]);
  Variable* kw = a.size() > 4 ? tr.force(a[4]) : tr.none();
  if (!is_none(kw)) {
    if (!kw->is(Kind::Dict)) return nullptr;
    for (const auto& e : kw->as<DictVariable>()->entries(tr))
      args.kw.emplace_back(tr.keep(tr.real.to_python(e.key)), e.value);
  }
  Variable* result = with_functions_off(tr, 1, [&] { return tr.force(tr.call(a[1], std::move(args))); });
  static PyObject* unwrapped = imported("torch.overrides", "get_default_nowrap_functions", true);
  Ref unconverted = Ref::steal(PyObject_CallNoArgs(unwrapped));
  PyObject* fn = a[1]->as_constant();
  if (fn && unconverted && PySet_Contains(unconverted.get(), fn) == 1) return result;
  PyErr_Clear();
  return tr.torch_functions.of_tensor_class(result, reinterpret_cast<PyTypeObject*>(cls));
}

// Tensor.as_subclass(cls): no torch function sees it.
Variable* as_subclass(Translator& tr, Args& a) {
  PyObject* cls = a.size() == 2 && a.kw.empty() ? a[1]->as_constant() : nullptr;
  if (!cls || !PyType_Check(cls) || !PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(cls), library().tensor) ||
      !a[0]->is(Kind::Tensor))
    return nullptr;
  static PyObject* alias = [] {
    Ref op = Ref::steal(native::attr(Ground::fixed(), library().torch, "ops"));
    for (const char* name : {"aten", "alias", "default"})
      op = Ref::steal(native::attr(Ground::fixed(), op.get(), name));
    return op.release();
  }();
  Variable* made = with_functions_off(tr, 2, [&] { return tr.force(tr.real.call_torch(alias, Args{{a[0]}, {}})); });
  return tr.torch_functions.of_tensor_class(made, reinterpret_cast<PyTypeObject*>(cls));
}

Variable* modes_enabled(Translator& tr, Args&) {
  return tr.boolean(stack_length() != 0, Ground::process(ProcessState::FunctionModes));
}
// For tensor subclasses.
Variable* functions_enabled(Translator& tr, Args&) {
  return tr.boolean(torch_function_state() == 0, Ground::process(ProcessState::FunctionModes));
}
Variable* modes_length(Translator& tr, Args&) {
  return tr.integer(stack_length(), Ground::process(ProcessState::FunctionModes));
}

}  // namespace

TorchFunction TorchFunctions::of(PyTypeObject* cls) {
  auto [it, fresh] = known_.try_emplace(cls, TorchFunction::None);
  if (!fresh) return it->second;
  static PyObject* name = PyUnicode_InternFromString("__torch_function__");
  static PyObject* plain = native::type_attr(Ground::fixed(), library().tensor, name);
  SourceId at;
  PyObject* found = tr_.attributes.lookup_on_type(cls, name, &at);
  if (!found) return TorchFunction::None;
  if (at.valid()) tr_.guard_identity(at, found);
  return known_[cls] = found == plain || found == disabled_function() ? TorchFunction::Plain : TorchFunction::Own;
}

const char* refuse_tensor_class(PyTypeObject* cls) {
  static PyObject* dispatch = PyUnicode_InternFromString("__torch_dispatch__");
  if (native::type_attr(Ground::conservative(), cls, dispatch) !=
      native::type_attr(Ground::fixed(), library().tensor, dispatch))
    return "it has a __torch_dispatch__";
  // What Python's operators and attribute access call without asking torch.
  static const std::unordered_set<std::string_view> harmless{
      "__new__",       "__init__",          "__torch_function__", "__repr__",
      "__str__",       "__init_subclass__", "__class_getitem__",  "__reduce__",
      "__reduce_ex__", "__deepcopy__",      "__copy__",           "__setstate__",
      "__getstate__",  "__hash__",          "__tensor_flatten__", "__tensor_unflatten__"};
  for (PyTypeObject* t = cls; t && t != library().tensor && t != library().parameter; t = t->tp_base) {
    PyObject *key, *value;
    Py_ssize_t pos = 0;
    while (PyDict_Next(type_dict(t), &pos, &key, &value)) {
      if (!PyUnicode_Check(key) || !PyFunction_Check(value)) continue;
      std::string_view n = PyUnicode_AsUTF8(key);
      if (n.starts_with("__") && n.ends_with("__") && !harmless.count(n)) return "it has operators of its own";
      if (n == "__init_subclass__") return "its subclasses are made in a way of their own";
    }
    if (t->tp_base && PyTuple_GET_SIZE(t->tp_bases) != 1) return "it has more than one base";
  }
  return nullptr;
}

bool TorchFunctions::overrides(const Args& args) {
  int64_t off = own_modes_ || subclasses_ ? torch_function_state() : 0;
  if (own_modes_ && off < 2 && holds_own_mode()) return true;
  if (off) return false;
  for (Variable* v : args.pos)
    if (holds_own(tr_, v, 0)) return true;
  for (auto& [name, v] : args.kw)
    if (holds_own(tr_, v, 0)) return true;
  return false;
}

PyObject* TorchFunctions::shadow_of(PyTypeObject* cls) {
  if (auto it = shadows_.find(cls); it != shadows_.end()) return it->second.get();
  // They derive from each other as the classes do: PyTorch asks those that derive first.
  PyObject* above = nullptr;
  for (Py_ssize_t i = 1; i < PyTuple_GET_SIZE(cls->tp_mro) && !above; ++i) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(cls->tp_mro, i));
    if (base == library().tensor || base == library().parameter || !PyType_IsSubtype(base, library().tensor)) continue;
    if (of(base) == TorchFunction::Own) above = shadow_of(base);
  }
  Variable* function =
      tr_.getattr(tr_.global_object(reinterpret_cast<PyObject*>(cls), Ground::fixed()), "__torch_function__");
  Ref name = Ref::steal(PyUnicode_FromString(cls->tp_name)), call = tr_.host.callback(function);
  Ref made = new_class(name.get(), reinterpret_cast<PyObject*>(cls), call.get(), above);
  if (!made && above) {  // an order of bases that cannot be
    PyErr_Clear();
    made = new_class(name.get(), reinterpret_cast<PyObject*>(cls), call.get());
  }
  if (!made) tr_.raise_current();
  tr_.stand_in_for(made.get(), tr_.global_object(reinterpret_cast<PyObject*>(cls), Ground::fixed()));
  return shadows_.emplace(cls, std::move(made)).first->second.get();
}

void TorchFunctions::shade(PyObject* fake, PyTypeObject* cls) {
  if (PyObject_SetAttrString(fake, "__class__", shadow_of(cls)) < 0) {
    PyErr_Clear();
    tr_.unsupported(Reason::UnsupportedTensor, std::string("a tensor of class ") + cls->tp_name);
  }
}

PyTypeObject* TorchFunctions::class_behind(PyTypeObject* cls) const {
  Variable* behind = tr_.behind(reinterpret_cast<PyObject*>(cls));
  return behind ? reinterpret_cast<PyTypeObject*>(behind->as_constant()) : cls;
}

void TorchFunctions::set_tensor_class(TensorVariable* t, PyObject* fake, PyTypeObject* cls) {
  t->cls = cls;
  if (cls == library().tensor || cls == library().parameter) {
    if (Py_TYPE(fake) != cls && PyObject_SetAttrString(fake, "__class__", reinterpret_cast<PyObject*>(cls)) < 0)
      tr_.raise_current();
    return;
  }
  if (const char* why = refuse_tensor_class(cls))
    tr_.unsupported(Reason::UnsupportedTensor, std::string("a tensor of class ") + cls->tp_name + ": " + why);
  subclasses_ = true;
  if (of(cls) == TorchFunction::Own) return shade(fake, cls);
  if (Py_TYPE(fake) != cls && PyObject_SetAttrString(fake, "__class__", reinterpret_cast<PyObject*>(cls)) < 0) {
    PyErr_Clear();
    tr_.unsupported(Reason::UnsupportedTensor, std::string("a tensor of class ") + cls->tp_name);
  }
}

Variable* TorchFunctions::of_tensor_class(Variable* v, PyTypeObject* cls) {
  v = tr_.force(v);
  if (v->is(Kind::Tensor)) {
    auto* t = v->as<TensorVariable>();
    if (PyType_IsSubtype(t->type(), cls) && (cls != library().tensor || t->type() == cls)) return v;
    if (t->real) {
      Args args{{t, tr_.global_object(reinterpret_cast<PyObject*>(cls), Ground::pure(v))}, {}};
      return as_subclass(tr_, args);
    }
    tr_.mutate();
    set_tensor_class(t, t->fake.get(), cls);
    return t;
  }
  if (!v->is(Kind::Tuple) && !v->is(Kind::List)) return v;
  std::vector<Variable*> items;
  for (Variable* e : static_cast<SequenceVariable*>(v)->elements) items.push_back(of_tensor_class(e, cls));
  return v->is(Kind::List) ? static_cast<Variable*>(tr_.list(std::move(items)))
                           : tr_.make<TupleVariable>(std::move(items), v->type());
}

Ref TorchFunctions::stand_in(Variable* v) {
  if (auto it = ducks_.find(v); it != ducks_.end()) return Ref::borrow(it->second);
  Variable* function =
      tr_.getattr(tr_.global_object(reinterpret_cast<PyObject*>(v->type()), Ground::pure(v)), "__torch_function__");
  Ref name = Ref::steal(PyUnicode_FromString(v->type()->tp_name));
  Ref cls = new_class(name.get(), nullptr, tr_.host.callback(function).get());
  Ref made = cls ? Ref::steal(PyObject_CallNoArgs(cls.get())) : Ref();
  if (!made) tr_.raise_current();
  tr_.keep(cls);
  tr_.keep(made);
  tr_.stand_in_for(cls.get(), tr_.global_object(reinterpret_cast<PyObject*>(v->type()), Ground::pure(v)));
  tr_.stand_in_for(made.get(), v);
  ducks_[v] = made.get();
  return made;
}

// ---- modes ----

Ref TorchFunctions::mode_stand_in(Variable* mode) {
  static PyObject* cls = imported("braze.polyfills", "CapturedMode", true);
  Variable* function = tr_.getattr(mode, "__torch_function__");
  Ref made = Ref::steal(PyObject_CallOneArg(cls, tr_.host.callback(function).get()));
  if (!made) tr_.raise_current();
  tr_.keep(made);
  tr_.stand_in_for(made.get(), mode);
  return made;
}

void TorchFunctions::push_mode(Variable* mode) {
  tr_.mutate();
  mode = tr_.force(mode);
  Ref real = mode_stand_in(mode);
  own_modes_ = true;
  push(real.get());
}

Variable* TorchFunctions::pop_mode() {
  tr_.mutate();
  if (stack_length() == 0) tr_.unsupported("a mode of torch functions is removed where there is none");
  return tr_.host.from_host(pop());
}

// The modes that are on when the capture starts. That they are the same objects is part of the guarded global state.
void TorchFunctions::adopt_modes() {
  int64_t n = stack_length();
  for (int64_t i = 0; i < n; ++i) {
    Ref index = Ref::steal(PyLong_FromLongLong(i));
    first_modes_.push_back(Ref::steal(PyObject_CallOneArg(stack().at, index.get())));
    if (!is_device_context(first_modes_.back().get())) own_modes_ = true;
  }
  if (!own_modes_) return;
  std::vector<Ref> stand_ins;
  for (const Ref& mode : first_modes_)
    stand_ins.push_back(is_device_context(mode.get()) ? mode
                                                      : mode_stand_in(tr_.global_object(
                                                            mode.get(), Ground::process(ProcessState::FunctionModes))));
  for (int64_t i = 0; i < n; ++i) pop();
  for (const Ref& mode : stand_ins) push(mode.get());
}

void TorchFunctions::enter_device(PyObject* device) {
  tr_.mutate();
  if (!Ref::steal(PyObject_CallMethod(device, "__enter__", nullptr))) tr_.raise_current();
  devices_.push_back(Ref::borrow(device));
}

bool TorchFunctions::exit_device() {
  if (devices_.empty()) return false;
  tr_.mutate();
  Ref device = devices_.back();
  devices_.pop_back();
  if (!Ref::steal(PyObject_CallMethod(device.get(), "__exit__", "OOO", Py_None, Py_None, Py_None))) tr_.raise_current();
  return true;
}

void TorchFunctions::leave() {
  for (; !devices_.empty(); devices_.pop_back())
    if (!Ref::steal(PyObject_CallMethod(devices_.back().get(), "__exit__", "OOO", Py_None, Py_None, Py_None)))
      PyErr_Clear();
  if (!std::exchange(own_modes_, false)) return;
  while (stack_length() > 0) pop();
  for (const Ref& mode : first_modes_) push(mode.get());
}

std::vector<Ref> TorchFunctions::modes() const {
  std::vector<Ref> out;
  for (int64_t i = 0, n = stack_length(); i < n; ++i) {
    Ref index = Ref::steal(PyLong_FromLongLong(i));
    out.push_back(Ref::steal(PyObject_CallOneArg(stack().at, index.get())));
  }
  return out;
}

// What the code pushed and popped is done when the entry runs.
void TorchFunctions::emit_modes(Codegen& cg) {
  if (!own_modes_) {
    for (const Ref& device : devices_) {
      Ref enter = Ref::steal(native::attr(Ground::made(), device.get(), "__enter__"));
      cg.recipe.make(StepKind::Call, {cg.constant(enter.get())});
    }
    return;
  }
  std::vector<Ref> now = modes();
  auto variable_of = [&](const Ref& mode) { return tr_.behind(mode.get()); };
  auto same = [&](size_t i) {
    if (i >= now.size() || i >= first_modes_.size()) return false;
    Variable* v = variable_of(now[i]);
    return v ? v->as_constant() == first_modes_[i].get() || v == tr_.standing_for(first_modes_[i].get())
             : now[i].get() == first_modes_[i].get();
  };
  size_t common = 0;
  while (same(common)) ++common;
  for (size_t i = common; i < first_modes_.size(); ++i) cg.recipe.make(StepKind::Call, {cg.constant(stack().pop)});
  for (size_t i = common; i < now.size(); ++i) {
    Variable* v = variable_of(now[i]);
    cg.recipe.make(StepKind::Call, {cg.constant(stack().push), v ? cg.reg(v) : cg.constant(now[i].get())});
  }
}

namespace {

Variable* device_enter(Translator& tr, Args& a) {
  PyObject* device = a.size() == 1 ? constant_of(a[0]) : nullptr;
  if (!device) return nullptr;
  tr.torch_functions.enter_device(device);
  return a[0];
}

Variable* device_exit(Translator& tr, Args&) {
  if (!tr.torch_functions.exit_device()) tr.unsupported("the end of a device's context that was entered before");
  return tr.none();
}

}  // namespace

void register_torch_function_builtins() {
  register_builtin("torch", "device.__enter__", device_enter);
  register_builtin("torch", "device.__exit__", device_exit);
  register_builtin(pytorch::Name::push_on_torch_function_stack, push_mode);
  register_builtin(pytorch::Name::pop_torch_function_stack, pop_mode);
  register_builtin(pytorch::Name::get_function_stack_at, mode_at);
  register_builtin(pytorch::Name::is_torch_function_mode_enabled, modes_enabled);
  register_builtin(pytorch::Name::len_torch_function_stack, modes_length);
  register_builtin(pytorch::Name::is_torch_function_enabled, functions_enabled);
  register_builtin("torch", "Tensor.__torch_function__.__func__", plain_function);
  register_builtin("torch", "Tensor.as_subclass", as_subclass);
  register_builtin("braze.polyfills", "torch_function_at_least", torch_function_at_least);
  register_builtin("braze.polyfills", "torch_function_back", torch_function_back);
  register_polyfill(pytorch::Name::DisableTorchFunctionSubclass, "DisableTorchFunctionSubclass");
  register_polyfill(pytorch::Name::DisableTorchFunction, "DisableTorchFunction");
}

}  // namespace braze::capture
