// Python's generators of random numbers: each run of the compiled code draws its own, by the generator itself, so that
// its state is eager's.
#include "capture/builtins/builtins.h"
#include "capture/cpython/imported.h"
#include "capture/eval/library_objects.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"
#include "capture/vars/tensor_number.h"
#include "trace/number.h"

namespace braze::capture {
namespace {

PyTypeObject* random_class() {
  static auto* const cls = reinterpret_cast<PyTypeObject*>(imported("random", "Random"));
  return cls;
}

// The generator behind `self`, which is to be there before the capture and of the class itself; nullptr: another.
PyObject* generator(Translator& tr, Variable* self) {
  PyObject* real = self->is(Kind::Object) ? self->as<ObjectVariable>()->real.get()
                   : self->is(Kind::Real) ? self->as_constant()
                                          : nullptr;
  if (!real || Py_TYPE(real) != random_class()) return nullptr;
  if (self->source.valid()) tr.guard_identity(self->source, real);
  return real;
}

Variable* draw(Translator& tr, PyObject* self, const char* method, PyObject* args, bool integer) {
  Ref bound = Ref::steal(native::attr(Ground::fixed(), self, method));
  if (!bound) tr.raise_current();
  return tr.floats.draw(Ref::steal(PyTuple_Pack(3, bound.get(), args, Py_None)),
                        Ref::steal(integer ? trace::tensor_of_integer(0) : trace::tensor_of_number(0.5)));
}

Variable* of_generator(Translator& tr, PyObject* self) {
  Ref none = Ref::steal(PyTuple_New(0));
  return tr.make<FloatVariable>(draw(tr, self, "random", none.get(), false)->as<TensorVariable>());
}

Variable* random_method(Translator& tr, Args& a) {
  PyObject* self = a.size() == 1 ? generator(tr, a[0]) : nullptr;
  return self ? of_generator(tr, self) : nullptr;
}

// random.random, which is bound to the module's own generator.
Variable* random_function(Translator& tr, Args& a) {
  static PyObject* const self = imported("random", "_inst");
  return a.size() == 0 && Py_TYPE(self) == random_class() ? of_generator(tr, self) : nullptr;
}

// An int below n, which all that gives ints is made of.
Variable* random_below(Translator& tr, Args& a) {
  if (!tr.may_be_unbacked() || a.size() != 2) return nullptr;
  PyObject* n = constant_of(a[1]);
  if (!n || !PyLong_CheckExact(n)) return nullptr;
  int overflow = 0;
  long long bound = PyLong_AsLongLongAndOverflow(n, &overflow);
  PyObject* self = overflow || bound <= 0 ? nullptr : generator(tr, a[0]);
  if (!self) return nullptr;
  Ref args = Ref::steal(PyTuple_Pack(1, n));
  Variable* drawn = draw(tr, self, "_randbelow", args.get(), true);
  Variable* number = tr.force(number_of(tr, drawn->as<TensorVariable>(), &PyLong_Type));
  Variable* conditions[] = {tr.compare(Py_GE, number, tr.integer(0, Ground::fixed())), tr.compare(Py_LT, number, a[1])};
  for (Variable* c : conditions) assume(tr, c, "RuntimeError", nullptr);
  return number;
}

}  // namespace

void register_random_builtins() {
  register_builtin("_random", "Random.random", random_method);
  register_builtin("random", "random", random_function);
  register_builtin("random", "Random._randbelow_with_getrandbits", random_below);
}

}  // namespace braze::capture
