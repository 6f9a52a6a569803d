#include "capture/vars/key.h"

#include <exception>

#include "capture/cpython/set_table.h"
#include "capture/cpython/texts.h"
#include "capture/eval/translator.h"
#include "capture/vars/constant.h"

namespace braze::capture {
namespace {

struct KeyObject {
  PyObject_HEAD Translator* tr;
  Variable* variable;
  Py_hash_t hash;
};

thread_local std::exception_ptr t_thrown;

Py_hash_t key_hash(PyObject* o) { return reinterpret_cast<KeyObject*>(o)->hash; }
PyObject* key_compare(PyObject* a, PyObject* b, int op);
void key_free(PyObject* o) { PyObject_Free(o); }

PyTypeObject* key_type() {
  static PyTypeObject type = [] {
    PyTypeObject t{};
    t.ob_base.ob_base.ob_refcnt = 1;
    t.tp_name = "braze.key";
    t.tp_basicsize = sizeof(KeyObject);
    t.tp_flags = Py_TPFLAGS_DEFAULT;
    t.tp_hash = key_hash;
    t.tp_richcompare = key_compare;
    t.tp_dealloc = key_free;
    return t;
  }();
  static const int ready = PyType_Ready(&type);
  (void)ready;
  return &type;
}

PyObject* key_compare(PyObject* a, PyObject* b, int op) {
  if (op != Py_EQ && op != Py_NE) Py_RETURN_NOTIMPLEMENTED;
  auto* own = reinterpret_cast<KeyObject*>(Py_TYPE(a) == key_type() ? a : b);
  Translator& tr = *own->tr;
  try {
    auto of = [&](PyObject* o) {
      return Py_TYPE(o) == key_type() ? reinterpret_cast<KeyObject*>(o)->variable
                                      : tr.from_python(Ref::borrow(o), Ground::made());
    };
    Variable *x = of(a), *y = of(b);
    bool same = x == y || tr.equal(x, y);
    return Py_NewRef(same == (op == Py_EQ) ? Py_True : Py_False);
  } catch (...) {
    t_thrown = std::current_exception();
    PyErr_SetString(PyExc_RuntimeError, "a comparison of keys ended the capture");
    return nullptr;
  }
}

}  // namespace

Ref make_key(Translator& tr, Variable* v, Py_hash_t hash) {
  auto* k = PyObject_New(KeyObject, key_type());
  k->tr = &tr;
  k->variable = v;
  k->hash = hash == -1 ? -2 : hash;
  return Ref::steal(reinterpret_cast<PyObject*>(k));
}

Ref key_of(Translator& tr, Variable* v) {
  v = tr.force(v);
  if constexpr (!cpython::kTellsUseOfKey) return v->hash_key(tr);
  try {
    return v->hash_key(tr);
  } catch (const PyRaise& e) {
    if (reinterpret_cast<PyObject*>(e.exception->type()) != PyExc_TypeError) throw;
  }
  tr.unsupported(Reason::RaisedException, "a key without a hash");
}

Py_hash_t hash_said(Translator& tr, Variable* returned) {
  PyObject* number = constant_of(tr.force(tr.real.specialised(returned)));
  if (!number || !PyLong_Check(number)) tr.raise(PyExc_TypeError, "__hash__ method should return an integer");
  Py_hash_t h = PyLong_AsSsize_t(number);
  if (h == -1 && PyErr_Occurred()) {  // too long for one: as the integer hashes
    PyErr_Clear();
    h = PyLong_Type.tp_hash(number);
  }
  return h == -1 ? -2 : h;
}

bool holds_made_key(PyObject* key) {
  if (Py_TYPE(key) == key_type()) return true;
  if (PyTuple_Check(key)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); ++i)
      if (holds_made_key(PyTuple_GET_ITEM(key, i))) return true;
  } else if (PyFrozenSet_Check(key)) {
    Py_ssize_t place = 0;
    while (PyObject* element = next_element(key, place))
      if (holds_made_key(element)) return true;
  } else if (PyMethod_Check(key)) {
    return holds_made_key(PyMethod_GET_FUNCTION(key)) || holds_made_key(PyMethod_GET_SELF(key));
  }
  return false;
}

void rethrow_from_key() {
  if (!t_thrown) return;
  PyErr_Clear();
  std::rethrow_exception(std::exchange(t_thrown, nullptr));
}

}  // namespace braze::capture
