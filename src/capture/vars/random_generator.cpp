#include "capture/vars/random_generator.h"

#include "capture/builtins/builtins.h"
#include "capture/cpython/imported.h"
#include "capture/eval/translator.h"
#include "capture/guards/content.h"
#include "capture/vars/all.h"
#include "trace/pytorch/names.h"

namespace braze::capture {
namespace {

PyObject* generator_method(const char* name) {
  return native::attr(Ground::fixed(), reinterpret_cast<PyObject*>(random_generator_type()), name);
}

RandomGeneratorVariable* as_generator(Variable* v) {
  return v->is(Kind::Object) ? dynamic_cast<RandomGeneratorVariable*>(v) : nullptr;
}
RandomGeneratorVariable* self_of(const Args& a, size_t n) {
  return a.size() == n && a.kw.empty() ? as_generator(a[0]) : nullptr;
}

// Results are tensors of their own: what is written to one is not to change the generator.
Variable* copy_of(Translator& tr, Variable* state) { return tr.call_method(state, "clone", {}); }

void becomes(Translator& tr, RandomGeneratorVariable* g, Variable* state) {
  tr.mutate();
  tr.effects.modified(g);
  g->state = tr.force(state);
}

// torch.Generator(device="cpu")
Variable* make(Translator& tr, Args& a) {
  Variable* device = a.size() ? a[0] : a.take_kw("device");
  if (a.size() > 1 || !a.kw.empty()) return nullptr;
  if (device && tr.real.is_python_constant(device)) {
    static PyObject* as_device = imported("torch", "device");
    Ref given = Ref::steal(PyObject_CallOneArg(as_device, tr.real.to_python(device).get()));
    Ref type = given ? Ref::steal(native::attr(Ground::pure(device), given.get(), "type")) : Ref();
    if (!type) tr.raise_current();
    if (PyUnicode_CompareWithASCIIString(type.get(), "cpu") != 0) return nullptr;
  } else if (device) {
    return nullptr;
  }
  auto* g = tr.make<RandomGeneratorVariable>(random_generator_type());
  Ref fresh = Ref::steal(PyObject_CallNoArgs(reinterpret_cast<PyObject*>(random_generator_type())));
  Ref seed = fresh ? Ref::steal(PyObject_CallMethod(fresh.get(), "initial_seed", nullptr)) : Ref();
  if (!seed) tr.raise_current();
  g->state = tr.call(tr.real.polyfill("seeded_state"),
                     {tr.constant(seed, Ground::fixed())});  // each new one has the same seed
  return g;
}

Variable* manual_seed(Translator& tr, Args& a) {
  RandomGeneratorVariable* g = self_of(a, 2);
  if (!g) return nullptr;
  becomes(tr, g, tr.call(tr.real.polyfill("seeded_state"), {a[1]}));
  return g;
}

Variable* get_state(Translator& tr, Args& a) {
  RandomGeneratorVariable* g = self_of(a, 1);
  return g ? copy_of(tr, g->state) : nullptr;
}

Variable* set_state(Translator& tr, Args& a) {
  RandomGeneratorVariable* g = self_of(a, 2);
  if (!g || !a[1]->is(Kind::Tensor)) return nullptr;
  becomes(tr, g, copy_of(tr, a[1]));
  return g;
}

// Once PyTorch's own capture was loaded, torch.manual_seed is a function around the one of torch.random that keeps it
// out of that capture: what it is in place of counts. (function, *args)
Variable* kept_out(Translator& tr, Args& a) {
  static PyObject* original = imported("torch.random", "manual_seed");
  Variable* wrapped = a.size() ? tr.getattr_or_null(a[0], "__wrapped__") : nullptr;
  wrapped = wrapped ? tr.force(wrapped) : nullptr;
  if (!wrapped || !wrapped->is(Kind::Function) || wrapped->as<FunctionVariable>()->real.get() != original)
    return nullptr;
  return tr.call(wrapped, Args{{a.pos.begin() + 1, a.pos.end()}, a.kw});
}

// The code of what torch._disable_dynamo returns.
PyObject* code_of_kept_out() {
  PyObject* outer = pytorch::get(pytorch::Name::disable_dynamo);
  PyObject* constants =
      PyFunction_Check(outer) ? reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(outer))->co_consts : nullptr;
  for (Py_ssize_t i = 0; constants && i < PyTuple_GET_SIZE(constants); ++i)
    if (PyCode_Check(PyTuple_GET_ITEM(constants, i))) return PyTuple_GET_ITEM(constants, i);
  return nullptr;
}

}  // namespace

