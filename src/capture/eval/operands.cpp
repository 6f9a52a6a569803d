#include "capture/eval/operands.h"

#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "capture/builtins/builtins.h"
#include "capture/eval/library_objects.h"

namespace braze::capture {
namespace {

PyObject* power(PyObject* a, PyObject* b) { return PyNumber_Power(a, b, Py_None); }
PyObject* inplace_power(PyObject* a, PyObject* b) { return PyNumber_InPlacePower(a, b, Py_None); }

// In the order of CPython's NB_ numbers.
const OperatorRow kRows[] = {
    {"+", "__add__", "__radd__", "__iadd__", PyNumber_Add, PyNumber_InPlaceAdd, "add"},
    {"&", "__and__", "__rand__", "__iand__", PyNumber_And, PyNumber_InPlaceAnd, "and_"},
    {"//", "__floordiv__", "__rfloordiv__", "__ifloordiv__", PyNumber_FloorDivide, PyNumber_InPlaceFloorDivide,
     "floordiv"},
    {"<<", "__lshift__", "__rlshift__", "__ilshift__", PyNumber_Lshift, PyNumber_InPlaceLshift, "lshift"},
    {"@", "__matmul__", "__rmatmul__", "__imatmul__", PyNumber_MatrixMultiply, PyNumber_InPlaceMatrixMultiply,
     "matmul"},
    {"*", "__mul__", "__rmul__", "__imul__", PyNumber_Multiply, PyNumber_InPlaceMultiply, "mul"},
    {"%", "__mod__", "__rmod__", "__imod__", PyNumber_Remainder, PyNumber_InPlaceRemainder, "mod"},
    {"|", "__or__", "__ror__", "__ior__", PyNumber_Or, PyNumber_InPlaceOr, "or_"},
    {"**", "__pow__", "__rpow__", "__ipow__", power, inplace_power, "pow"},
    {">>", "__rshift__", "__rrshift__", "__irshift__", PyNumber_Rshift, PyNumber_InPlaceRshift, "rshift"},
    {"-", "__sub__", "__rsub__", "__isub__", PyNumber_Subtract, PyNumber_InPlaceSubtract, "sub"},
    {"/", "__truediv__", "__rtruediv__", "__itruediv__", PyNumber_TrueDivide, PyNumber_InPlaceTrueDivide, "truediv"},
    {"^", "__xor__", "__rxor__", "__ixor__", PyNumber_Xor, PyNumber_InPlaceXor, "xor"},
};

}  // namespace

const OperatorRow& operator_row(int base) { return kRows[base]; }

PyObject* operator_function(const char* name) {
  static PyObject* module = PyImport_ImportModule("_operator");
  static std::unordered_map<std::string, PyObject*> cache;
  auto [it, fresh] = cache.try_emplace(name);
  if (fresh) it->second = native::attr(Ground::fixed(), module, name);
  return it->second;
}

PyObject* plain(Variable* v) {
  return v->is(Kind::Sym) ? v->as<SymVariable>()->value.get() : v->as<ConstantVariable>()->value.get();
}

bool only_run_knows(Translator& tr, Variable* v) {
  return v->is(Kind::Sym) && tr.tracer().depends_on_data(v->as<SymVariable>()->value.get());
}

bool small_int(Variable* v) {
  if (v->is(Kind::Sym)) return v->type() == &PyLong_Type;
  PyObject* c = v->as<ConstantVariable>()->value.get();
  if (!PyLong_CheckExact(c)) return false;
  int overflow = 0;
  int64_t n = PyLong_AsLongLongAndOverflow(c, &overflow);
  return !overflow && n >= INT32_MIN && n <= INT32_MAX;
}

void close_unlike(Translator& tr, Variable*& a, Variable*& b) {
  if (!(a->is(Kind::Sym) || b->is(Kind::Sym)) || (small_int(a) && small_int(b))) return;
  a = tr.real.specialised(a);
  b = tr.real.specialised(b);
}

bool user_number(Variable* v) {
  return v->is(Kind::Constant) && (v->type()->tp_flags & Py_TPFLAGS_HEAPTYPE) &&
         !PyType_IsSubtype(v->type(), library().enum_) &&
         (PyType_IsSubtype(v->type(), &PyLong_Type) || PyType_IsSubtype(v->type(), &PyFloat_Type) ||
          PyType_IsSubtype(v->type(), &PyUnicode_Type) || PyType_IsSubtype(v->type(), &PyBytes_Type) ||
          PyType_IsSubtype(v->type(), &PyComplex_Type));
}

bool user_class(Variable* v) {
  return user_number(v) || v->is(Kind::Object) || v->is(Kind::Module) ||
         (v->is(Kind::Tuple) && v->type() != &PyTuple_Type && (v->type()->tp_flags & Py_TPFLAGS_HEAPTYPE));
}

bool is_library_method(PyObject* f) {
  if (Py_TYPE(f) == &PyMemberDescr_Type) return false;  // what the object holds there is the program's
  return is_in_c(f) || (PyFunction_Check(f) && of_library(f));
}

bool has_own(Translator& tr, PyTypeObject* type, const char* method) {
  if (is_fixed_type(type)) return false;
  PyObject* f = tr.attributes.lookup_on_type(type, tr.intern(method), nullptr);
  return f && !is_library_method(f);
}

static bool is_order(std::string_view method) {
  return method == "__lt__" || method == "__le__" || method == "__gt__" || method == "__ge__";
}

bool not_implemented(Variable* v) { return constant_of(v) == Py_NotImplemented; }

Variable* try_special(Translator& tr, Variable* v, const char* name, Variable* other) {
  SourceId at;
  PyObject* f = tr.attributes.lookup_on_type(v->type(), tr.intern(name), &at);
  if (!f) return nullptr;
  Variable* r;
  if (Py_TYPE(f) == &PyMethodDescr_Type || Py_TYPE(f) == &PyWrapperDescr_Type) {
    if (!v->is(Kind::Object) && !v->is(Kind::Module)) return nullptr;
    auto* owner = reinterpret_cast<PyDescrObject*>(f)->d_type;
    if (!PyType_IsSubtype(v->type(), owner))
      tr.unsupported(Reason::RaisedException, std::string(name) + " of another class");
    if (owner != &PyBaseObject_Type && v->as<ObjectVariable>()->base) return nullptr;  // the content is compared
    if (owner == &PyBaseObject_Type && is_order(name)) return nullptr;
    Args args{{other}, {}};
    r = tr.force(call_builtin_method(tr, v, owner, tr.intern(name), args));
  } else {
    r = tr.force(tr.call(tr.attributes.bind_descriptor(f, at, v, v->type(), tr.intern(name)), {other}));
  }
  return not_implemented(r) ? nullptr : r;
}

bool content_answers(Translator& tr, Variable* v, const char* method, Variable* other) {
  if (!user_class(v)) return false;
  PyObject* f = tr.attributes.lookup_on_type(v->type(), tr.intern(method), nullptr);
  if (!f || Py_TYPE(f) != &PyWrapperDescr_Type) return false;
  PyTypeObject *own = reinterpret_cast<PyDescrObject*>(f)->d_type, *t = other->type();
  bool orderless = own == &PyDict_Type || own == library().ordered_dict || own == &PyComplex_Type;
  if (orderless && is_order(method)) return false;
  if (own == &PyFloat_Type && PyType_IsSubtype(t, &PyLong_Type)) return true;
  if (own == &PyComplex_Type && (PyType_IsSubtype(t, &PyLong_Type) || PyType_IsSubtype(t, &PyFloat_Type))) return true;
  bool sets = (own == &PySet_Type || own == &PyFrozenSet_Type) &&
              (PyType_IsSubtype(t, &PySet_Type) || PyType_IsSubtype(t, &PyFrozenSet_Type));
  return own != &PyBaseObject_Type && (sets || PyType_IsSubtype(t, own));
}

void leave_to_torch_function(Translator& tr, Variable* a, Variable* b, const char* symbol) {
  if (for_torch(a) && !for_torch(b) && user_class(b) && tr.torch_functions.of(b->type()) == TorchFunction::Own)
    tr.unsupported(std::string("operator ") + symbol + " on a tensor and " + b->describe());
}

Variable* content(Variable* v) {
  if (v->is(Kind::Object) && v->as<ObjectVariable>()->base && !v->as<ObjectVariable>()->is_exception())
    return v->as<ObjectVariable>()->base;
  return v;
}

Variable* as_number(Translator& tr, Variable* v) {
  v = content(v);
  PyObject* o = constant_of(v);
  if (user_number(v) && tr.attributes.lookup_on_type(v->type(), tr.intern("__torch_function__"), nullptr))
    tr.unsupported("a number with a __torch_function__");
  if (!user_number(v)) return is_plain(v) && !(o && (PyUnicode_Check(o) || PyBytes_Check(o))) ? v : nullptr;
  if (PyLong_Check(o))
    return tr.constant(Ref::steal(_PyLong_Copy(reinterpret_cast<PyLongObject*>(o))), Ground::pure(v));
  if (PyFloat_Check(o)) return tr.constant(Ref::steal(PyFloat_FromDouble(PyFloat_AS_DOUBLE(o))), Ground::pure(v));
  if (PyComplex_Check(o))
    return tr.constant(Ref::steal(PyComplex_FromCComplex(PyComplex_AsCComplex(o))), Ground::pure(v));
  return nullptr;
}

}  // namespace braze::capture
