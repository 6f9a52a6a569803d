// Comparisons: a table of rules by the kinds of the operands.
#include "capture/cpython/imported.h"
#include "capture/eval/library_objects.h"
#include "capture/eval/operands.h"
#include "capture/eval/size_floats.h"
#include "capture/vars/host.h"
#include "capture/vars/tensor_float.h"
#include "trace/pytorch/names.h"

namespace braze::capture {
namespace {

const char* kCompare[] = {"__lt__", "__le__", "__eq__", "__ne__", "__gt__", "__ge__"};
const char* kCompareSymbol[] = {"<", "<=", "==", "!=", ">", ">="};
const char* kCompareOperator[] = {"lt", "le", "eq", "ne", "gt", "ge"};
constexpr int kSwapped[] = {Py_GT, Py_GE, Py_EQ, Py_NE, Py_LT, Py_LE};

// One comparison. A rule may replace operands by what they stand for, for the rules after it.
struct Comparison {
  Translator& tr;
  int op;                   // Py_LT...
  bool eq;                  // == or !=
  Variable *a, *b;          // forced
  bool of_content = false;  // what an error would name is an object's content, not the object
  // As it was asked for, which is what an error names.
  int op_asked = op;
  Variable *left = a, *right = b;
};

void swap_sides(Comparison& x) {
  std::swap(x.a, x.b);
  x.op = kSwapped[x.op];
}

[[noreturn]] void raise_not_supported(const Comparison& x) {
  x.tr.raise(PyExc_TypeError, std::string("'") + kCompareSymbol[x.op_asked] + "' not supported between instances of '" +
                                  x.tr.name_of(x.left->type()) + "' and '" + x.tr.name_of(x.right->type()) + "'");
}

bool setlike(Variable* v) {
  return v->is(Kind::Set) ||
         (v->is(Kind::DictView) && v->as<DictViewVariable>()->what != DictViewVariable::What::Values);
}

// ---- rules: nullptr says that the next one is to be asked ----

// That the classes of the tensors have PyTorch's own methods for the operator.
void guard_operators(Comparison& x) {
  for (int side : {x.op, kSwapped[x.op]}) x.tr.attributes.tensor_operator(kCompare[side], {x.a, x.b});
}

Variable* arrays(Comparison& x) {
  if (x.a->is(Kind::Tensor) || x.b->is(Kind::Tensor)) guard_operators(x);
  return array_operator(x.tr, kCompareOperator[x.op], {x.a, x.b});
}

Variable* numbers(Comparison& x) {
  Translator& tr = x.tr;
  Variable *&a = x.a, *&b = x.b;
  if (user_number(a) || user_number(b)) return nullptr;
  if ((only_run_knows(tr, a) && b->type() == &PyFloat_Type) || (only_run_knows(tr, b) && a->type() == &PyFloat_Type))
    if (Variable* r = float_comparison(tr, x.op, a, b)) return r;
  close_unlike(tr, a, b);
  Ref r = Ref::steal(PyObject_RichCompare(plain(a), plain(b), x.op));
  if (!r) tr.raise_current();
  return tr.from_python(std::move(r), Ground::pure(a, b));
}

Variable* functions_in_c(Comparison& x) {
  Translator& tr = x.tr;
  Variable *&a = x.a, *&b = x.b;
  if (!x.eq) return nullptr;
  auto in_c = [](Variable* v) {
    return PyCFunction_Check(v->as_constant()) || Py_TYPE(v->as_constant()) == &PyMethodDescr_Type ||
           Py_TYPE(v->as_constant()) == &PyWrapperDescr_Type || Py_TYPE(v->as_constant()) == &Py_GenericAliasType;
  };
  if (in_c(a) && in_c(b))
    return tr.boolean(PyObject_RichCompareBool(a->as_constant(), b->as_constant(), x.op) == 1, Ground::pure(a, b));
  return nullptr;
}

Variable* tensors(Comparison& x) {
  Translator& tr = x.tr;
  Variable *&a = x.a, *&b = x.b;
  Variable* other = for_torch(a) ? b : a;
  guard_operators(x);
  if (is_none(other) && (x.op == Py_EQ || x.op == Py_NE)) return tr.boolean(x.op == Py_NE, Ground::pure(a, b));
  if (Variable* n = for_torch(a) && user_class(b) ? as_number(tr, b) : nullptr) return tr.compare(x.op, a, n);
  if (!user_class(other)) {
    if (other->is(Kind::Real) && PyModule_Check(other->as_constant()))
      tr.unsupported("a module as an operand of a tensor");
    if ((x.op == Py_EQ || x.op == Py_NE) && !is_plain(other) && !for_torch(other) && !tr.real.is_python_constant(other))
      return tr.boolean((x.op == Py_EQ) == tr.identical(a, b), Ground::pure(a, b));
    return tr.real.call_torch(operator_function(kCompareOperator[x.op]), Args{{a, b}, {}});
  }
  return nullptr;
}

// An object that a class in C compares by a content that is not known here.
bool has_unknown_content(Translator& tr, Variable* v) {
  if ((!v->is(Kind::Object) && !v->is(Kind::Module)) || content(v) != v) return false;
  PyObject* f = tr.attributes.lookup_on_type(v->type(), tr.intern("__eq__"), nullptr);
  return f && Py_TYPE(f) == &PyWrapperDescr_Type && reinterpret_cast<PyDescrObject*>(f)->d_type != &PyBaseObject_Type;
}

// What a class of the user's says; after it, the operands are their contents.
Variable* user_classes(Comparison& x) {
  Translator& tr = x.tr;
  Variable *&a = x.a, *&b = x.b;
  if (!user_class(a) && !user_class(b)) return nullptr;
  leave_to_torch_function(tr, a, b, kCompareSymbol[x.op]);
  bool right_first = a->type() != b->type() && PyType_IsSubtype(b->type(), a->type()) && user_class(b);
  Variable* r = nullptr;
  if (right_first) r = try_special(tr, b, kCompare[kSwapped[x.op]], a);
  if (right_first && !r && content_answers(tr, b, kCompare[kSwapped[x.op]], a)) {
    swap_sides(x);
    right_first = false;
  }
  if (!r && user_class(a)) r = try_special(tr, a, kCompare[x.op], b);
  if (!r && !right_first && user_class(b) && !content_answers(tr, a, kCompare[x.op], b))
    r = try_special(tr, b, kCompare[kSwapped[x.op]], a);
  if (r) return r;
  if (Variable* n = for_torch(b) ? as_number(tr, a) : nullptr) return tr.compare(x.op, n, b);
  auto has_a_say = [&](Variable* v) { return !for_torch(v) && tr.torch_functions.of(v->type()) == TorchFunction::Own; };
  if ((for_torch(a) || for_torch(b)) && (!x.eq || has_a_say(a) || has_a_say(b)))
    tr.unsupported(std::string("operator ") + kCompareSymbol[x.op] + " on a tensor and " +
                   (for_torch(a) ? b : a)->describe());
  if (is_plain(a) && is_plain(b)) {
    close_unlike(tr, a, b);
    Ref c = Ref::steal(PyObject_RichCompare(plain(a), plain(b), x.op));
    if (!c) tr.raise_current();
    return tr.from_python(std::move(c), Ground::pure(a, b));
  }
  for (Variable* v : {a, b}) {
    PyTypeObject* t = v->type();
    bool own = (v->is(Kind::Real) && t != &PyType_Type && t->tp_richcompare &&
                t->tp_richcompare != PyBaseObject_Type.tp_richcompare) ||
               v->is(Kind::Weakref) || (v->is(Kind::MappingProxy) && !x.eq) || has_unknown_content(tr, v);
    if (own) tr.unsupported("a comparison of " + a->describe() + " and " + b->describe());
  }
  // Where both classes have methods of their own, and neither had an answer, nobody asks what they derive from.
  auto own = [&](Variable* v, int op) {
    PyObject* f = user_class(v) ? tr.attributes.lookup_on_type(v->type(), tr.intern(kCompare[op]), nullptr) : nullptr;
    return f && PyFunction_Check(f);
  };
  bool no_answer = own(a, x.op) && own(b, kSwapped[x.op]);
  if (no_answer || (content(a) == a && content(b) == b && !a->is(Kind::Tuple) && !b->is(Kind::Tuple))) {
    if (x.op == Py_EQ || x.op == Py_NE) return tr.boolean((x.op == Py_EQ) == tr.identical(a, b), Ground::pure(a, b));
    raise_not_supported(x);
  }
  if (own(a, x.op) && !right_first) swap_sides(x);  // had no answer: the other is asked, with it
  x.of_content = content(a) != a || content(b) != b;
  a = tr.force(content(a));
  b = tr.force(content(b));
  return nullptr;
}

// One of a subclass is asked first; of contents that was decided by the classes of their objects.
void subclass_first(Comparison& x) {
  if (!x.of_content && x.a->type() != x.b->type() && PyType_IsSubtype(x.b->type(), x.a->type())) swap_sides(x);
}

Variable* sequences(Comparison& x) {
  Translator& tr = x.tr;
  Variable *&a = x.a, *&b = x.b;
  auto is_deque = [](Variable* v) { return v->type() == library().deque; };
  if (a->kind != b->kind || is_deque(a) != is_deque(b)) return nullptr;
  subclass_first(x);
  // The items of lists may change while they are compared.
  const auto &p = static_cast<SequenceVariable*>(a)->elements, &q = static_cast<SequenceVariable*>(b)->elements;
  // Tuples of other lengths are gone through all the same: an item may have something to say.
  bool by_length = x.eq && !a->is(Kind::Tuple);
  if (by_length && p.size() != q.size()) return tr.boolean(x.op == Py_NE, Ground::pure(a, b));
  for (size_t i = 0; i < p.size() && i < q.size(); ++i)
    if (Variable* l = p[i], *r = q[i]; !tr.same_item(l, r))
      return x.eq ? tr.boolean(x.op == Py_NE, Ground::pure(a, b)) : tr.compare(x.op, l, r);
  Ref n = Ref::steal(PyLong_FromSize_t(p.size())), m = Ref::steal(PyLong_FromSize_t(q.size()));
  return tr.boolean(PyObject_RichCompareBool(n.get(), m.get(), x.op) == 1, Ground::pure(a, b));
}

Variable* dicts(Comparison& x) {
  Translator& tr = x.tr;
  Variable *&a = x.a, *&b = x.b;
  if (!x.eq) return nullptr;
  subclass_first(x);
  auto *p = a->as<DictVariable>(), *q = b->as<DictVariable>();
  if (p == q) return tr.boolean(x.op == Py_EQ, Ground::pure(a, b));
  auto ex = p->entries(tr);
  bool same = ex.size() == q->entries(tr).size();
  if (same && p->is_ordered_dict() && q->is_ordered_dict()) {
    auto ey = q->entries(tr);
    for (size_t i = 0; same && i < ex.size(); ++i) same = tr.same_item(ex[i].key, ey[i].key);
  }
  for (size_t i = 0; same && i < ex.size(); ++i) {
    Variable* other = q->get(tr, ex[i].key);
    same = other && tr.same_item(ex[i].value, other);
  }
  return tr.boolean(same == (x.op == Py_EQ), Ground::pure(a, b));
}

Variable* sets(Comparison& x) {
  Translator& tr = x.tr;
  Variable *&a = x.a, *&b = x.b;
  if (!setlike(a) || !setlike(b)) return nullptr;
  auto subset = [&](Variable* p, Variable* q) {
    for (Variable* v : p->items(tr))
      if (!q->contains(tr, v)) return false;
    return true;
  };
  int64_t n = tr.len(a), m = tr.len(b);
  bool r = x.op == Py_EQ   ? n == m && subset(a, b)
           : x.op == Py_NE ? !(n == m && subset(a, b))
           : x.op == Py_LE ? subset(a, b)
           : x.op == Py_GE ? subset(b, a)
           : x.op == Py_LT ? n < m && subset(a, b)
                           : m < n && subset(b, a);
  return tr.boolean(r, Ground::pure(a, b));
}

Variable* constants(Comparison& x) {
  Translator& tr = x.tr;
  Variable *&a = x.a, *&b = x.b;
  if (tr.real.is_python_constant(a) && tr.real.is_python_constant(b)) {
    Ref left = tr.real.to_python(a), right = tr.real.to_python(b);
    Ref r = Ref::steal(PyObject_RichCompare(left.get(), right.get(), x.op));
    if (!r && x.of_content) PyErr_Clear(), tr.unsupported("a comparison, which raises, of an object of a subclass");
    if (!r) tr.raise_current();
    return tr.from_python(std::move(r), Ground::pure(a, b));
  }
  return nullptr;
}

Variable* mapping_proxies(Comparison& x) {
  Translator& tr = x.tr;
  Variable *&a = x.a, *&b = x.b;
  if (!x.eq) return nullptr;
  // What is wrapped is asked with the other as it is; a dict has no answer for a proxy, which is then asked itself.
  if (b->is(Kind::MappingProxy)) {
    Variable* other = a->is(Kind::MappingProxy) ? a->as<MappingProxyVariable>()->mapping : a;
    return tr.compare(kSwapped[x.op], b->as<MappingProxyVariable>()->mapping, other);
  }
  return tr.compare(x.op, a->as<MappingProxyVariable>()->mapping, b);
}

Variable* cells(Comparison& x) { x.tr.unsupported("a comparison of cells"); }

Variable* slices(Comparison& x) {
  Translator& tr = x.tr;
  Variable *&a = x.a, *&b = x.b;
  auto parts = [&](Variable* s) {
    return tr.tuple({s->as<SliceVariable>()->parts, s->as<SliceVariable>()->parts + 3});
  };
  return tr.compare(x.op, parts(a), parts(b));
}

Variable* builtin_methods(Comparison& x) {
  Translator& tr = x.tr;
  Variable *&a = x.a, *&b = x.b;
  if (!x.eq) return nullptr;
  auto *p = a->as<BuiltinMethodVariable>(), *q = b->as<BuiltinMethodVariable>();
  return tr.boolean((p->descr.get() == q->descr.get() && tr.identical(p->self, q->self)) == (x.op == Py_EQ),
                    Ground::pure(a, b));
}

Variable* bound_methods(Comparison& x) {
  Translator& tr = x.tr;
  Variable *&a = x.a, *&b = x.b;
  if (!x.eq) return nullptr;
  auto *p = a->as<BoundMethodVariable>(), *q = b->as<BoundMethodVariable>();
  return tr.boolean((tr.identical(p->self, q->self) && tr.equal(p->function, q->function)) == (x.op == Py_EQ),
                    Ground::pure(a, b));
}

Variable* weak_references(Comparison& x) {
  Translator& tr = x.tr;
  Variable *&a = x.a, *&b = x.b;
  if (!x.eq) return nullptr;
  // By what they refer to, while that lives; an error of call() says that it may not.
  Args none_given;
  return tr.compare(x.op, tr.force(a->call(tr, none_given)), tr.force(b->call(tr, none_given)));
}

// Values of PyTorch's enumerations in C++ compare as their numbers do.
Variable* enumerations(Comparison& x) {
  static PyTypeObject* of_pybind = Py_TYPE(pytorch::get(pytorch::Name::SDPBackend));
  PyTypeObject* t = x.a->type();
  if (t != x.b->type() || Py_TYPE(t) != of_pybind || !native::type_attr(Ground::fixed(), t, "__members__"))
    return nullptr;
  Ref r = Ref::steal(PyObject_RichCompare(x.a->as_constant(), x.b->as_constant(), x.op));
  if (!r) x.tr.raise_current();
  return x.tr.boolean(r.get() == Py_True, Ground::pure(x.a, x.b));
}

Variable* identities(Comparison& x) {
  Translator& tr = x.tr;
  Variable *&a = x.a, *&b = x.b;
  // Objects of C classes may compare in ways that are not known here.
  auto by_identity = [&](Variable* v) {
    PyTypeObject* t = v->type();
    if (v->is(Kind::Weakref)) return false;
    return v->is(Kind::BuiltinMethod) || v->is(Kind::Constant) || t == &PyType_Type ||
           t->tp_richcompare == PyBaseObject_Type.tp_richcompare || !t->tp_richcompare || !v->is(Kind::Real);
  };
  if (x.eq && by_identity(a) && by_identity(b))
    return tr.boolean((x.op == Py_EQ) == tr.identical(a, b), Ground::pure(a, b));
  return nullptr;
}

Variable* without_order(Comparison& x) {
  Variable *&a = x.a, *&b = x.b;
  // Containers have an order among their own kind only, the rest here has none.
  auto orderless = [](Variable* v) {
    return v->is(Kind::List) || v->is(Kind::Tuple) || v->is(Kind::Set) || v->is(Kind::Dict) || v->is(Kind::Generator) ||
           v->is(Kind::Iterator) || v->is(Kind::Function) || v->is(Kind::BoundMethod) ||
           (v->is(Kind::Constant) && !(v->type()->tp_flags & Py_TPFLAGS_HEAPTYPE));
  };
  if (!x.eq && orderless(a) && orderless(b) && !(setlike(a) && setlike(b))) raise_not_supported(x);
  return nullptr;
}

using Rule = Variable* (*)(Comparison&);
struct Row {
  KindSet left, right;
  bool either;  // one operand of one of these kinds is enough, on either side
  Rule rule;
};

constexpr KindSet kPlain = kinds(Kind::Constant, Kind::Sym), kSequences = kinds(Kind::Tuple, Kind::List),
                  kSetLike = kinds(Kind::Set, Kind::DictView);

constexpr Row kRules[] = {
    {kinds(Kind::Array), kAnyKind, true, arrays},
    {kPlain, kPlain, false, numbers},
    {kinds(Kind::Real), kinds(Kind::Real), false, functions_in_c},
    {kinds(Kind::Real), kinds(Kind::Real), false, enumerations},
    {kinds(Kind::Tensor), kAnyKind, true, tensors},
    {kAnyKind, kAnyKind, false, user_classes},
    {kSequences, kSequences, false, sequences},
    {kinds(Kind::Dict), kinds(Kind::Dict), false, dicts},
    {kSetLike, kSetLike, false, sets},
    {kAnyKind, kAnyKind, false, constants},
    {kinds(Kind::MappingProxy), kAnyKind, true, mapping_proxies},
    {kinds(Kind::Cell), kinds(Kind::Cell), false, cells},
    {kinds(Kind::Slice), kinds(Kind::Slice), false, slices},
    {kinds(Kind::BuiltinMethod), kinds(Kind::BuiltinMethod), false, builtin_methods},
    {kinds(Kind::BoundMethod), kinds(Kind::BoundMethod), false, bound_methods},
    {kinds(Kind::Weakref), kinds(Kind::Weakref), false, weak_references},
    {kAnyKind, kAnyKind, false, identities},
    {kAnyKind, kAnyKind, false, without_order},
};

bool concerns(const Row& r, const Comparison& x) {
  if (r.either) return (among(x.a, r.left) && among(x.b, r.right)) || (among(x.b, r.left) && among(x.a, r.right));
  return among(x.a, r.left) && among(x.b, r.right);
}

}  // namespace

// A special method in C of an object that is known: Tensor.ndim.__get__, say. They are made anew each time.
static Ref method_wrapper(Variable* v) {
  if (v->is(Kind::Host)) return v->as<HostVariable>()->object;
  if (!v->is(Kind::BuiltinMethod)) return Ref::borrow(v->as_constant());
  auto* m = v->as<BuiltinMethodVariable>();
  PyObject* self = m->self->is(Kind::Real) ? m->self->as_constant() : nullptr;
  return self ? Ref::steal(native::attr(Ground::fixed(), self, m->name)) : Ref();
}

Variable* Protocols::compare(int op, Variable* a, Variable* b) {
  tr_.check_stack();
  if (Variable* r = size_comparison(tr_, op, a, b)) return r;
  if (Variable* r = tr_.floats.varying_comparison(op, a, b)) return r;
  if (a->is(Kind::Float) || b->is(Kind::Float)) {
    if (Variable* r = float_comparison(tr_, op, a, b)) return r;
    Variable* other = tr_.force(a->is(Kind::Float) ? b : a);
    bool unlike = is_none(other) || other->is(Kind::Tuple) || other->is(Kind::List) ||
                  (constant_of(other) && PyUnicode_Check(constant_of(other)));
    if (unlike && (op == Py_EQ || op == Py_NE)) return tr_.boolean(op == Py_NE, Ground::pure(a, b));
    tr_.unsupported(Reason::ScalarFromTensor, "a comparison of " + (a->is(Kind::Float) ? a : b)->describe());
  }
  a = tr_.force(a);
  b = tr_.force(b);
  for (Variable* v : {a, b}) {
    // How objects of the program's classes compare is looked at where they are more than their class: an enum's member,
    // say.
    PyTypeObject* t = v->type();
    if ((!v->is(Kind::Real) && !v->is(Kind::Constant)) || is_fixed_type(t) || user_class(v)) continue;
    PyObject* own = tr_.attributes.lookup_on_type(t, tr_.intern(kCompare[v == a ? op : kSwapped[op]]), nullptr);
    if (own && PyFunction_Check(own) && !of_library(own))
      tr_.unsupported("a comparison of " + a->describe() + " and " + b->describe());
  }
  if (a->type() == method_wrapper_type() && b->type() == method_wrapper_type()) {
    Ref x = method_wrapper(a), y = method_wrapper(b);
    if (x && y && (op == Py_EQ || op == Py_NE))
      return tr_.boolean((PyObject_RichCompareBool(x.get(), y.get(), Py_EQ) == 1) == (op == Py_EQ), Ground::pure(a, b));
    PyErr_Clear();
  }
  Comparison x{tr_, op, op == Py_EQ || op == Py_NE, a, b};
  for (const Row& r : kRules)
    if (concerns(r, x))
      if (Variable* v = r.rule(x)) return v;
  tr_.unsupported(std::string("comparison ") + kCompareSymbol[op] + " of " + x.a->describe() + " and " +
                  x.b->describe());
}

bool Protocols::equal(Variable* a, Variable* b) { return truth(compare(Py_EQ, a, b)); }

}  // namespace braze::capture
