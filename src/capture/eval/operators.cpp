// Binary operators, comparisons, unary operators.
#include <opcode.h>

#include <string_view>
#include <unordered_set>

#include "capture/builtins/builtins.h"
#include "capture/eval/index_protocol.h"
#include "capture/eval/library_objects.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"
#include "capture/vars/tensor_float.h"

namespace braze::capture {
namespace {

struct BinaryRow {
  const char* symbol;
  const char* method;       // __add__
  const char* reflected;
  const char* inplace;
  binaryfunc function;
  binaryfunc inplace_function;
  const char* operator_name;
};

PyObject* power(PyObject* a, PyObject* b) { return PyNumber_Power(a, b, Py_None); }
PyObject* inplace_power(PyObject* a, PyObject* b) { return PyNumber_InPlacePower(a, b, Py_None); }

// In the order of CPython's NB_ numbers.
const BinaryRow kRows[] = {
    {"+", "__add__", "__radd__", "__iadd__", PyNumber_Add, PyNumber_InPlaceAdd, "add"},
    {"&", "__and__", "__rand__", "__iand__", PyNumber_And, PyNumber_InPlaceAnd, "and_"},
    {"//", "__floordiv__", "__rfloordiv__", "__ifloordiv__", PyNumber_FloorDivide, PyNumber_InPlaceFloorDivide, "floordiv"},
    {"<<", "__lshift__", "__rlshift__", "__ilshift__", PyNumber_Lshift, PyNumber_InPlaceLshift, "lshift"},
    {"@", "__matmul__", "__rmatmul__", "__imatmul__", PyNumber_MatrixMultiply, PyNumber_InPlaceMatrixMultiply, "matmul"},
    {"*", "__mul__", "__rmul__", "__imul__", PyNumber_Multiply, PyNumber_InPlaceMultiply, "mul"},
    {"%", "__mod__", "__rmod__", "__imod__", PyNumber_Remainder, PyNumber_InPlaceRemainder, "mod"},
    {"|", "__or__", "__ror__", "__ior__", PyNumber_Or, PyNumber_InPlaceOr, "or_"},
    {"**", "__pow__", "__rpow__", "__ipow__", power, inplace_power, "pow"},
    {">>", "__rshift__", "__rrshift__", "__irshift__", PyNumber_Rshift, PyNumber_InPlaceRshift, "rshift"},
    {"-", "__sub__", "__rsub__", "__isub__", PyNumber_Subtract, PyNumber_InPlaceSubtract, "sub"},
    {"/", "__truediv__", "__rtruediv__", "__itruediv__", PyNumber_TrueDivide, PyNumber_InPlaceTrueDivide, "truediv"},
    {"^", "__xor__", "__rxor__", "__ixor__", PyNumber_Xor, PyNumber_InPlaceXor, "xor"},
};

const char* kCompare[] = {"__lt__", "__le__", "__eq__", "__ne__", "__gt__", "__ge__"};
const char* kCompareSymbol[] = {"<", "<=", "==", "!=", ">", ">="};
const char* kCompareOperator[] = {"lt", "le", "eq", "ne", "gt", "ge"};
constexpr int kSwapped[] = {Py_GT, Py_GE, Py_EQ, Py_NE, Py_LT, Py_LE};

PyObject* operator_function(const char* name) {
  static PyObject* module = PyImport_ImportModule("operator");
  static std::unordered_map<std::string, PyObject*> cache;
  auto [it, fresh] = cache.try_emplace(name);
  if (fresh) it->second = PyObject_GetAttrString(module, name);
  return it->second;
}

// An operator that goes through PyTorch: a tensor, or something that holds one, is involved.
bool for_torch(Variable* v) { return v->is(Kind::Tensor); }

bool is_plain(Variable* v) { return v->is(Kind::Constant) || v->is(Kind::Sym); }

// An int that may meet an open one: what is computed from sizes and such stays far inside of 64 bits.
bool small_int(Variable* v) {
  if (v->is(Kind::Sym)) return v->type() == &PyLong_Type;
  PyObject* c = v->as<ConstantVariable>()->value.get();
  if (!PyLong_CheckExact(c)) return false;
  int overflow = 0;
  int64_t n = PyLong_AsLongLongAndOverflow(c, &overflow);
  return !overflow && n >= INT32_MIN && n <= INT32_MAX;
}

// Whether the result stays open. Of floats, bits, fractions and the like Python's own numbers know best.
bool stays_open(Translator& tr, int base, Variable* a, Variable* b) {
  if (!small_int(a) || !small_int(b)) return false;
  switch (base) {
    case NB_ADD:
    case NB_SUBTRACT:
    case NB_MULTIPLY: return true;
    case NB_FLOOR_DIVIDE:
    case NB_REMAINDER: return tr.truth(b);
    case NB_POWER: {
      PyObject* exponent = constant_of(b);
      return exponent && PyLong_AsLong(exponent) >= 0 && PyLong_AsLong(exponent) <= 2;
    }
    default: return false;
  }
}

PyObject* plain(Variable* v) { return v->is(Kind::Sym) ? v->as<SymVariable>()->value.get() : v->as<ConstantVariable>()->value.get(); }

bool only_run_knows(Translator& tr, Variable* v) {
  return tr.may_be_unbacked() && v->is(Kind::Sym) && tr.tracer().depends_on_data(v->as<SymVariable>()->value.get());
}

// A bool that only the run knows, as the number that it is beside a tensor of numbers.
Variable* as_factor(Translator& tr, Variable* v, Variable* tensor) {
  if (!only_run_knows(tr, v) || v->type() != &PyBool_Type || !tensor->is(Kind::Tensor)) return v;
  static PyObject* boolean = PyObject_GetAttrString(library().torch, "bool");
  Ref dtype = Ref::steal(PyObject_GetAttrString(tensor->as<TensorVariable>()->value(tr), "dtype"));
  if (!dtype || dtype.get() == boolean) return PyErr_Clear(), v;
  return tr.from_python(Ref::steal(tr.tracer().as_integer(v->as<SymVariable>()->value.get())));
}

// Open integers are compared with integers only.
void close_unlike(Translator& tr, Variable*& a, Variable*& b) {
  if (!(a->is(Kind::Sym) || b->is(Kind::Sym)) || (small_int(a) && small_int(b))) return;
  a = tr.specialised(a);
  b = tr.specialised(b);
}

// Numbers and strings of a class of the user's, which may define operators of its own.
bool user_number(Variable* v) {
  return v->is(Kind::Constant) && (v->type()->tp_flags & Py_TPFLAGS_HEAPTYPE) && !PyType_IsSubtype(v->type(), library().enum_) &&
         (PyType_IsSubtype(v->type(), &PyLong_Type) || PyType_IsSubtype(v->type(), &PyFloat_Type) || PyType_IsSubtype(v->type(), &PyUnicode_Type) ||
          PyType_IsSubtype(v->type(), &PyBytes_Type) || PyType_IsSubtype(v->type(), &PyComplex_Type));
}

bool user_class(Variable* v) { return user_number(v) || v->is(Kind::Object) || v->is(Kind::Module) || (v->is(Kind::Tuple) && v->type() != &PyTuple_Type && (v->type()->tp_flags & Py_TPFLAGS_HEAPTYPE)); }

bool not_implemented(Variable* v) { return constant_of(v) == Py_NotImplemented; }

// v.<name>(other) by the class's special method; nullptr for none or NotImplemented.
Variable* try_special(Translator& tr, Variable* v, const char* name, Variable* other, bool resumable) {
  SourceId at;
  PyObject* f = tr.lookup_on_type(v->type(), tr.intern(name), &at);
  if (!f) return nullptr;
  (void)resumable;
  Variable* r;
  if (Py_TYPE(f) == &PyMethodDescr_Type || Py_TYPE(f) == &PyWrapperDescr_Type) {
    if (!v->is(Kind::Object) && !v->is(Kind::Module)) return nullptr;
    auto* owner = reinterpret_cast<PyDescrObject*>(f)->d_type;
    if (!PyType_IsSubtype(v->type(), owner)) tr.unsupported(Reason::RaisedException, std::string(name) + " of another class");
    if (owner != &PyBaseObject_Type && v->as<ObjectVariable>()->base) return nullptr;  // the content is compared
    static const std::unordered_set<std::string_view> orders{"__lt__", "__le__", "__gt__", "__ge__"};
    if (owner == &PyBaseObject_Type && orders.count(name)) return nullptr;
    Args args{{other}, {}};
    r = tr.force(call_builtin_method(tr, v, owner, tr.intern(name), args));
  } else {
    r = tr.force(tr.call(tr.bind_descriptor(f, at, v, v->type(), tr.intern(name)), {other}));
  }
  return not_implemented(r) ? nullptr : r;
}

Variable* content(Variable* v) {
  if (v->is(Kind::Object) && v->as<ObjectVariable>()->base && !v->as<ObjectVariable>()->is_exception()) return v->as<ObjectVariable>()->base;
  return v;
}

// What PyTorch makes of a number of the user's class: its value. nullptr: no such number.
Variable* as_number(Translator& tr, Variable* v) {
  v = content(v);
  PyObject* o = constant_of(v);
  if (!user_number(v)) return is_plain(v) && !(o && (PyUnicode_Check(o) || PyBytes_Check(o))) ? v : nullptr;
  if (PyLong_Check(o)) return tr.constant(Ref::steal(_PyLong_Copy(reinterpret_cast<PyLongObject*>(o))));
  if (PyFloat_Check(o)) return tr.constant(Ref::steal(PyFloat_FromDouble(PyFloat_AS_DOUBLE(o))));
  if (PyComplex_Check(o)) return tr.constant(Ref::steal(PyComplex_FromCComplex(PyComplex_AsCComplex(o))));
  return nullptr;
}

Variable* sequence_op(Translator& tr, int op, Variable* a, Variable* b) {
  auto repeat = [&](Variable* s, Variable* n) -> Variable* {
    int64_t count = PyLong_AsLongLong(plain(n));
    if (count == -1 && PyErr_Occurred()) tr.raise_current();
    std::vector<Variable*> out;
    const auto& e = static_cast<SequenceVariable*>(s)->elements;
    if (count > 0 && e.size() * static_cast<size_t>(count) > 1000000) tr.unsupported("a sequence of more than a million items");
    for (int64_t i = 0; i < count; ++i) out.insert(out.end(), e.begin(), e.end());
    if (s->is(Kind::List)) return tr.list(std::move(out));
    bool whole = !s->source.valid() || s->as<TupleVariable>()->real;  // and not the content of an object of a subclass
    if (count == 1 && s->type() == &PyTuple_Type && whole) return s;
    return tr.make<TupleVariable>(std::move(out), s->type() == library().size ? library().size : &PyTuple_Type);
  };
  auto is_int = [](Variable* v) { return is_plain(v) && PyLong_Check(plain(v)); };
  bool sa = a->is(Kind::Tuple) || a->is(Kind::List), sb = b->is(Kind::Tuple) || b->is(Kind::List);
  if (PyTypeObject* deque = library().deque; a->type() == deque || b->type() == deque) {
    Variable* d = a->type() == deque ? a : b;
    Variable* other = d == a ? b : a;
    std::vector<Variable*> items;
    if (op == NB_ADD && a->type() == b->type()) {
      items = a->as<ListVariable>()->elements;
      items.insert(items.end(), b->as<ListVariable>()->elements.begin(), b->as<ListVariable>()->elements.end());
    } else if (op == NB_MULTIPLY && is_int(other)) {
      items = repeat(tr.list(d->as<ListVariable>()->elements), other)->as<ListVariable>()->elements;
    } else {
      tr.unsupported("an operator on a deque");
    }
    int64_t most = d->as<ListVariable>()->maxlen;
    if (most >= 0 && static_cast<int64_t>(items.size()) > most) items.erase(items.begin(), items.end() - most);
    auto* made = tr.make<ListVariable>(std::move(items), deque);
    made->maxlen = most;
    return made;
  }
  if (op == NB_ADD && sa && a->kind == b->kind) {
    auto out = static_cast<SequenceVariable*>(a)->elements;
    const auto& more = static_cast<SequenceVariable*>(b)->elements;
    out.insert(out.end(), more.begin(), more.end());
    if (a->is(Kind::List)) return tr.list(std::move(out));
    bool size = a->type() == library().size || b->type() == library().size;
    return tr.make<TupleVariable>(std::move(out), size ? library().size : &PyTuple_Type);
  }
  if (op == NB_MULTIPLY && sa && is_int(b)) return repeat(a, b);
  if (op == NB_MULTIPLY && sb && is_int(a)) return repeat(b, a);
  return nullptr;
}

// Set operations of which at least one side is a view of a dict's keys or items: as CPython's views make them, so that the
// result iterates as theirs. nullptr: there is none.
Variable* operation_of_views(Translator& tr, int code, Variable* a, Variable* b) {
  using What = DictViewVariable::What;
  auto is_view = [](Variable* v) { return v->is(Kind::DictView); };
  auto shows = [&](Variable* v, What what) { return is_view(v) && v->as<DictViewVariable>()->what == what; };
  if (shows(a, What::Values) || shows(b, What::Values)) return nullptr;
  if (code == NB_AND) {
    if (!is_view(a)) std::swap(a, b);
    if (b->type() == &PySet_Type && b->is(Kind::Set) && a->len(tr) <= b->len(tr)) {
      Args args{{a}, {}};
      return b->call_method(tr, "intersection", args);
    }
    if (is_view(b) && b->len(tr) > a->len(tr)) std::swap(a, b);
    auto* result = tr.make<SetVariable>();
    for (Variable* v : b->items(tr))
      if (a->contains(tr, v)) result->add(tr, v);
    return result;
  }
  if (code == NB_XOR && shows(a, What::Items) && shows(b, What::Items)) tr.unsupported("^ of two views of a dict's items");
  auto* result = tr.make<SetVariable>();
  result->merge(tr, shows(a, What::Keys) ? a->as<DictViewVariable>()->dict : a);
  if (code == NB_OR) return result->merge(tr, b), result;
  Args args{{b}, {}};
  result->call_method(tr, code == NB_SUBTRACT ? "difference_update" : "symmetric_difference_update", args);
  return result;
}

}  // namespace

// An int or float that nothing is known of yet, and a constant or another such: the result stays unknown.
Variable* Translator::defer_arithmetic(int op, Variable* a, Variable* b) {
  int base = op >= NB_INPLACE_ADD ? op - NB_INPLACE_ADD : op;
  if (base != NB_ADD && base != NB_SUBTRACT && base != NB_MULTIPLY && base != NB_TRUE_DIVIDE) return nullptr;
  for (Variable** v : {&a, &b})
    if ((*v)->is(Kind::Lazy) && (*v)->as<LazyVariable>()->forced) *v = (*v)->as<LazyVariable>()->forced;
  auto is = [](PyObject* o) { return PyLong_CheckExact(o) || PyFloat_CheckExact(o); };
  auto open = [&](Variable* v) { return v->is(Kind::Lazy) && !v->as<LazyVariable>()->forced && is(v->as<LazyVariable>()->object.get()); };
  auto value = [&](Variable* v) -> PyObject* {
    if (open(v)) return v->as<LazyVariable>()->object.get();
    PyObject* c = v->is(Kind::Lazy) ? nullptr : constant_of(v);
    return c && is(c) ? c : nullptr;
  };
  PyObject *x = value(a), *y = value(b);
  if (!x || !y || (!open(a) && !open(b))) return nullptr;
  // Ints and floats that are both unknown would be two kinds of operands. A divisor is looked at: it may be zero.
  bool floats = PyFloat_CheckExact(x) || PyFloat_CheckExact(y);
  if (floats && ((open(a) && PyLong_CheckExact(x)) || (open(b) && PyLong_CheckExact(y)))) return nullptr;
  if (base == NB_TRUE_DIVIDE && (!floats || open(b) || PyObject_IsTrue(y) != 1)) return nullptr;
  Ref r = Ref::steal(kRows[base].function(x, y));
  if (!r) raise_current();
  for (Variable* v : {a, b})
    if (open(v) && v->source.valid()) guards().type_is(v->source, Py_TYPE(value(v)), line());
  auto* d = make<LazyVariable>(r.get());
  d->function = operator_function(kRows[base].operator_name);
  d->left = a;
  d->right = b;
  return d;
}

// -v of such a float.
Variable* Translator::defer_negation(Variable* v) {
  if (!v->is(Kind::Lazy) || v->as<LazyVariable>()->forced || !PyFloat_CheckExact(v->as<LazyVariable>()->object.get())) return nullptr;
  return defer_arithmetic(NB_MULTIPLY, v, constant(keep(Ref::steal(PyFloat_FromDouble(-1.0)))));
}

Variable* Translator::binary_op(int op, Variable* a, Variable* b, bool resumable) {
  if (a->is(Kind::Lazy) || b->is(Kind::Lazy))
    if (Variable* d = defer_arithmetic(op, a, b)) return d;
  if (Variable* r = varying_operand(op, a, b)) return r;
  if (a->is(Kind::Float) || b->is(Kind::Float)) {
    if (Variable* r = float_arithmetic(*this, op, a, b)) return r;
    unsupported(Reason::ScalarFromTensor, "an operator on " + (a->is(Kind::Float) ? a : b)->describe());
  }
  a = force(a);
  b = force(b);
  auto behind = [](Variable*& v) {
    if (v->is(Kind::MappingProxy)) v = v->as<MappingProxyVariable>()->mapping;
  };
  if (op == NB_OR) behind(a), behind(b);
  bool inplace = op >= NB_INPLACE_ADD;
  const BinaryRow& row = kRows[inplace ? op - NB_INPLACE_ADD : op];
  int base = inplace ? op - NB_INPLACE_ADD : op;
  if (a->is(Kind::Array) || b->is(Kind::Array)) {
    std::string name = (inplace ? "i" : "") + std::string(row.operator_name);
    if (inplace && name.back() == '_') name.pop_back();
    return array_operator(*this, intern_text(name), {a, b});
  }
  if (is_plain(a) && is_plain(b) && !user_number(a) && !user_number(b)) {
    if (only_run_knows(*this, a) || only_run_knows(*this, b))
      if (base == NB_TRUE_DIVIDE || a->type() == &PyFloat_Type || b->type() == &PyFloat_Type)
        if (Variable* r = float_arithmetic(*this, op, a, b)) return r;
    bool conditions = (base == NB_AND || base == NB_OR) && a->type() == &PyBool_Type && b->type() == &PyBool_Type && (only_run_knows(*this, a) || only_run_knows(*this, b));
    if ((a->is(Kind::Sym) || b->is(Kind::Sym)) && !conditions && !stays_open(*this, base, a, b)) {
      a = specialised(a);
      b = specialised(b);
    }
    Ref r = Ref::steal((inplace ? row.inplace_function : row.function)(plain(a), plain(b)));
    if (!r) raise_current();
    return from_python(std::move(r));
  }
  if (for_torch(a) || for_torch(b)) {
    bool other_class = user_class(a) || user_class(b);
    // A tensor on the left takes the number before the number's own class is asked.
    if (Variable* n = for_torch(a) && user_class(b) ? as_number(*this, b) : nullptr) return binary_op(op, a, n, resumable);
    if (!other_class) {
      if (base == NB_MULTIPLY || base == NB_ADD || base == NB_SUBTRACT) {
        Variable *x = as_factor(*this, a, b), *y = as_factor(*this, b, a);
        a = x, b = y;
      }
      std::string name = inplace && for_torch(a) ? std::string("i") + row.operator_name : row.operator_name;
      if (inplace && for_torch(a) && name.back() == '_') name.pop_back();
      std::string_view plain_name = row.operator_name;
      if (plain_name.ends_with('_')) plain_name.remove_suffix(1);
      for (const char* side : {inplace ? "i" : "", "", "r"}) tensor_operator("__" + (side + std::string(plain_name)) + "__");
      return call_torch(operator_function(inplace && for_torch(a) ? intern_text(name) : row.operator_name), Args{{a, b}, {}});
    }
  }
  if (inplace) {
    if (user_class(a))
      if (Variable* r = try_special(*this, a, row.inplace, b, resumable)) return r;
    if (a->is(Kind::Object) && a->as<ObjectVariable>()->base) {
      // A container of a subclass changes in place.
      SourceId at;
      PyObject* f = lookup_on_type(a->type(), intern(row.inplace), &at);
      if (f && Py_TYPE(f) == &PyWrapperDescr_Type) {
        Args args{{b}, {}};
        Variable* r = force(call_builtin_method(*this, a, reinterpret_cast<PyDescrObject*>(f)->d_type, intern(row.inplace), args));
        if (!not_implemented(r)) return r;
      }
    }
    if (a->is(Kind::List) && base == NB_ADD) {
      Args args{{b}, {}};
      return a->call_method(*this, "__iadd__", args);
    }
    if (a->is(Kind::List) && base == NB_MULTIPLY) {
      Variable* r = sequence_op(*this, base, a, b);
      if (r) {
        a->as<ListVariable>()->change(*this);
        a->as<ListVariable>()->elements = r->as<ListVariable>()->elements;
        return a;
      }
    }
    if ((a->is(Kind::Set) && a->type() == &PySet_Type && (base == NB_OR || base == NB_AND || base == NB_SUBTRACT || base == NB_XOR)) ||
        (a->is(Kind::Dict) && base == NB_OR)) {
      Args args{{b}, {}};
      if (Variable* r = a->call_method(*this, row.inplace, args); r && !not_implemented(r)) return r;
    }
  }
  bool own_types = !user_class(a) && !user_class(b), of_content = false;
  if (user_class(a) || user_class(b)) {
    // The right operand goes first when its class is a subclass of the left's that overrides.
    bool right_first = a->type() != b->type() && PyType_IsSubtype(b->type(), a->type()) && user_class(b) &&
                       lookup_on_type(a->type(), intern(row.reflected), nullptr) != lookup_on_type(b->type(), intern(row.reflected), nullptr);
    Variable* r = nullptr;
    if (right_first) r = try_special(*this, b, row.reflected, a, resumable);
    if (!r && user_class(a)) r = try_special(*this, a, row.method, b, resumable);
    if (!r && user_class(b) && !right_first && a->type() != b->type()) r = try_special(*this, b, row.reflected, a, resumable);
    if (r) return r;
    if (Variable* n = for_torch(b) ? as_number(*this, a) : nullptr) return binary_op(op, n, b, resumable);
    if (base == NB_REMAINDER && constant_of(content(a)) && PyUnicode_Check(constant_of(content(a)))) unsupported("the text of " + b->describe());
    if (for_torch(a) || for_torch(b)) unsupported(std::string("operator ") + row.symbol + " on a tensor and " + (for_torch(a) ? b : a)->describe());
    auto ordered = [](Variable* v) { return content(v) != v && content(v)->is(Kind::Dict) && content(v)->as<DictVariable>()->is_ordered_dict(); };
    if (base == NB_OR && (ordered(a) || ordered(b))) unsupported("| of a subclass of OrderedDict");
    of_content = content(a) != a || content(b) != b;
    a = content(a);
    b = content(b);
  }
  if (base == NB_MULTIPLY) {
    if (a->is(Kind::Sym)) a = specialised(a);
    if (b->is(Kind::Sym)) b = specialised(b);
  }
  if (base == NB_MULTIPLY) {
    auto sequence = [](Variable* v) { return v->is(Kind::List) || v->is(Kind::Tuple) || (v->is(Kind::Constant) && (PyUnicode_Check(constant_of(v)) || PyBytes_Check(constant_of(v)))); };
    if (Variable* n = sequence(a) ? index_of(*this, b) : b; n != b) return binary_op(op, a, n, resumable);
    if (Variable* n = sequence(b) ? index_of(*this, a) : a; n != a) return binary_op(op, n, b, resumable);
  }
  if (Variable* r = sequence_op(*this, base, a, b)) return r;
  if (a->is(Kind::DictView) || a->is(Kind::Set)) {
    static const std::pair<int, const char*> ops[] = {{NB_OR, "__or__"}, {NB_AND, "__and__"}, {NB_SUBTRACT, "__sub__"}, {NB_XOR, "__xor__"}};
    for (auto& [code, name] : ops)
      if (code == base && (b->is(Kind::Set) || b->is(Kind::DictView))) {
        if (a->is(Kind::Set) && b->is(Kind::Set)) {
          Args args{{b}, {}};
          if (Variable* r = a->call_method(*this, name, args); r && !not_implemented(r)) return r;
        } else if (Variable* r = operation_of_views(*this, code, a, b)) {
          return r;
        }
      }
  }
  if (a->is(Kind::Dict) && b->is(Kind::Dict) && base == NB_OR) {
    if (a->type() != b->type() && PyType_IsSubtype(b->type(), a->type())) unsupported("| of dicts of two classes");
    Args args{{b}, {}};
    return a->call_method(*this, "__or__", args);
  }
  if (base == NB_OR && a->as_constant() && b->as_constant() && (PyType_Check(a->as_constant()) || PyType_Check(b->as_constant()))) {
    Ref r = Ref::steal(PyNumber_Or(a->as_constant(), b->as_constant()));
    if (!r) raise_current();
    return global_object(r.get());
  }
  if (base == NB_REMAINDER && a->is(Kind::Constant) && PyUnicode_Check(plain(a)) && is_python_constant(b)) {
    Ref args = to_python(b);
    Ref r = Ref::steal(PyNumber_Remainder(plain(a), args.get()));
    if (!r) raise_current();
    return from_python(std::move(r));
  }
  if (is_python_constant(a) && is_python_constant(b)) {
    Ref ra = to_python(a), rb = to_python(b);
    Ref r = Ref::steal((inplace && a->is(Kind::Constant) ? row.inplace_function : row.function)(ra.get(), rb.get()));
    if (!r && of_content) PyErr_Clear(), unsupported(std::string("operator ") + row.symbol + ", which raises, on an object of a subclass");
    if (!r) raise_current();
    return from_python(std::move(r));
  }
  // Sets combine with sets alone.
  auto a_set = [](Variable* v) { return v->is(Kind::Set); };
  auto no_set = [](Variable* v) { return v->is(Kind::List) || v->is(Kind::Tuple) || v->is(Kind::Dict) || v->is(Kind::Generator) || v->is(Kind::Iterator) || v->is(Kind::Function) || v->is(Kind::Constant); };
  if (own_types && ((a_set(a) && no_set(b)) || (no_set(a) && a_set(b))))
    raise(PyExc_TypeError, std::string("unsupported operand type(s) for ") + row.symbol + (inplace ? "=" : "") + ": '" + a->type()->tp_name + "' and '" + b->type()->tp_name + "'");
  unsupported(std::string("operator ") + row.symbol + (inplace ? "=" : "") + " on " + a->describe() + " and " + b->describe());
}

const char* Translator::intern_text(const std::string& s) { return PyUnicode_AsUTF8(intern(s.c_str())); }

bool Translator::equal(Variable* a, Variable* b) { return truth(compare(Py_EQ, a, b)); }

Variable* Translator::compare(int op, Variable* a, Variable* b, bool resumable) {
  check_stack();
  if (Variable* r = varying_comparison(op, a, b)) return r;
  if (a->is(Kind::Float) || b->is(Kind::Float)) {
    if (Variable* r = float_comparison(*this, op, a, b)) return r;
    Variable* other = force(a->is(Kind::Float) ? b : a);
    bool unlike = is_none(other) || other->is(Kind::Tuple) || other->is(Kind::List) || (constant_of(other) && PyUnicode_Check(constant_of(other)));
    if (unlike && (op == Py_EQ || op == Py_NE)) return boolean(op == Py_NE);
    unsupported(Reason::ScalarFromTensor, "a comparison of " + (a->is(Kind::Float) ? a : b)->describe());
  }
  a = force(a);
  b = force(b);
  if (a->is(Kind::Array) || b->is(Kind::Array)) return array_operator(*this, kCompareOperator[op], {a, b});
  if (is_plain(a) && is_plain(b) && !user_number(a) && !user_number(b)) {
    if ((only_run_knows(*this, a) && b->type() == &PyFloat_Type) || (only_run_knows(*this, b) && a->type() == &PyFloat_Type))
      if (Variable* r = float_comparison(*this, op, a, b)) return r;
    close_unlike(*this, a, b);
    Ref r = Ref::steal(PyObject_RichCompare(plain(a), plain(b), op));
    if (!r) raise_current();
    return from_python(std::move(r));
  }
  if (a->is(Kind::Real) && b->is(Kind::Real) && (op == Py_EQ || op == Py_NE)) {
    auto in_c = [](Variable* v) { return PyCFunction_Check(v->as_constant()) || Py_TYPE(v->as_constant()) == &PyMethodDescr_Type || Py_TYPE(v->as_constant()) == &PyWrapperDescr_Type || Py_TYPE(v->as_constant()) == &Py_GenericAliasType; };
    if (in_c(a) && in_c(b)) return boolean(PyObject_RichCompareBool(a->as_constant(), b->as_constant(), op) == 1);
  }
  if (for_torch(a) || for_torch(b)) {
    Variable* other = for_torch(a) ? b : a;
    if (is_none(other) && (op == Py_EQ || op == Py_NE)) return boolean(op == Py_NE);
    if (Variable* n = for_torch(a) && user_class(b) ? as_number(*this, b) : nullptr) return compare(op, a, n, resumable);
    if (!user_class(other)) {
      if ((op == Py_EQ || op == Py_NE) && !is_plain(other) && !for_torch(other) && !is_python_constant(other)) return boolean((op == Py_EQ) == identical(a, b));
      for (int side : {op, kSwapped[op]}) tensor_operator(kCompare[side]);
      return call_torch(operator_function(kCompareOperator[op]), Args{{a, b}, {}});
    }
  }
  bool of_content = false;
  if (user_class(a) || user_class(b)) {
    bool right_first = a->type() != b->type() && PyType_IsSubtype(b->type(), a->type()) && user_class(b);
    Variable* r = nullptr;
    if (right_first) r = try_special(*this, b, kCompare[kSwapped[op]], a, resumable);
    if (!r && user_class(a)) r = try_special(*this, a, kCompare[op], b, resumable);
    if (!r && !right_first && user_class(b)) r = try_special(*this, b, kCompare[kSwapped[op]], a, resumable);
    if (r) return r;
    if (Variable* n = for_torch(b) ? as_number(*this, a) : nullptr) return compare(op, n, b, resumable);
    if (is_plain(a) && is_plain(b)) {
      close_unlike(*this, a, b);
      Ref c = Ref::steal(PyObject_RichCompare(plain(a), plain(b), op));
      if (!c) raise_current();
      return from_python(std::move(c));
    }
    for (Variable* v : {a, b}) {
      PyTypeObject* t = v->type();
      bool own = (v->is(Kind::Real) && t != &PyType_Type && t->tp_richcompare && t->tp_richcompare != PyBaseObject_Type.tp_richcompare) || v->is(Kind::Weakref);
      if (own) unsupported("a comparison of " + a->describe() + " and " + b->describe());
    }
    if (content(a) == a && content(b) == b && !a->is(Kind::Tuple) && !b->is(Kind::Tuple)) {
      if (op == Py_EQ || op == Py_NE) return boolean((op == Py_EQ) == identical(a, b));
      raise(PyExc_TypeError, std::string("'") + kCompareSymbol[op] + "' not supported between instances of '" + a->type()->tp_name + "' and '" + b->type()->tp_name + "'");
    }
    of_content = content(a) != a || content(b) != b;
    a = force(content(a));
    b = force(content(b));
  }
  bool eq = op == Py_EQ || op == Py_NE;
  auto sequence = [](Variable* v) { return v->is(Kind::Tuple) || v->is(Kind::List); };
  auto is_deque = [](Variable* v) { return v->type() == library().deque; };
  if (sequence(a) && a->kind == b->kind && is_deque(a) == is_deque(b)) {
    // The items of lists may change while they are compared.
    const auto &x = static_cast<SequenceVariable*>(a)->elements, &y = static_cast<SequenceVariable*>(b)->elements;
    if (eq && x.size() != y.size()) return boolean(op == Py_NE);
    for (size_t i = 0; i < x.size() && i < y.size(); ++i)
      if (Variable *p = x[i], *q = y[i]; !same_item(p, q)) return eq ? boolean(op == Py_NE) : compare(op, p, q);
    if (eq) return boolean(op == Py_EQ);
    Ref n = Ref::steal(PyLong_FromSize_t(x.size())), m = Ref::steal(PyLong_FromSize_t(y.size()));
    return boolean(PyObject_RichCompareBool(n.get(), m.get(), op) == 1);
  }
  if (a->is(Kind::Dict) && b->is(Kind::Dict) && eq) {
    auto *x = a->as<DictVariable>(), *y = b->as<DictVariable>();
    if (x == y) return boolean(op == Py_EQ);
    auto ex = x->entries(*this);
    bool same = ex.size() == y->entries(*this).size();
    if (same && x->is_ordered_dict() && y->is_ordered_dict()) {
      auto ey = y->entries(*this);
      for (size_t i = 0; same && i < ex.size(); ++i) same = same_item(ex[i].key, ey[i].key);
    }
    for (size_t i = 0; same && i < ex.size(); ++i) {
      Variable* other = y->get(*this, ex[i].key);
      same = other && same_item(ex[i].value, other);
    }
    return boolean(same == (op == Py_EQ));
  }
  auto setlike = [](Variable* v) { return v->is(Kind::Set) || (v->is(Kind::DictView) && v->as<DictViewVariable>()->what != DictViewVariable::What::Values); };
  if (setlike(a) && setlike(b)) {
    auto subset = [&](Variable* p, Variable* q) {
      for (Variable* v : p->items(*this))
        if (!q->contains(*this, v)) return false;
      return true;
    };
    int64_t n = len(a), m = len(b);
    bool r = op == Py_EQ ? n == m && subset(a, b) : op == Py_NE ? !(n == m && subset(a, b)) : op == Py_LE ? subset(a, b) : op == Py_GE ? subset(b, a)
             : op == Py_LT ? n < m && subset(a, b) : m < n && subset(b, a);
    return boolean(r);
  }
  if (is_python_constant(a) && is_python_constant(b)) {
    Ref x = to_python(a), y = to_python(b);
    Ref r = Ref::steal(PyObject_RichCompare(x.get(), y.get(), op));
    if (!r && of_content) PyErr_Clear(), unsupported("a comparison, which raises, of an object of a subclass");
    if (!r) raise_current();
    return from_python(std::move(r));
  }
  if (eq && a->is(Kind::MappingProxy)) return compare(op, a->as<MappingProxyVariable>()->mapping, b);
  if (eq && b->is(Kind::MappingProxy)) return compare(op, a, b->as<MappingProxyVariable>()->mapping);
  if (a->is(Kind::Cell) && b->is(Kind::Cell)) unsupported("a comparison of cells");
  if (a->is(Kind::Slice) && b->is(Kind::Slice)) {
    auto parts = [&](Variable* s) { return tuple({s->as<SliceVariable>()->parts, s->as<SliceVariable>()->parts + 3}); };
    return compare(op, parts(a), parts(b));
  }
  if (a->is(Kind::BuiltinMethod) && b->is(Kind::BuiltinMethod) && eq) {
    auto *x = a->as<BuiltinMethodVariable>(), *y = b->as<BuiltinMethodVariable>();
    return boolean((x->descr.get() == y->descr.get() && identical(x->self, y->self)) == (op == Py_EQ));
  }
  if (a->is(Kind::BoundMethod) && b->is(Kind::BoundMethod) && eq) {
    auto *x = a->as<BoundMethodVariable>(), *y = b->as<BoundMethodVariable>();
    return boolean((identical(x->self, y->self) && equal(x->function, y->function)) == (op == Py_EQ));
  }
  if (eq && a->is(Kind::Weakref) && b->is(Kind::Weakref)) {
    // By what they refer to, while that lives; an error of call() says that it may not.
    Args none_given;
    return compare(op, force(a->call(*this, none_given)), force(b->call(*this, none_given)), resumable);
  }
  // Objects of C classes may compare in ways that are not known here.
  auto by_identity = [&](Variable* v) {
    PyTypeObject* t = v->type();
    if (v->is(Kind::Weakref)) return false;
    return v->is(Kind::BuiltinMethod) || v->is(Kind::Constant) || t == &PyType_Type || t->tp_richcompare == PyBaseObject_Type.tp_richcompare || !t->tp_richcompare || !v->is(Kind::Real);
  };
  if (eq && by_identity(a) && by_identity(b)) return boolean((op == Py_EQ) == identical(a, b));
  // Containers have an order among their own kind only, the rest here has none.
  auto orderless = [](Variable* v) {
    return v->is(Kind::List) || v->is(Kind::Tuple) || v->is(Kind::Set) || v->is(Kind::Dict) || v->is(Kind::Generator) || v->is(Kind::Iterator) || v->is(Kind::Function) || v->is(Kind::BoundMethod) ||
           (v->is(Kind::Constant) && !(v->type()->tp_flags & Py_TPFLAGS_HEAPTYPE));
  };
  if (!eq && orderless(a) && orderless(b) && !(setlike(a) && setlike(b)))
    raise(PyExc_TypeError, std::string("'") + kCompareSymbol[op] + "' not supported between instances of '" + a->type()->tp_name + "' and '" + b->type()->tp_name + "'");
  unsupported(std::string("comparison ") + kCompareSymbol[op] + " of " + a->describe() + " and " + b->describe());
}

Variable* Translator::unary_op(Opcode op, Variable* v, bool resumable) {
  if (op == Opcode::UnaryNegative)
    if (Variable* d = defer_negation(v)) return d;
  v = force(v);
  if (v->is(Kind::Float) && op != Opcode::UnaryNot) {
    if (op == Opcode::UnaryPositive) return v;
    if (op == Opcode::UnaryNegative) return float_arithmetic(*this, NB_MULTIPLY, v, constant(keep(Ref::steal(PyFloat_FromDouble(-1.0)))));
  }
  if (op == Opcode::UnaryNot) {
    return boolean(!v->truth(*this));
  }
  const char* method = op == Opcode::UnaryNegative ? "__neg__" : op == Opcode::UnaryPositive ? "__pos__" : "__invert__";
  const char* name = op == Opcode::UnaryNegative ? "neg" : op == Opcode::UnaryPositive ? "pos" : "invert";
  if (v->is(Kind::Array)) return array_operator(*this, name, {v});
  if (v->is(Kind::Tensor)) return tensor_operator(method), call_torch(operator_function(name), Args{{v}, {}});
  if (v->is(Kind::Sym) && (op == Opcode::UnaryInvert || !small_int(v))) v = specialised(v);
  if (is_plain(v) && !user_number(v)) {
    Ref r = Ref::steal(op == Opcode::UnaryNegative ? PyNumber_Negative(plain(v)) : op == Opcode::UnaryPositive ? PyNumber_Positive(plain(v)) : PyNumber_Invert(plain(v)));
    if (!r) raise_current();
    return from_python(std::move(r));
  }
  SourceId at;
  if (PyObject* f = lookup_on_type(v->type(), intern(method), &at)) return call(bind_descriptor(f, at, v, v->type(), intern(method)), Args{}, resumable);
  raise(PyExc_TypeError, std::string("bad operand type for unary ") + (op == Opcode::UnaryNegative ? "-" : op == Opcode::UnaryPositive ? "+" : "~") + ": '" + v->type()->tp_name + "'");
}

}  // namespace braze::capture
