// Functions between arrays of NumPy and tensors, and functions of NumPy that tell about types.
#include "capture/builtins/builtins.h"
#include "capture/cpython/once_loaded.h"
#include "capture/eval/library_objects.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"

namespace braze::capture {
namespace {

Variable* from_numpy(Translator& tr, Args& a) {
  if (a.size() != 1 || !a.kw.empty() || !a[0]->is(Kind::Array) || a[0]->as<ArrayVariable>()->scalar) return nullptr;
  return tensor_of(tr, a[0]->as<ArrayVariable>());
}

// A tensor from an array, of the type that is asked for; nullptr: something else is asked for.
Variable* converted(Translator& tr, Args& a, bool copy) {
  if (a.size() < 1 || !a[0]->is(Kind::Array) || a.size() > (copy ? 1u : 2u)) return nullptr;
  Variable *dtype = a.size() > 1 ? a[1] : nullptr, *device = nullptr;
  for (auto& [name, v] : a.kw) {
    if (PyUnicode_CompareWithASCIIString(name, "dtype") == 0)
      dtype = tr.force(v);
    else if (PyUnicode_CompareWithASCIIString(name, "device") == 0)
      device = tr.force(v);
    else
      return nullptr;
  }
  auto method = [&](const char* name) { return native::type_attr(Ground::fixed(), library().tensor, tr.intern(name)); };
  Variable* t = a[0]->as<ArrayVariable>()->tensor;
  t = copy || a[0]->as<ArrayVariable>()->scalar ? tr.real.call_torch(method("clone"), Args{{t}, {}})
                                                : tensor_of(tr, a[0]->as<ArrayVariable>());
  Args to{{t}, {}};
  if (dtype && !is_none(dtype)) to.kw.emplace_back(tr.intern("dtype"), dtype);
  if (device && !is_none(device)) to.kw.emplace_back(tr.intern("device"), device);
  return to.kw.empty() ? t : tr.real.call_torch(method("to"), to);
}
Variable* as_tensor(Translator& tr, Args& a) { return converted(tr, a, false); }

// Numbers and tensors of no dimension, in lists: false for anything else.
bool holds_scalars(Translator& tr, Variable* v, bool& tensor) {
  v = tr.force(v);
  if (v->is(Kind::Tensor)) {
    Ref n = Ref::steal(PyObject_CallMethod(v->as<TensorVariable>()->value(tr), "dim", nullptr));
    tensor = true;
    return n && PyLong_AsLong(n.get()) == 0 && v->type() == library().tensor;
  }
  if (v->is(Kind::Sym)) return true;
  if (PyObject* c = constant_of(v))
    return PyLong_CheckExact(c) || PyFloat_CheckExact(c) || PyBool_Check(c) || PyComplex_CheckExact(c);
  if (v->type() != &PyList_Type && v->type() != &PyTuple_Type) return false;
  for (Variable* e : static_cast<SequenceVariable*>(v)->elements)
    if (!holds_scalars(tr, e, tensor)) return false;
  return true;
}

Variable* make_tensor(Translator& tr, Args& a) {
  bool tensor = false;
  if (a.size() == 1 && (a[0]->is(Kind::List) || a[0]->is(Kind::Tuple)) && holds_scalars(tr, a[0], tensor) && tensor)
    return tr.call(tr.real.polyfill("tensor_of_parts"), a);
  return converted(tr, a, true);
}

}  // namespace

void register_numpy_builtins() {
  register_polyfill(pytorch::Name::shape_as_tensor, "shape_as_tensor");
  register_builtin("torch", "from_numpy", from_numpy);
  register_builtin("torch", "as_tensor", as_tensor);
  register_builtin("torch", "tensor", make_tensor);
  once_loaded("numpy", [] {
    for (const char* n : {"dtype", "issubdtype", "promote_types", "can_cast"}) register_pure("numpy", n);
  });
}

}  // namespace braze::capture
