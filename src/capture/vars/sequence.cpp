#include "capture/vars/sequence.h"

#include <algorithm>
#include <cstddef>
#include <opcode.h>
#include <structmember.h>

#include "capture/eval/library_objects.h"
#include "capture/builtins/sorting.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"

namespace braze::capture {
namespace {

// The value of an int-like key; raises TypeError for others.
int64_t index_of(Translator& tr, Variable* key, const char* what) {
  key = tr.force(key);
  PyObject* k = key->as_constant();
  Ref converted;
  if (!k && key->is(Kind::Sym)) k = key->as<SymVariable>()->value.get();
  if (k) converted = Ref::steal(PyNumber_Index(k));
  if (!k) {
    if (Variable* f = tr.special_method(key, "__index__")) return index_of(tr, tr.call(f, {key}), what);
    tr.raise(PyExc_TypeError, std::string(what) + " indices must be integers or slices, not " + key->type()->tp_name);
  }
  if (!converted) {
    PyErr_Clear();
    tr.raise(PyExc_TypeError, std::string(what) + " indices must be integers or slices, not " + key->type()->tp_name);
  }
  int64_t i = PyLong_AsLongLong(converted.get());
  if (i == -1 && PyErr_Occurred()) tr.raise_current();
  return i;
}

struct Span {
  Py_ssize_t start, step, count;
};

bool as_span(Translator& tr, Variable* key, size_t size, Span& out) {
  key = tr.force(key);
  PyObject* s = nullptr;
  Ref made;
  if (key->is(Kind::Slice)) {
    made = tr.to_python(key);
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

size_t checked(Translator& tr, int64_t i, size_t size, const char* message) {
  if (i < 0) i += static_cast<int64_t>(size);
  if (i < 0 || i >= static_cast<int64_t>(size)) tr.raise(PyExc_IndexError, message);
  return static_cast<size_t>(i);
}

const char* class_word(const SequenceVariable* v) { return v->is(Kind::Tuple) ? "tuple" : static_cast<const ListVariable*>(v)->maxlen >= -1 && v->type() == &PyList_Type ? "list" : "deque"; }

}  // namespace

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
    for (Py_ssize_t i = 0; i < span.count; ++i) out.push_back(elements[static_cast<size_t>(span.start + i * span.step)]);
    if (is(Kind::List)) return tr.list(std::move(out));
    return tr.make<TupleVariable>(std::move(out), type() == library().size ? library().size : &PyTuple_Type);
  }
  std::string word = class_word(this);
  return elements[checked(tr, index_of(tr, key, word.c_str()), elements.size(), (word + " index out of range").c_str())];
}

bool SequenceVariable::contains(Translator& tr, Variable* item) {
  bool deque = type() == library().deque;
  uint64_t before = deque ? static_cast<ListVariable*>(this)->changes : 0;
  for (size_t i = 0; i < elements.size(); ++i) {  // a comparison may change the list
    bool same = tr.same_item(elements[i], item);
    if (deque && before != static_cast<ListVariable*>(this)->changes) tr.raise(PyExc_RuntimeError, "deque mutated during iteration");
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
    if (deque && before != static_cast<ListVariable*>(this)->changes) tr.raise(PyExc_RuntimeError, "deque mutated during iteration");
    return same;
  };
  if (n == "index" && args.size() >= 1 && args.size() <= 3) {
    auto bound = [&](size_t k, int64_t otherwise) {
      if (args.size() <= k) return otherwise;
      int64_t i = index_of(tr, args[k], "slice"), size = static_cast<int64_t>(elements.size());
      return i < 0 ? std::max<int64_t>(0, i + size) : i;
    };
    size_t from = static_cast<size_t>(bound(1, 0)), to = static_cast<size_t>(bound(2, INT64_MAX));
    for (size_t i = from; i < elements.size() && i < to; ++i)
      if (is_item(i)) return tr.integer(static_cast<int64_t>(i), Ground::pure(this, args));
    if (is(Kind::Tuple)) tr.raise(PyExc_ValueError, "tuple.index(x): x not in tuple");
    if (type() != &PyList_Type) tr.unsupported("an item that is not in a deque");
    tr.raise(PyExc_ValueError, std::string(PyUnicode_AsUTF8(constant_of(tr.force(tr.format(args[0], "", 2))))) + " is not in list");
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
  if ((n == "__eq__" || n == "__ne__") && args.size() == 1) {
    PyTypeObject* like = is(Kind::Tuple) ? &PyTuple_Type : type();
    if (!PyType_IsSubtype(args[0]->type(), like)) return tr.constant(Py_NotImplemented, Ground::fixed());
    return tr.compare(n == "__eq__" ? Py_EQ : Py_NE, this, args[0]);
  }
  if (n == "__reversed__" && args.size() == 0 && type() == &PyList_Type) return tr.make<ReversedIterator>(this);
  return nullptr;
}

// ---- tuple ----

bool is_plain_tuple_class(Translator& tr, PyTypeObject* t) {
  if (t == &PyTuple_Type || t == library().size || is_structseq(t)) return true;
  if (t->tp_dictoffset) return false;
  for (const char* name : {"__iter__", "__getitem__", "__len__", "__contains__", "__bool__", "__hash__", "__getattribute__", "__getattr__", "__setattr__"}) {
    SourceId at;
    PyObject* f = tr.lookup_on_type(t, tr.intern(name), &at);
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
    if (PyObject* d = tr.lookup_on_type(cls, name, &where)) {
      if (Py_TYPE(d) == library().tuple_getter) return tuple_field(tr, d, this);
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
  if (tr.is_python_constant(this)) {
    Ref self = tr.to_python(this);
    Ref method = Ref::steal(native::attr(Ground::fixed(), self.get(), name));
    if (method) return tr.call_pure(method.get(), args);
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
  tr.mutate();
  tr.modified(this);
}

void ListVariable::setitem(Translator& tr, Variable* key, Variable* value) {
  Span span;
  if (as_span(tr, key, elements.size(), span)) {
    std::vector<Variable*> values = tr.unpack(value);
    change(tr);
    if (span.step == 1) {
      auto at = elements.begin() + span.start;
      at = elements.erase(at, at + span.count);
      elements.insert(at, values.begin(), values.end());
      return;
    }
    if (static_cast<Py_ssize_t>(values.size()) != span.count)
      tr.raise(PyExc_ValueError, "attempt to assign sequence of size " + std::to_string(values.size()) + " to extended slice of size " + std::to_string(span.count));
    for (Py_ssize_t i = 0; i < span.count; ++i) elements[static_cast<size_t>(span.start + i * span.step)] = values[static_cast<size_t>(i)];
    return;
  }
  size_t i = checked(tr, index_of(tr, key, "list"), elements.size(), "list assignment index out of range");
  change(tr);
  --changes;  // which items there are
  elements[i] = value;
}

void ListVariable::delitem(Translator& tr, Variable* key) {
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
  size_t i = checked(tr, index_of(tr, key, "list"), elements.size(), "list assignment index out of range");
  change(tr);
  elements.erase(elements.begin() + static_cast<long>(i));
}

Variable* ListVariable::call_method(Translator& tr, const char* name, Args& args) {
  std::string_view n = name;
  auto bounded = [&] {
    while (maxlen >= 0 && static_cast<int64_t>(elements.size()) > maxlen) elements.erase(elements.begin());
  };
  if (n == "append" && args.size() == 1) {
    change(tr);
    elements.push_back(args[0]);
    bounded();
    return tr.none();
  }
  if ((n == "extend" || n == "__iadd__") && args.size() == 1) {
    auto more = tr.unpack(args[0]);
    change(tr);
    elements.insert(elements.end(), more.begin(), more.end());
    bounded();
    return n == "extend" ? tr.none() : this;
  }
  if (n == "__imul__" && args.size() == 1 && cls == &PyList_Type) {
    Variable* product = tr.force(tr.binary_op(NB_MULTIPLY, this, args[0]));
    change(tr);
    elements = product->as<ListVariable>()->elements;
    return this;
  }
  if (n == "__init__" && args.size() <= 1 && args.kw.empty() && cls == &PyList_Type) {
    std::vector<Variable*> items = args.size() ? tr.unpack(args[0]) : std::vector<Variable*>{};
    change(tr);
    elements = std::move(items);
    return tr.none();
  }
  if (n == "insert" && args.size() == 2) {
    if (maxlen >= 0) return nullptr;
    int64_t i = index_of(tr, args[0], "list"), size = len(tr);
    if (i < 0) i = std::max<int64_t>(0, i + size);
    change(tr);
    elements.insert(elements.begin() + std::min(i, size), args[1]);
    return tr.none();
  }
  if (n == "pop" && args.size() <= 1) {
    if (elements.empty()) tr.raise(PyExc_IndexError, cls == &PyList_Type ? "pop from empty list" : "pop from an empty deque");
    size_t i = checked(tr, args.size() ? index_of(tr, args[0], "list") : -1, elements.size(), "pop index out of range");
    change(tr);
    Variable* v = elements[i];
    elements.erase(elements.begin() + static_cast<long>(i));
    return v;
  }
  if (n == "remove" && args.size() == 1) {
    for (size_t i = 0; i < elements.size(); ++i)
      if (tr.same_item(elements[i], args[0]) && i < elements.size()) {
        change(tr);
        elements.erase(elements.begin() + static_cast<long>(i));
        return tr.none();
      }
    tr.raise(PyExc_ValueError, "list.remove(x): x not in list");
  }
  if (n == "clear" && args.size() == 0) {
    change(tr);
    elements.clear();
    return tr.none();
  }
  if (n == "reverse" && args.size() == 0) {
    change(tr);
    std::reverse(elements.begin(), elements.end());
    return tr.none();
  }
  if (n == "sort" && args.size() == 0) {
    Variable* key = args.take_kw("key");
    Variable* reverse = args.take_kw("reverse");
    bool down = reverse && tr.truth(reverse);
    if (!args.kw.empty()) return nullptr;
    change(tr);
    // Empty while it is sorted, as in CPython.
    std::vector<Variable*> all = std::move(elements), sorted;
    elements.clear();
    try {
      sorted = sort_variables(tr, all, key, down);
    } catch (PyRaise&) {
      elements = std::move(all);
      throw;
    }
    bool modified = !elements.empty();
    elements = std::move(sorted);
    if (modified) tr.raise(PyExc_ValueError, "list modified during sort");
    return tr.none();
  }
  if ((n == "copy" || n == "__copy__") && args.size() == 0) {
    auto* c = tr.make<ListVariable>(elements, cls);
    c->maxlen = maxlen;
    return c;
  }
  if (n == "__setitem__" && args.size() == 2) return setitem(tr, args[0], args[1]), tr.none();
  if (n == "__delitem__" && args.size() == 1) return delitem(tr, args[0]), tr.none();
  if (cls == library().deque) {
    if (n == "appendleft" && args.size() == 1) {
      change(tr);
      elements.insert(elements.begin(), args[0]);
      if (maxlen >= 0 && len(tr) > maxlen) elements.pop_back();
      return tr.none();
    }
    if (n == "popleft" && args.size() == 0) {
      if (elements.empty()) tr.raise(PyExc_IndexError, "pop from an empty deque");
      change(tr);
      Variable* v = elements.front();
      elements.erase(elements.begin());
      return v;
    }
    if (n == "extendleft" && args.size() == 1) {
      auto more = tr.unpack(args[0]);
      change(tr);
      for (Variable* v : more) {
        elements.insert(elements.begin(), v);
        if (maxlen >= 0 && len(tr) > maxlen) elements.pop_back();
      }
      return tr.none();
    }
    if (n == "rotate" && args.size() <= 1) {
      int64_t size = len(tr), k = args.size() ? index_of(tr, args[0], "deque") : 1;
      if (size) {
        change(tr);
        k = ((k % size) + size) % size;
        std::rotate(elements.begin(), elements.end() - k, elements.end());
      }
      return tr.none();
    }
  }
  return shared_method(tr, name, args);
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
