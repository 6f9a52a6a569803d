#include "capture/vars/sequence.h"

#include <opcode.h>
#include <structmember.h>
#include <algorithm>
#include <cstddef>

#include "capture/cpython/texts.h"
#include "capture/eval/library_objects.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"

namespace braze::capture {
namespace {

struct Span {
  Py_ssize_t start, step, count;
};

bool as_span(Translator& tr, Variable* key, size_t size, Span& out) {
  key = tr.force(key);
  PyObject* s = nullptr;
  Ref made;
  if (key->is(Kind::Slice)) {
    made = tr.real.to_python(key);
    s = made.get();
  } else if (PyObject* c = constant_of(key); c && PySlice_Check(c)) {
    s = c;
  }
  if (!s) return false;
  Py_ssize_t start, stop, step;
  if (PySlice_Unpack(s, &start, &stop, &step) < 0) tr.raise_current();
  out.count = PySlice_AdjustIndices(static_cast<Py_ssize_t>(size), &start, &stop, step);
  out.start = start;
  out.step = step;
  return true;
}

const char* class_word(const SequenceVariable* v) {
  return v->is(Kind::Tuple)                                                               ? "tuple"
         : static_cast<const ListVariable*>(v)->maxlen >= -1 && v->type() == &PyList_Type ? "list"
                                                                                          : "deque";
}

}  // namespace

int64_t sequence_index(Translator& tr, Variable* key, const char* what) {
  auto refuse = [&] {
    if (!what)
      tr.raise(PyExc_TypeError,
               std::string("'") + tr.name_of(key->type()) + "' object cannot be interpreted as an integer");
    bool deque = std::string_view(what) == "deque";
    std::string rule = deque ? "sequence index must be integer, not '"
                             : std::string(what) + " indices must be integers or slices, not ";
    tr.raise(PyExc_TypeError, rule + tr.name_of(key->type()) + (deque ? "'" : ""));
  };
  key = tr.force(key);
  PyObject* k = key->as_constant();
  Ref converted;
  if (!k && key->is(Kind::Sym)) k = key->as<SymVariable>()->value.get();
  if (k) converted = Ref::steal(PyNumber_Index(k));
  if (!k) {
    if (Variable* f = tr.attributes.special_method(key, "__index__"))
      return sequence_index(tr, tr.call(f, {key}), what);
    refuse();
  }
  if (!converted) {
    PyErr_Clear();
    refuse();
  }
  int64_t i = PyLong_AsLongLong(converted.get());
  if (i == -1 && PyErr_Occurred()) tr.raise_current();
  return i;
}

size_t checked_index(Translator& tr, int64_t i, size_t size, const char* message) {
  if (i < 0) i += static_cast<int64_t>(size);
  if (i < 0 || i >= static_cast<int64_t>(size)) tr.raise(PyExc_IndexError, message);
  return static_cast<size_t>(i);
}

Variable* SequenceVariable::getattr(Translator& tr, PyObject* name) {
  if (type() == library().deque && PyUnicode_CompareWithASCIIString(name, "maxlen") == 0) {
    int64_t most = static_cast<ListVariable*>(this)->maxlen;
    return most < 0 ? tr.none() : tr.integer(most, Ground::pure(this));
  }
  return Variable::getattr(tr, name);
}

Variable* SequenceVariable::getitem(Translator& tr, Variable* key) {
  Span span;
  if (as_span(tr, key, elements.size(), span)) {
    if (type() == library().deque) tr.raise(PyExc_TypeError, "sequence index must be integer, not 'slice'");
    std::vector<Variable*> out;
    out.reserve(static_cast<size_t>(span.count));
    for (Py_ssize_t i = 0; i < span.count; ++i)
      out.push_back(elements[static_cast<size_t>(span.start + i * span.step)]);
    if (is(Kind::List)) return tr.list(std::move(out));
    return tr.make<TupleVariable>(std::move(out), type() == library().size ? library().size : &PyTuple_Type);
  }
  std::string word = class_word(this);
  return elements[checked_index(tr, sequence_index(tr, key, word.c_str()), elements.size(),
                                (word + " index out of range").c_str())];
}

bool SequenceVariable::contains(Translator& tr, Variable* item) {
  bool deque = type() == library().deque;
  uint64_t before = deque ? static_cast<ListVariable*>(this)->changes : 0;
  for (size_t i = 0; i < elements.size(); ++i) {  // a comparison may change the list
    bool same = tr.same_item(elements[i], item);
    if (deque && before != static_cast<ListVariable*>(this)->changes)
      tr.raise(PyExc_RuntimeError, "deque mutated during iteration");
    if (same) return true;
  }
  return false;
}

Variable* SequenceVariable::iter(Translator& tr) {
  auto* it = tr.make<SequenceIterator>(this, std::vector<Variable*>{});
  if (is(Kind::List)) it->changes = static_cast<ListVariable*>(this)->changes;
  return it;
}

Variable* SequenceVariable::shared_method(Translator& tr, const char* name, Args& args) {
  std::string_view n = name;
  bool deque = type() == library().deque;
  uint64_t before = deque ? static_cast<ListVariable*>(this)->changes : 0;
  auto is_item = [&](size_t i) {
    bool same = tr.same_item(elements[i], args[0]);
    if (deque && before != static_cast<ListVariable*>(this)->changes)
      tr.raise(PyExc_RuntimeError, "deque mutated during iteration");
    return same;
  };
  if (n == "index" && args.size() >= 1 && args.size() <= 3) {
    auto bound = [&](size_t k, int64_t otherwise) {
      if (args.size() <= k) return otherwise;
      int64_t i = sequence_index(tr, args[k], "slice"), size = static_cast<int64_t>(elements.size());
      return i < 0 ? std::max<int64_t>(0, i + size) : i;
    };
    size_t from = static_cast<size_t>(bound(1, 0)), to = static_cast<size_t>(bound(2, INT64_MAX));
    for (size_t i = from; i < elements.size() && i < to; ++i)
      if (is_item(i)) return tr.integer(static_cast<int64_t>(i), Ground::pure(this, args));
    if (is(Kind::Tuple)) tr.raise(PyExc_ValueError, "tuple.index(x): x not in tuple");
    if (type() != &PyList_Type) tr.unsupported("an item that is not in a deque");
    if (cpython::kTellsNoItem) tr.raise(PyExc_ValueError, "list.index(x): x not in list");
    tr.raise(PyExc_ValueError,
             std::string(PyUnicode_AsUTF8(constant_of(tr.force(tr.format(args[0], "", 2))))) + " is not in list");
  }
  if (n == "count" && args.size() == 1) {
    int64_t c = 0;
    for (size_t i = 0; i < elements.size(); ++i) c += is_item(i);
    return tr.integer(c, Ground::pure(this, args));
  }
  if (n == "__len__" && args.size() == 0) return tr.integer(len(tr), Ground::pure(this, args));
  if (n == "__getitem__" && args.size() == 1) return getitem(tr, args[0]);
  if (n == "__contains__" && args.size() == 1) return tr.boolean(contains(tr, args[0]), Ground::pure(this, args));
  if (n == "__iter__" && args.size() == 0) return iter(tr);
  if (n == "__add__" && args.size() == 1) return tr.binary_op(0, this, args[0]);
  if (n == "__mul__" && args.size() == 1) return tr.binary_op(5, this, args[0]);
  static constexpr std::pair<std::string_view, int> comparisons[] = {
      {"__eq__", Py_EQ}, {"__ne__", Py_NE}, {"__lt__", Py_LT}, {"__le__", Py_LE}, {"__gt__", Py_GT}, {"__ge__", Py_GE}};
  for (auto [method, op] : comparisons)
    if (n == method && args.size() == 1) {
      PyTypeObject* like = is(Kind::Tuple) ? &PyTuple_Type : type();
      if (!PyType_IsSubtype(args[0]->type(), like)) return tr.constant(Py_NotImplemented, Ground::fixed());
      return tr.compare(op, this, args[0]);
    }
  if (n == "__reversed__" && args.size() == 0 && type() == &PyList_Type) return tr.make<ReversedIterator>(this);
  return nullptr;
}

// ---- tuple ----

bool is_plain_tuple_class(Translator& tr, PyTypeObject* t) {
  if (t == &PyTuple_Type || t == library().size || is_structseq(t)) return true;
  if (t->tp_dictoffset) return false;
  for (const char* name : {"__iter__", "__getitem__", "__len__", "__contains__", "__bool__", "__hash__",
                           "__getattribute__", "__getattr__", "__setattr__"}) {
    SourceId at;
    PyObject* f = tr.attributes.lookup_on_type(t, tr.intern(name), &at);
    if (!f) continue;
    if (PyFunction_Check(f) || f == Py_None) return false;
    if (at.valid()) tr.guard_identity(at, f);
  }
  return true;
}

Variable* tuple_field(Translator& tr, PyObject* getter, TupleVariable* t) {
  Ref r = Ref::steal(PyObject_CallMethod(getter, "__reduce__", nullptr));
  int64_t i = PyLong_AsLongLong(PyTuple_GET_ITEM(PyTuple_GET_ITEM(r.get(), 1), 0));
  if (i < 0 || i >= t->len(tr)) tr.raise(PyExc_IndexError, "tuple index out of range");
  return t->elements[static_cast<size_t>(i)];
}

Variable* TupleVariable::getattr(Translator& tr, PyObject* name) {
  if (cls != &PyTuple_Type) {
    SourceId where;
    if (PyObject* d = tr.attributes.lookup_on_type(cls, name, &where)) {
      if (Py_TYPE(d) == library().tuple_getter) {
        if (where.valid()) tr.guard_identity(where, d);
        return tuple_field(tr, d, this);
      }
      if (Py_TYPE(d) == &PyMemberDescr_Type && is_structseq(cls)) {
        auto offset = static_cast<size_t>(reinterpret_cast<PyMemberDescrObject*>(d)->d_member->offset);
        size_t i = (offset - offsetof(PyTupleObject, ob_item)) / sizeof(PyObject*);
        if (i < elements.size()) return elements[i];
      }
    }
  }
  return SequenceVariable::getattr(tr, name);
}

Variable* TupleVariable::call_method(Translator& tr, const char* name, Args& args) {
  if (Variable* v = shared_method(tr, name, args)) return v;
  std::string_view n = name;
  if (n == "__hash__" && args.size() == 0) {
    Ref k = hash_key(tr);
    return tr.integer(PyObject_Hash(k.get()), Ground::pure(this, args));
  }
  if (n == "__getnewargs__" && args.size() == 0) return tr.tuple({tr.tuple(elements)});
  if (n == "numel" && cls == library().size && args.size() == 0) {
    Variable* product = tr.integer(1, Ground::fixed());
    for (Variable* e : elements) product = tr.binary_op(NB_MULTIPLY, product, e);
    return product;
  }
  // What torch.Size and others have besides: on constants.
  if (tr.real.is_python_constant(this)) {
    Ref self = tr.real.to_python(this);
    Ref method = Ref::steal(native::attr(Ground::fixed(), self.get(), name));
    if (method) return tr.real.call_pure(method.get(), args);
    PyErr_Clear();
  }
  return nullptr;
}

Ref TupleVariable::hash_key(Translator& tr) {
  Ref t = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(elements.size())));
  for (size_t i = 0; i < elements.size(); ++i)
    PyTuple_SET_ITEM(t.get(), static_cast<Py_ssize_t>(i), tr.force(elements[i])->hash_key(tr).release());
  return t;
}

