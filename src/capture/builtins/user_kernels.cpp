// Triton kernels of the program's: a launch is recorded as one operator, braze::launch_kernel. See
// python/braze/polyfills/_kernels.py, which takes autotuners, heuristics and grids apart, and
// python/braze/_user_kernels.py, which launches.
#include <algorithm>
#include <string_view>
#include <utility>

#include "capture/builtins/builtins.h"
#include "capture/cpython/imported.h"
#include "capture/eval/library_objects.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"
#include "launch/user_kernels.h"

namespace braze::capture {
namespace {

// An object that is known by identity from here on, or a constant. nullptr: neither.
PyObject* held_object(Translator& tr, Variable* v) {
  v = tr.force(v);
  if (PyObject* o = v->as_constant()) return o;
  PyObject* real = v->is(Kind::Object)     ? v->as<ObjectVariable>()->real.get()
                   : v->is(Kind::Function) ? v->as<FunctionVariable>()->real.get()
                                           : nullptr;
  if (!real || !v->source.valid()) return nullptr;
  tr.guard_identity(v->source, real);
  return real;
}

// Objects of Triton's that a kernel takes for constants, which never change: dtypes, functions.
bool is_of_triton(Translator& tr, Variable* v) {
  return v->is(Kind::Object) && full_name(reinterpret_cast<PyObject*>(v->type())).starts_with("triton.");
}

// The arguments of a launch, taken apart (_user_kernels.Launch).
class LaunchArguments {
 public:
  explicit LaunchArguments(Translator& tr) : tr_(tr) {}

  // How the argument is made, for the parameter of this name (borrowed).
  Ref how(Variable* v, PyObject* parameter) {
    v = tr_.force(v);
    if (v->is(Kind::Tensor)) return pair("tensor", number(tensor(v, parameter)));
    if (v->is(Kind::Float)) return pair("float", number(tensor(v->as<FloatVariable>()->tensor, parameter)));
    if (v->is(Kind::Sym) && v->type() != &PyLong_Type) v = v->as<SymVariable>()->specialise(tr_);
    if (v->is(Kind::Sym)) {
      integers.push_back(v);
      return pair("integer", number(integers.size() - 1));
    }
    if (v->is(Kind::Tuple) && v->type() == &PyTuple_Type) {
      std::vector<Variable*> items = tr_.unpack(v);
      Ref all = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(items.size())));
      for (size_t i = 0; i < items.size(); ++i)
        PyTuple_SET_ITEM(all.get(), static_cast<Py_ssize_t>(i), how(items[i], parameter).release());
      return pair("tuple", std::move(all));
    }
    PyObject* o = v->is(Kind::Constant) || v->is(Kind::Real) || v->is(Kind::Function) || is_of_triton(tr_, v)
                      ? held_object(tr_, v)
                      : nullptr;
    if (!o) tr_.unsupported(v->describe() + " given to a Triton kernel");
    tr_.real.guard_member(v);
    return pair("constant", Ref::borrow(o));
  }

  std::vector<Variable*> tensors, integers;
  std::vector<std::vector<PyObject*>> owners;  // of each tensor: parameters, borrowed

 private:
  static Ref number(size_t n) { return Ref::steal(PyLong_FromSize_t(n)); }
  Ref pair(const char* kind, Ref what) const { return Ref::steal(PyTuple_Pack(2, tr_.intern(kind), what.get())); }

  // A tensor that is passed twice is passed as one.
  size_t tensor(Variable* v, PyObject* parameter) {
    auto at = static_cast<size_t>(std::find(tensors.begin(), tensors.end(), v) - tensors.begin());
    if (at == tensors.size()) {
      tensors.push_back(v);
      owners.emplace_back();
    }
    owners[at].push_back(parameter);
    return at;
  }

  Translator& tr_;
};

std::vector<std::pair<Variable*, Variable*>> entries_of_dict(Translator& tr, Variable* dict) {
  std::vector<std::pair<Variable*, Variable*>> out;
  dict = tr.force(dict);
  if (!dict->is(Kind::Dict)) tr.unsupported("keyword arguments of a Triton kernel that are no dict");
  for (const auto& e : dict->as<DictVariable>()->entries(tr)) out.emplace_back(e.key, e.value);
  return out;
}

void put(Translator& tr, PyObject* dict, PyObject* key, PyObject* value) {
  if (PyDict_SetItem(dict, key, value) < 0) tr.raise_current();
}

// The entries of a dict whose values are constants.
Ref known_constants(Translator& tr, Variable* dict) {
  Ref out = Ref::steal(PyDict_New());
  for (auto& [key, value] : entries_of_dict(tr, dict))
    if (Variable* v = tr.force(value); PyObject* o = v->is(Kind::Constant) ? v->as_constant() : nullptr)
      put(tr, out.get(), tr.real.to_python(key).get(), o);
  return out;
}

