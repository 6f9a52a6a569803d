// NumPy's generators of random numbers: each run of the compiled code draws its own, by the generator itself, so that
// its state is eager's. What a method gives for arguments that are constants, a number or an array of some size, NumPy
// itself tells by a call on another generator.
#include "capture/builtins/builtins.h"
#include "capture/cpython/imported.h"
#include "capture/cpython/once_loaded.h"
#include "capture/eval/library_objects.h"
#include "capture/eval/translator.h"
#include "capture/guards/array_memory.h"
#include "capture/vars/all.h"
#include "capture/vars/tensor_number.h"
#include "trace/number.h"

namespace braze::capture {
namespace {

// Type and size of what they give follow from their arguments; they change nothing but the generator's state.
const char* const kStateMethods[] = {
    "rand",     "randn",       "random",    "random_sample", "uniform", "normal", "standard_normal",
    "randint",  "permutation", "choice",    "exponential",   "beta",    "gamma",  "poisson",
    "binomial", "laplace",     "lognormal", "gumbel"};
const char* const kGeneratorMethods[] = {
    "random", "uniform", "normal",  "standard_normal", "integers", "permutation", "choice", "exponential",
    "beta",   "gamma",   "poisson", "binomial",        "laplace",  "lognormal",   "gumbel"};

// Where the constant argument holds an array, the generator would read it anew in each run.
bool is_plain(Translator& tr, Variable* v) { return tr.real.is_python_constant(v); }

// A method of a class of generators, on one of that very class that was there before.
Variable* draw_from(Translator& tr, PyObject* cls, PyObject* trial, const char* method, Args& a) {
  PyObject* self = a.size() && a[0]->is(Kind::Real) ? a[0]->as_constant() : nullptr;
  if (!self || reinterpret_cast<PyObject*>(Py_TYPE(self)) != cls) return nullptr;
  for (size_t i = 1; i < a.size(); ++i)
    if (!is_plain(tr, a[i])) return nullptr;
  for (auto& [name, v] : a.kw)
    if (!is_plain(tr, tr.force(v))) return nullptr;
  if (a[0]->source.valid()) tr.guard_identity(a[0]->source, self);
  Ref args = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(a.size()) - 1)), kwargs = Ref::borrow(Py_None);
  for (size_t i = 1; i < a.size(); ++i)
    PyTuple_SET_ITEM(args.get(), static_cast<Py_ssize_t>(i) - 1, tr.real.to_python(a[i]).release());
  if (!a.kw.empty()) kwargs = Ref::steal(PyDict_New());
  for (auto& [name, v] : a.kw) PyDict_SetItem(kwargs.get(), name, tr.real.to_python(v).get());
  Ref like = Ref::steal(native::attr(Ground::fixed(), trial, method)),
      bound = Ref::steal(native::attr(Ground::fixed(), self, method));
  Ref example = Ref::steal(
      like ? PyObject_Call(like.get(), args.get(), kwargs.get() == Py_None ? nullptr : kwargs.get()) : nullptr);
  if (!example || !bound) return PyErr_Clear(), nullptr;  // the real call raises
  Ref call = Ref::steal(PyTuple_Pack(3, bound.get(), args.get(), kwargs.get()));
  PyObject* e = example.get();
  if (PyFloat_CheckExact(e))
    return tr.make<FloatVariable>(tr.floats.draw(std::move(call), Ref::steal(trace::tensor_of_number(0.5))));
  if (PyLong_CheckExact(e)) {
    if (!tr.may_be_unbacked()) return nullptr;
    return number_of(tr, tr.floats.draw(std::move(call), Ref::steal(trace::tensor_of_integer(0))), &PyLong_Type);
  }
  if (Py_TYPE(e) != array_type()) return nullptr;
  static PyObject* const from_numpy = imported("torch", "from_numpy");
  tr.tracer().leave();  // a real tensor
  Ref tensor = Ref::steal(PyObject_CallOneArg(from_numpy, e));
  tr.tracer().enter();
  if (!tensor) return PyErr_Clear(), nullptr;
  // The graph's own: what is written to the array is not to reach the number that was drawn.
  static PyObject* const clone = native::type_attr(Ground::fixed(), library().tensor, "clone");
  Variable* own = tr.force(tr.real.call_torch(clone, Args{{tr.floats.draw(std::move(call), tensor)}, {}}));
  return tr.make<ArrayVariable>(own->as<TensorVariable>(), array_type(), false);
}

template <size_t row>
Variable* of_state(Translator& tr, Args& a) {
  static PyObject* const cls = imported("numpy.random", "RandomState");
  static PyObject* const trial = PyObject_CallFunction(cls, "i", 0);
  return draw_from(tr, cls, trial, kStateMethods[row], a);
}

template <size_t row>
Variable* of_generator(Translator& tr, Args& a) {
  static PyObject* const cls = imported("numpy.random", "Generator");
  static PyObject* const trial = PyObject_CallFunction(imported("numpy.random", "default_rng"), "i", 0);
  return draw_from(tr, cls, trial, kGeneratorMethods[row], a);
}

template <size_t... row>
void register_state(std::index_sequence<row...>) {
  (register_builtin("numpy.random", (std::string("RandomState.") + kStateMethods[row]).c_str(), of_state<row>), ...);
}
template <size_t... row>
void register_generator(std::index_sequence<row...>) {
  (register_builtin("numpy.random", (std::string("Generator.") + kGeneratorMethods[row]).c_str(), of_generator<row>),
   ...);
}

}  // namespace

void register_numpy_random_builtins() {
  once_loaded("numpy.random", [] {
    register_state(std::make_index_sequence<std::size(kStateMethods)>());
    register_generator(std::make_index_sequence<std::size(kGeneratorMethods)>());
  });
}

}  // namespace braze::capture