Reg TupleVariable::build(Codegen& cg) {
  cg.tr.check_rebuild(cls);
  Reg t = cg.recipe.make(StepKind::Tuple, cg.regs(elements));
  if (cls == &PyTuple_Type) return t;
  auto* c = reinterpret_cast<PyObject*>(cls);
  if (cls == library().size || is_structseq(cls)) return cg.recipe.make(StepKind::Call, {cg.constant(c), t});
  static PyObject* tuple_new = native::attr(Ground::fixed(), reinterpret_cast<PyObject*>(&PyTuple_Type), "__new__");
  return cg.recipe.make(StepKind::Call, {cg.constant(tuple_new), cg.constant(c), t});
}

// ---- list ----

void ListVariable::change(Translator& tr) {
  ++changes;
  replace(tr);
}

void ListVariable::replace(Translator& tr) {
  tr.mutate();
  tr.effects.modified(this);
}

// Deques take single indices.
static const char* no_slice_of_deque(Translator& tr, const ListVariable& l, Variable* key) {
  if (l.type() != library().deque) return "list assignment index out of range";
  if (tr.force(key)->type() == &PySlice_Type) tr.raise(PyExc_TypeError, "sequence index must be integer, not 'slice'");
  return "deque index out of range";
}

void ListVariable::setitem(Translator& tr, Variable* key, Variable* value) {
  const char* out_of_range = no_slice_of_deque(tr, *this, key);
  Span span;
  if (as_span(tr, key, elements.size(), span)) {
    if (!tr.can_iterate(value)) {  // in this version's words
      Ref none = Ref::steal(PyList_New(0)), step = Ref::steal(PyLong_FromLongLong(span.step));
      Ref slice = Ref::steal(step ? PySlice_New(nullptr, nullptr, step.get()) : nullptr);
      if (none && slice) PyObject_SetItem(none.get(), slice.get(), Py_None);
      tr.raise_current();
    }
    std::vector<Variable*> values = tr.as_sequence(value);
    change(tr);
    if (span.step == 1) {
      auto at = elements.begin() + span.start;
      at = elements.erase(at, at + span.count);
      elements.insert(at, values.begin(), values.end());
      return;
    }
    if (static_cast<Py_ssize_t>(values.size()) != span.count)
      tr.raise(PyExc_ValueError, "attempt to assign sequence of size " + std::to_string(values.size()) +
                                     " to extended slice of size " + std::to_string(span.count));
    for (Py_ssize_t i = 0; i < span.count; ++i)
      elements[static_cast<size_t>(span.start + i * span.step)] = values[static_cast<size_t>(i)];
    return;
  }
  size_t i = checked_index(tr, sequence_index(tr, key, class_word(this)), elements.size(), out_of_range);
  replace(tr);
  elements[i] = value;
}