// launch(kernel, args, kwargs, names, configs, extra, grids); see the polyfill.
Variable* record_launch(Translator& tr, Args& a) {
  if (a.size() != 7 || !a.kw.empty()) return nullptr;
  PyObject* kernel = held_object(tr, a[0]);
  if (!kernel) tr.unsupported("a Triton kernel that is made in the captured code");
  static PyObject* make = imported("braze._user_kernels", "launch_of");
  LaunchArguments all(tr);
  std::vector<Variable*> given = tr.unpack(a[1]), names = tr.unpack(a[3]);
  Ref nameless = Ref::steal(PyUnicode_FromString(""));
  std::vector<Ref> owned;
  auto name = [&](Variable* v) { return owned.emplace_back(tr.real.to_python(v)).get(); };
  Ref arguments = Ref::steal(PyList_New(0)), keywords = Ref::steal(PyList_New(0));
  for (size_t i = 0; i < given.size(); ++i)
    PyList_Append(arguments.get(), all.how(given[i], i < names.size() ? name(names[i]) : nameless.get()).get());
  for (auto& [key, value] : entries_of_dict(tr, a[2])) {
    PyObject* of = name(key);
    Ref item = Ref::steal(PyTuple_Pack(2, of, all.how(value, of).get()));
    PyList_Append(keywords.get(), item.get());
  }
  Ref known = Ref::steal(PyList_New(0)), choices = Ref::steal(PyList_New(0));
  for (Variable* config : tr.unpack(a[4])) PyList_Append(known.get(), known_constants(tr, config).get());
  Ref owners = Ref::steal(PyList_New(0));
  for (const auto& of : all.owners) {
    Ref list = Ref::steal(PyList_New(0));
    for (PyObject* o : of) PyList_Append(list.get(), o);
    PyList_Append(owners.get(), list.get());
  }
  size_t grid_at = all.integers.size();
  for (Variable* grid : tr.unpack(a[6]))
    for (Variable* size : tr.unpack(grid)) {
      size = tr.force(size);
      if (size->type() != &PyLong_Type) tr.unsupported("a grid of a Triton kernel that is not of integers");
      all.integers.push_back(size);
    }
  Ref extra = tr.real.to_python(a[5]), at = Ref::steal(PyLong_FromSize_t(grid_at));
  Ref made = Ref::steal(PyObject_CallFunctionObjArgs(make, kernel, arguments.get(), keywords.get(), owners.get(),
                                                     known.get(), extra.get(), at.get(), nullptr));
  if (!made) tr.raise_current();
  return tr.real.call_torch(tr.keep(made), Args{{tr.list(all.tensors), tr.list(all.integers)}, {}});
}

// wrap_triton(kernel): in captured code a launch is seen as it is.
Variable* wrap_triton(Translator&, Args& a) { return a.size() == 1 && a.kw.empty() ? a[0] : nullptr; }

// kernel_kind(kernel)
Variable* kernel_kind(Translator& tr, Args& a) {
  if (a.size() != 1) return nullptr;
  static constexpr std::pair<std::string_view, const char*> kKinds[] = {
      {"triton.runtime.jit.JITFunction", "kernel"},
      {"triton.runtime.interpreter.InterpretedFunction", "kernel"},
      {"triton.runtime.autotuner.Autotuner", "autotuner"},
      {"triton.runtime.autotuner.Heuristics", "heuristics"}};
  std::string name = full_name(reinterpret_cast<PyObject*>(a[0]->type()));
  for (auto& [of, kind] : kKinds)
    if (name == of) return tr.constant(tr.intern(kind), Ground::pure(a));
  tr.unsupported("a Triton kernel of class " + name);
}

// What cannot be captured of a launch breaks the graph here, at the launch as a whole.
Variable* run_kernel(Translator& tr, Args& a) { return tr.call(tr.real.polyfill("run_kernel"), a); }

}  // namespace

Variable* call_triton_operator(Translator& tr, PyObject* op, const Args& args) {
  auto* type = reinterpret_cast<PyObject*>(Py_TYPE(op));
  if (type != library().op_overload && type != library().op_packet) return nullptr;
  static PyObject* find = imported("braze._user_kernels", "operator_of");
  Ref definitions = Ref::steal(pytorch::loaded(pytorch::Name::custom_op_definitions));
  if (!definitions) return nullptr;
  Ref found = Ref::steal(PyObject_CallFunctionObjArgs(find, op, definitions.get(), nullptr));
  if (!found) tr.raise_current();
  if (found.get() == Py_None) return nullptr;
  auto part = [&](Py_ssize_t i) { return PyTuple_GET_ITEM(found.get(), i); };
  Args all = args;
  all.pos.insert(all.pos.begin(), {tr.global_object(part(0), Ground::pure(args)),
                                   tr.from_python(Ref::borrow(part(1)), Ground::pure(args)),
                                   tr.global_object(part(2), Ground::pure(args))});
  Variable* result = tr.force(tr.call(tr.real.polyfill("triton_operator"), all));
  return result->as_constant() == Py_NotImplemented ? nullptr : result;
}

void register_user_kernel_builtins() {
  launch::register_launch_kernel();
  register_builtin("braze.polyfills", "kernel_kind", kernel_kind);
  register_builtin("braze.polyfills", "launch", record_launch);
  register_builtin("torch.library", "wrap_triton", wrap_triton);
  register_builtin("triton.runtime.jit", "JITFunction.run", run_kernel);
  register_builtin("triton.runtime.interpreter", "InterpretedFunction.run", run_kernel);
  register_builtin("triton.runtime.autotuner", "Autotuner.run", run_kernel);
  register_builtin("triton.runtime.autotuner", "Heuristics.run", run_kernel);
}

}  // namespace braze::capture
