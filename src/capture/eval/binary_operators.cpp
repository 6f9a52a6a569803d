// Binary operators: a table of rules by the kinds of the operands.
#include <opcode.h>

#include <string_view>

#include "capture/eval/index_protocol.h"
#include "capture/eval/library_objects.h"
#include "capture/eval/operands.h"
#include "capture/eval/size_floats.h"
#include "capture/vars/tensor_float.h"

namespace braze::capture {
namespace {

// One operator on two operands. A rule may replace operands by what they stand for, for the rules after it.
struct Binary {
  Translator& tr;
  int op, base;  // NB_...; without "in place"
  bool inplace;
  const OperatorRow& row;
  Variable *a, *b;          // forced
  bool own_types = true;    // no class of the user's takes part
  bool of_content = false;  // what an error would name is an object's content, not the object
};

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

// A bool that only the run knows, as the number that it is beside a tensor of numbers.
Variable* as_factor(Translator& tr, Variable* v, Variable* tensor) {
  if (!only_run_knows(tr, v) || v->type() != &PyBool_Type || !tensor->is(Kind::Tensor)) return v;
  static PyObject* boolean = native::attr(Ground::fixed(), library().torch, "bool");
  Ref dtype = Ref::steal(native::of_tensor(tensor->as<TensorVariable>()->value(tr), "dtype"));
  if (!dtype || dtype.get() == boolean) return PyErr_Clear(), v;
  return tr.from_python(Ref::steal(tr.tracer().as_integer(v->as<SymVariable>()->value.get())), Ground::pure(v, tensor));
}

Variable* sequence_op(Translator& tr, int op, Variable* a, Variable* b) {
  auto repeat = [&](Variable* s, Variable* n) -> Variable* {
    int64_t count = PyLong_AsLongLong(plain(n));
    if (count == -1 && PyErr_Occurred()) tr.raise_current();
    std::vector<Variable*> out;
    const auto& e = static_cast<SequenceVariable*>(s)->elements;
    if (count > 0 && e.size() * static_cast<size_t>(count) > 1000000)
      tr.unsupported("a sequence of more than a million items");
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

// Set operations of which at least one side is a view of a dict's keys or items: as CPython's views make them, so that
// the result iterates as theirs. nullptr: there is none.
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
  if (code == NB_XOR && shows(a, What::Items) && shows(b, What::Items))
    tr.unsupported("^ of two views of a dict's items");
  auto* result = tr.make<SetVariable>();
  result->merge(tr, shows(a, What::Keys) ? a->as<DictViewVariable>()->dict : a);
  if (code == NB_OR) return result->merge(tr, b), result;
  Args args{{b}, {}};
  result->call_method(tr, code == NB_SUBTRACT ? "difference_update" : "symmetric_difference_update", args);
  return result;
}

// Sets combine with sets alone, not with these.
constexpr KindSet kSets = kinds(Kind::Set), kNeverSets = kinds(Kind::List, Kind::Tuple, Kind::Dict, Kind::Generator,
                                                               Kind::Iterator, Kind::Function, Kind::Constant);

// ---- rules: nullptr says that the next one is to be asked ----

// That the classes of the tensors have PyTorch's own methods for the operator.
void guard_operators(Binary& x) {
  std::string_view plain_name = x.row.operator_name;
  if (plain_name.ends_with('_')) plain_name.remove_suffix(1);
  for (const char* side : {x.inplace ? "i" : "", "", "r"})
    x.tr.attributes.tensor_operator("__" + (side + std::string(plain_name)) + "__", {x.a, x.b});
}

Variable* arrays(Binary& x) {
  if (x.a->is(Kind::Tensor) || x.b->is(Kind::Tensor)) guard_operators(x);
  std::string name = (x.inplace ? "i" : "") + std::string(x.row.operator_name);
  if (x.inplace && name.back() == '_') name.pop_back();
  return array_operator(x.tr, x.tr.intern_text(name), {x.a, x.b});
}

// Whether a number or tensor on the left has an answer for one on the right, so that the right one's class is not
// asked.
bool takes_number(Variable* a, Variable* b) {
  PyTypeObject *left = a->type(), *right = b->type();
  const bool integer = PyType_IsSubtype(right, &PyLong_Type), real = integer || PyType_IsSubtype(right, &PyFloat_Type);
  if (a->is(Kind::Tensor) || PyType_IsSubtype(left, &PyFloat_Type)) return real;
  if (PyType_IsSubtype(left, &PyComplex_Type)) return real || PyType_IsSubtype(right, &PyComplex_Type);
  return integer && PyType_IsSubtype(left, &PyLong_Type);
}

// Members of enumerations compute as their class says.
Variable* members(Binary& x) {
  Translator& tr = x.tr;
  Variable *a = x.a, *b = x.b;
  auto is_member = [](Variable* v) { return v->is(Kind::Constant) && !is_fixed_type(v->type()) && !user_number(v); };
  auto own = [&](Variable* v, const char* method) { return is_member(v) && has_own(tr, v->type(), method); };
  const bool in_place = x.inplace && own(a, x.row.inplace), left = own(a, x.row.method),
             right = own(b, x.row.reflected);
  if (!in_place && !left && !right) return nullptr;
  const bool unlike = a->type() != b->type();
  const bool right_first = right && unlike && PyType_IsSubtype(b->type(), a->type());
  if (in_place)
    if (Variable* r = try_special(tr, a, x.row.inplace, b)) return r;
  if (right_first)
    if (Variable* r = try_special(tr, b, x.row.reflected, a)) return r;
  if (left)
    if (Variable* r = try_special(tr, a, x.row.method, b)) return r;
  if (right && !right_first && unlike) {
    const bool answered = takes_number(a, b);
    if (answered && !left && !in_place) return nullptr;
    if (!answered)
      if (Variable* r = try_special(tr, b, x.row.reflected, a)) return r;
  }
  if (!left && !in_place && !right_first && !unlike) return nullptr;
  tr.unsupported(std::string("operator ") + x.row.symbol + " on " + a->describe() + " and " + b->describe());
}

Variable* numbers(Binary& x) {
  Translator& tr = x.tr;
  Variable *&a = x.a, *&b = x.b;
  if (user_number(a) || user_number(b)) return nullptr;
  tr.real.guard_member(b);  // of a text that is formatted
  if (only_run_knows(tr, a) || only_run_knows(tr, b))
    if (x.base == NB_TRUE_DIVIDE || a->type() == &PyFloat_Type || b->type() == &PyFloat_Type)
      if (Variable* r = float_arithmetic(tr, x.op, a, b)) return r;
  if (a->is(Kind::Sym) || b->is(Kind::Sym))
    if (Variable* r = size_arithmetic(tr, x.op, a, b)) return r;
  bool conditions = (x.base == NB_AND || x.base == NB_OR) && a->type() == &PyBool_Type && b->type() == &PyBool_Type &&
                    (only_run_knows(tr, a) || only_run_knows(tr, b));
  if ((a->is(Kind::Sym) || b->is(Kind::Sym)) && !conditions && !stays_open(tr, x.base, a, b)) {
    a = tr.real.specialised(a);
    b = tr.real.specialised(b);
  }
  Ref r = Ref::steal((x.inplace ? x.row.inplace_function : x.row.function)(plain(a), plain(b)));
  if (!r) tr.raise_current();
  return tr.from_python(std::move(r), Ground::pure(a, b));
  return nullptr;
}

Variable* tensors(Binary& x) {
  Translator& tr = x.tr;
  Variable *&a = x.a, *&b = x.b;
  bool other_class = user_class(a) || user_class(b);
  // A tensor on the left takes the number before the number's own class is asked.
  if (Variable* n = for_torch(a) && user_class(b) ? as_number(tr, b) : nullptr) return tr.binary_op(x.op, a, n);
  if (!other_class) {
    if (x.base == NB_MULTIPLY || x.base == NB_ADD || x.base == NB_SUBTRACT) {
      Variable *x = as_factor(tr, a, b), *y = as_factor(tr, b, a);
      a = x, b = y;
    }
    std::string name = x.inplace && for_torch(a) ? std::string("i") + x.row.operator_name : x.row.operator_name;
    if (x.inplace && for_torch(a) && name.back() == '_') name.pop_back();
    guard_operators(x);
    Args args{{a, b}, {}};
    // As a number's power PyTorch itself calls this; in the text of a graph, -2 ** x is another thing.
    if (x.base == NB_POWER && is_plain(a) && !tr.torch_functions.overrides(args)) {
      static PyObject* power = native::attr(Ground::fixed(), library().torch, "pow");
      return tr.real.call_torch(power, args);
    }
    return tr.real.call_torch(operator_function(x.inplace && for_torch(a) ? tr.intern_text(name) : x.row.operator_name),
                              args);
  }
  return nullptr;
}

Variable* in_place(Binary& x) {
  Translator& tr = x.tr;
  Variable *&a = x.a, *&b = x.b;
  if (!x.inplace) return nullptr;
  if (user_class(a))
    if (Variable* r = try_special(tr, a, x.row.inplace, b)) return r;
  if (a->is(Kind::Object) && a->as<ObjectVariable>()->base) {
    // A container of a subclass changes in place.
    SourceId at;
    PyObject* f = tr.attributes.lookup_on_type(a->type(), tr.intern(x.row.inplace), &at);
    if (f && Py_TYPE(f) == &PyWrapperDescr_Type) {
      Args args{{b}, {}};
      Variable* r = tr.force(
          call_builtin_method(tr, a, reinterpret_cast<PyDescrObject*>(f)->d_type, tr.intern(x.row.inplace), args));
      if (!not_implemented(r)) return r;
    }
  }
  if (a->is(Kind::List) && x.base == NB_ADD) {
    Args args{{b}, {}};
    return a->call_method(tr, "__iadd__", args);
  }
  if (a->is(Kind::List) && x.base == NB_MULTIPLY) {
    Variable* r = sequence_op(tr, x.base, a, b);
    if (r) {
      a->as<ListVariable>()->change(tr);
      a->as<ListVariable>()->elements = r->as<ListVariable>()->elements;
      return a;
    }
  }
  if ((a->is(Kind::Set) && a->type() == &PySet_Type &&
       (x.base == NB_OR || x.base == NB_AND || x.base == NB_SUBTRACT || x.base == NB_XOR)) ||
      (a->is(Kind::Dict) && x.base == NB_OR)) {
    Args args{{b}, {}};
    if (Variable* r = a->call_method(tr, x.row.inplace, args); r && !not_implemented(r)) return r;
  }
  return nullptr;
}

// What a class of the user's says; after it, the operands are their contents.
Variable* user_classes(Binary& x) {
  Translator& tr = x.tr;
  Variable *&a = x.a, *&b = x.b;
  if (!user_class(a) && !user_class(b)) return nullptr;
  leave_to_torch_function(tr, a, b, x.row.symbol);
  x.own_types = false;
  // The right operand goes first when its class is a subclass of the left's that overrides.
  bool right_first = a->type() != b->type() && PyType_IsSubtype(b->type(), a->type()) && user_class(b) &&
                     tr.attributes.lookup_on_type(a->type(), tr.intern(x.row.reflected), nullptr) !=
                         tr.attributes.lookup_on_type(b->type(), tr.intern(x.row.reflected), nullptr);
  Variable* r = nullptr;
  if (right_first) r = try_special(tr, b, x.row.reflected, a);
  if (!r && user_class(a)) r = try_special(tr, a, x.row.method, b);
  if (!r && user_class(b) && !right_first && a->type() != b->type()) {
    // Sequences are asked after both, unless their class has the operator's slot for another method of its own.
    bool sequence = PyType_HasFeature(
        a->type(), Py_TPFLAGS_TUPLE_SUBCLASS | Py_TPFLAGS_LIST_SUBCLASS | Py_TPFLAGS_UNICODE_SUBCLASS);
    bool late = sequence && !tr.attributes.lookup_on_type(a->type(), tr.intern(x.row.reflected), nullptr);
    if (late || !content_answers(tr, a, x.row.method, b)) r = try_special(tr, b, x.row.reflected, a);
  }
  if (r) return r;
  if (Variable* n = for_torch(b) ? as_number(tr, a) : nullptr) return tr.binary_op(x.op, n, b);
  if (x.base == NB_REMAINDER && constant_of(content(a)) && PyUnicode_Check(constant_of(content(a))))
    tr.unsupported("the text of " + b->describe());
  if (for_torch(a) || for_torch(b))
    tr.unsupported(std::string("operator ") + x.row.symbol + " on a tensor and " + (for_torch(a) ? b : a)->describe());
  auto ordered = [](Variable* v) {
    return content(v) != v && content(v)->is(Kind::Dict) && content(v)->as<DictVariable>()->is_ordered_dict();
  };
  auto defaults = [](Variable* v) { return content(v) != v && PyType_IsSubtype(v->type(), library().default_dict); };
  if (x.base == NB_OR && (ordered(a) || ordered(b) || defaults(a) || defaults(b)))
    tr.unsupported("| of a subclass of OrderedDict or defaultdict");
  x.of_content = content(a) != a || content(b) != b;
  a = content(a);
  b = content(b);
  return nullptr;
}

// Sequences are repeated by what __index__ gives.
Variable* repetitions(Binary& x) {
  Translator& tr = x.tr;
  Variable *&a = x.a, *&b = x.b;
  if (a->is(Kind::Sym)) a = tr.real.specialised(a);
  if (b->is(Kind::Sym)) b = tr.real.specialised(b);
  auto sequence = [](Variable* v) {
    return v->is(Kind::List) || v->is(Kind::Tuple) ||
           (v->is(Kind::Constant) && (PyUnicode_Check(constant_of(v)) || PyBytes_Check(constant_of(v))));
  };
  if (Variable* n = sequence(a) ? index_of(tr, b) : b; n != b) return tr.binary_op(x.op, a, n);
  if (Variable* n = sequence(b) ? index_of(tr, a) : a; n != a) return tr.binary_op(x.op, n, b);
  return nullptr;
}

Variable* sequences(Binary& x) { return sequence_op(x.tr, x.base, x.a, x.b); }

Variable* sets(Binary& x) {
  Translator& tr = x.tr;
  Variable *&a = x.a, *&b = x.b;
  static const std::pair<int, const char*> ops[] = {
      {NB_OR, "__or__"}, {NB_AND, "__and__"}, {NB_SUBTRACT, "__sub__"}, {NB_XOR, "__xor__"}};
  for (auto& [code, name] : ops)
    if (code == x.base) {
      if (a->is(Kind::Set) && b->is(Kind::Set)) {
        Args args{{b}, {}};
        if (Variable* r = a->call_method(tr, name, args); r && !not_implemented(r)) return r;
      } else if (Variable* r = operation_of_views(tr, code, a, b)) {
        return r;
      }
    }
  return nullptr;
}

Variable* dicts(Binary& x) {
  Translator& tr = x.tr;
  Variable *&a = x.a, *&b = x.b;
  if (a->type() != b->type() && PyType_IsSubtype(b->type(), a->type())) tr.unsupported("| of dicts of two classes");
  Args args{{b}, {}};
  return a->call_method(tr, "__or__", args);
}

Variable* unions_of_classes(Binary& x) {
  Translator& tr = x.tr;
  Variable *&a = x.a, *&b = x.b;
  if (a->as_constant() && b->as_constant() && (PyType_Check(a->as_constant()) || PyType_Check(b->as_constant()))) {
    for (Variable* v : {a, b}) tr.real.check_methods(v, RealCalls::Methods::ButTexts);
    Ref r = Ref::steal(PyNumber_Or(a->as_constant(), b->as_constant()));
    if (!r) tr.raise_current();
    return tr.global_object(r.get(), Ground::pure(a, b));
  }
  return nullptr;
}

Variable* texts(Binary& x) {
  Translator& tr = x.tr;
  Variable *&a = x.a, *&b = x.b;
  if (PyUnicode_Check(plain(a)) && tr.real.is_python_constant(b)) {
    tr.real.check_methods(b, RealCalls::Methods::All);
    Ref args = tr.real.to_python(b);
    Ref r = Ref::steal(PyNumber_Remainder(plain(a), args.get()));
    if (!r) tr.raise_current();
    return tr.from_python(std::move(r), Ground::pure(a, b));
  }
  return nullptr;
}

Variable* constants(Binary& x) {
  Translator& tr = x.tr;
  Variable *&a = x.a, *&b = x.b;
  if (tr.real.is_python_constant(a) && tr.real.is_python_constant(b)) {
    for (Variable* v : {a, b}) tr.real.check_methods(v, RealCalls::Methods::ButTexts);
    Ref ra = tr.real.to_python(a), rb = tr.real.to_python(b);
    Ref r =
        Ref::steal((x.inplace && a->is(Kind::Constant) ? x.row.inplace_function : x.row.function)(ra.get(), rb.get()));
    if (!r && (x.of_content || (x.inplace && !a->is(Kind::Constant))))
      PyErr_Clear(),
          tr.unsupported(std::string("operator ") + x.row.symbol + ", which raises, on an object of a subclass");
    if (!r) tr.raise_current();
    return tr.from_python(std::move(r), Ground::pure(a, b));
  }
  return nullptr;
}

// Sets combine with sets alone.
Variable* sets_and_others(Binary& x) {
  Translator& tr = x.tr;
  Variable *&a = x.a, *&b = x.b;
  if (x.own_types && ((among(a, kSets) && among(b, kNeverSets)) || (among(a, kNeverSets) && among(b, kSets))))
    tr.raise(PyExc_TypeError, std::string("unsupported operand type(s) for ") + x.row.symbol + (x.inplace ? "=" : "") +
                                  ": '" + tr.name_of(a->type()) + "' and '" + tr.name_of(b->type()) + "'");
  return nullptr;
}

using Rule = Variable* (*)(Binary&);
struct Row {
  KindSet left, right;
  bool either;         // one operand of one of these kinds is enough, on either side
  uint32_t operators;  // bits of NB_...
  Rule rule;
};

constexpr uint32_t kAll = ~0u;
constexpr uint32_t bit(int op) { return 1u << op; }
constexpr KindSet kPlain = kinds(Kind::Constant, Kind::Sym), kSequences = kinds(Kind::Tuple, Kind::List),
                  kSetLike = kinds(Kind::Set, Kind::DictView);

constexpr Row kRules[] = {
    {kinds(Kind::Array), kAnyKind, true, kAll, arrays},
    {kinds(Kind::Constant), kAnyKind, true, kAll, members},
    {kPlain, kPlain, false, kAll, numbers},
    {kinds(Kind::Tensor), kAnyKind, true, kAll, tensors},
    {kAnyKind, kAnyKind, false, kAll, in_place},
    {kAnyKind, kAnyKind, false, kAll, user_classes},
    {kAnyKind, kAnyKind, false, bit(NB_MULTIPLY), repetitions},
    {kSequences, kAnyKind, true, bit(NB_ADD) | bit(NB_MULTIPLY), sequences},
    {kSetLike, kSetLike, false, bit(NB_OR) | bit(NB_AND) | bit(NB_SUBTRACT) | bit(NB_XOR), sets},
    {kinds(Kind::Dict), kinds(Kind::Dict), false, bit(NB_OR), dicts},
    {kAnyKind, kAnyKind, false, bit(NB_OR), unions_of_classes},
    {kinds(Kind::Constant), kAnyKind, false, bit(NB_REMAINDER), texts},
    {kAnyKind, kAnyKind, false, kAll, constants},
    {kSets, kAnyKind, true, kAll, sets_and_others},
};

bool concerns(const Row& r, const Binary& x) {
  if (!(r.operators >> x.base & 1)) return false;
  if (r.either) return (among(x.a, r.left) && among(x.b, r.right)) || (among(x.b, r.left) && among(x.a, r.right));
  return among(x.a, r.left) && among(x.b, r.right);
}

}  // namespace

Variable* Protocols::binary_op(int op, Variable* a, Variable* b) {
  if (a->is(Kind::Lazy) || b->is(Kind::Lazy))
    if (Variable* d = tr_.floats.defer_arithmetic(op, a, b)) return d;
  if (is_size_float(a) || is_size_float(b) || (a->is(Kind::Sym) && tr_.floats.is_open_float(b)) ||
      (b->is(Kind::Sym) && tr_.floats.is_open_float(a)))
    if (Variable* d = size_arithmetic(tr_, op, a, b)) return d;
  if (Variable* r = tr_.floats.varying_operand(op, a, b)) return r;
  if (a->is(Kind::Float) || b->is(Kind::Float)) {
    if (Variable* r = float_arithmetic(tr_, op, a, b)) return r;
    tr_.unsupported(Reason::ScalarFromTensor, "an operator on " + (a->is(Kind::Float) ? a : b)->describe());
  }
  a = tr_.force(a);
  b = tr_.force(b);
  auto behind = [](Variable*& v) {
    if (v->is(Kind::MappingProxy)) v = v->as<MappingProxyVariable>()->mapping;
  };
  if (op == NB_OR) behind(a), behind(b);
  bool inplace = op >= NB_INPLACE_ADD;
  int base = inplace ? op - NB_INPLACE_ADD : op;
  Binary x{tr_, op, base, inplace, operator_row(base), a, b};
  for (const Row& r : kRules)
    if (concerns(r, x))
      if (Variable* v = r.rule(x)) return v;
  tr_.unsupported(std::string("operator ") + x.row.symbol + (inplace ? "=" : "") + " on " + x.a->describe() + " and " +
                  x.b->describe());
}

}  // namespace braze::capture