void ListVariable::delitem(Translator& tr, Variable* key) {
  const char* out_of_range = no_slice_of_deque(tr, *this, key);
  Span span;
  if (as_span(tr, key, elements.size(), span)) {
    std::vector<bool> gone(elements.size());
    for (Py_ssize_t i = 0; i < span.count; ++i) gone[static_cast<size_t>(span.start + i * span.step)] = true;
    std::vector<Variable*> kept;
    for (size_t i = 0; i < elements.size(); ++i)
      if (!gone[i]) kept.push_back(elements[i]);
    change(tr);
    elements = std::move(kept);
    return;
  }
  size_t i = checked_index(tr, sequence_index(tr, key, class_word(this)), elements.size(), out_of_range);
  change(tr);
  elements.erase(elements.begin() + static_cast<long>(i));
}

Reg ListVariable::build(Codegen& cg) {
  Reg l = cg.recipe.make(StepKind::List, cg.regs(elements));
  if (cls == &PyList_Type) return l;
  std::vector<Reg> args{cg.constant(reinterpret_cast<PyObject*>(cls)), l};
  if (maxlen >= 0) {
    Ref n = Ref::steal(PyLong_FromLongLong(maxlen));
    args.push_back(cg.constant(n.get()));
  }
  return cg.recipe.make(StepKind::Call, args);
}

}  // namespace braze::capture