PyTypeObject* random_generator_type() { return pytorch::get_type(pytorch::Name::Generator); }

Variable* wrap_random_generator(Translator& tr, PyObject* generator, SourceId source) {
  PyObject* content = content_of(generator);
  if (!content) return nullptr;
  tr.keep(Ref::borrow(content));
  SourceId at = tr.sources().derived(SourceKind::Content, source);
  tr.guards().type_is(source, random_generator_type(), tr.line());
  tr.guards().length(at, PyTuple_GET_SIZE(content), tr.line());
  auto* g = tr.make<RandomGeneratorVariable>(generator, source);
  g->state = tr.wrap(PyTuple_GET_ITEM(content, 0), tr.sources().tuple_item(at, 0));
  return g;
}

Variable* call_with_generator(Translator& tr, PyObject* function, const Args& args) {
  for (Variable* v : args.pos)
    if (as_generator(tr.force(v))) tr.unsupported("a torch.Generator that is given by its position");
  RandomGeneratorVariable* from = nullptr;
  bool standard_given = false;
  Args rest{args.pos, {}};
  for (auto& [name, v] : args.kw) {
    static PyObject* standard = imported("torch", "default_generator");
    RandomGeneratorVariable* g = as_generator(tr.force(v));
    if (g)
      from = g;
    else if (tr.force(v)->as_constant() == standard)
      standard_given = true;
    else
      rest.kw.emplace_back(name, v);
  }
  if (!from) return standard_given ? tr.real.call_torch(function, rest) : nullptr;
  DictVariable* kw = tr.dict();
  for (auto& [name, v] : rest.kw) kw->set(tr, name, v);
  Variable* both =
      tr.force(tr.call(tr.real.polyfill("drawn_with"),
                       {from->state, tr.global_object(function, Ground::pure(args)), tr.tuple(rest.pos), kw}));
  std::vector<Variable*> parts = both->items(tr);
  becomes(tr, from, parts[1]);
  return parts[0];
}

Variable* RandomGeneratorVariable::getattr(Translator& tr, PyObject* name) {
  if (PyUnicode_CompareWithASCIIString(name, "device") == 0) {
    static PyObject* as_device = imported("torch", "device");
    return tr.from_python(Ref::steal(PyObject_CallFunction(as_device, "s", "cpu")), Ground::fixed());
  }
  return ObjectVariable::getattr(tr, name);
}

Reg RandomGeneratorVariable::build(Codegen& cg) {
  Reg made = cg.recipe.make(StepKind::Call, {cg.constant(reinterpret_cast<PyObject*>(cls))});
  emit_changes(cg, made);
  return made;
}

void RandomGeneratorVariable::emit_changes(Codegen& cg, Reg self) {
  static PyObject* set = generator_method("set_state");
  cg.recipe.make(StepKind::Call, {cg.constant(set), self, cg.reg(state)});
}

void register_random_generator_builtins() {
  register_builtin(pytorch::Name::Generator, make);
  register_builtin(pytorch::Name::Generator_manual_seed, manual_seed);
  register_builtin(pytorch::Name::Generator_get_state, get_state);
  register_builtin(pytorch::Name::Generator_set_state, set_state);
  if (PyObject* code = code_of_kept_out()) register_builtin(code, kept_out);
  for (const char* name : {"manual_seed", "get_rng_state", "set_rng_state"})
    register_polyfill("torch.random", name, name);
}

}  // namespace braze::capture
