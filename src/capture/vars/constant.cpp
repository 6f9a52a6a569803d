#include "capture/vars/constant.h"

#include "capture/eval/library_objects.h"
#include "capture/eval/operands.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"

namespace braze::capture {

std::string LazyVariable::describe() const { return std::string("a value of type ") + Py_TYPE(object.get())->tp_name; }

std::string ConstantVariable::describe() const {
  // Code of the program's is not run for a message.
  PyObject* own = native::type_attr(Ground::conservative(), type(), "__repr__");
  if (own && !is_library_method(own)) return Variable::describe();
  Ref text = Ref::steal(PyObject_Repr(value.get()));
  if (!text) {
    PyErr_Clear();
    return Variable::describe();
  }
  const char* s = PyUnicode_AsUTF8(text.get());
  if (!s) PyErr_Clear();
  return s ? std::string(s).substr(0, 80) : Variable::describe();
}

namespace {

// The special method that a class of the program's has in Python, called; nullptr: its class is one of C, or has the
// method of one, which is guarded.
Variable* own_method(Translator& tr, ConstantVariable* v, const char* name, std::vector<Variable*> args) {
  PyTypeObject* t = v->type();
  if (is_fixed_type(t)) return nullptr;
  SourceId at;
  PyObject* f = tr.attributes.lookup_on_type(t, tr.intern(name), &at);
  if (!f || !PyFunction_Check(f)) return nullptr;
  if (!of_library(f)) return tr.call(tr.attributes.bind_descriptor(f, at, v, t, tr.intern(name)), std::move(args));
  tr.guard_identity(at, f);
  return nullptr;
}

}  // namespace

Variable* ConstantVariable::getattr(Translator& tr, PyObject* name) {
  PyTypeObject* t = type();
  const TypeInfo* info = is_fixed_type(t) ? nullptr : &tr.attributes.type_info(t);
  if (info && !info->generic && PyFunction_Check(info->getattribute))
    tr.unsupported(std::string("attribute access of class ") + t->tp_name);
  if (info && info->getattr && PyFunction_Check(info->getattr))
    tr.unsupported(std::string("attribute access of class ") + t->tp_name);
  SourceId where;
  PyObject* descr = tr.attributes.lookup_on_type(t, name, &where);
  // Numbers and texts of a class of the user's may have attributes of their own.
  bool users = (t->tp_flags & Py_TPFLAGS_HEAPTYPE) && (t->tp_dictoffset || (t->tp_flags & Py_TPFLAGS_MANAGED_DICT));
  // A member of an enumeration is the same object on every path.
  SourceId of = users && PyObject_TypeCheck(value.get(), library().enum_) ? tr.sources().constant(value.get()) : source;
  if (descr && where.valid())
    tr.guards().type_is(where, Py_TYPE(descr), tr.line());  // whether it comes before the instance's own
  bool data = descr && Py_TYPE(descr)->tp_descr_set && Py_TYPE(descr)->tp_descr_get;
  if (users && of.valid() && !data) {
    Ref own = Ref::steal(PyObject_GenericGetDict(value.get(), nullptr));
    if (!own) tr.raise_current();
    if (Variable* v = dict_behind(tr, tr.wrap(own.get(), tr.sources().instance_dict(of)))->get(tr, name)) return v;
  }
  if (users && of.valid() && PyObject_TypeCheck(value.get(), library().enum_)) {
    // Enum.value and Enum.name give what the member's dict has.
    for (const char* field : {"value", "name"}) {
      static PyTypeObject* plain = library().enum_;
      if (!descr || PyUnicode_CompareWithASCIIString(name, field) != 0 ||
          descr != native::type_attr(Ground::fixed(), plain, name))
        continue;
      if (where.valid()) tr.guard_identity(where, descr);
      Ref own = Ref::steal(PyObject_GenericGetDict(value.get(), nullptr));
      if (!own) tr.raise_current();
      if (Variable* v = dict_behind(tr, tr.wrap(own.get(), tr.sources().instance_dict(of)))
                            ->get(tr, tr.intern((std::string("_") + field + "_").c_str())))
        return v;
    }
  }
  if (users && of.valid() && PyUnicode_CompareWithASCIIString(name, "__dict__") == 0) {
    Ref own = Ref::steal(PyObject_GenericGetDict(value.get(), nullptr));
    if (!own) tr.raise_current();
    return tr.force(tr.wrap(own.get(), tr.sources().instance_dict(of)));
  }
  if (descr) {
    PyTypeObject* d = Py_TYPE(descr);
    bool computed = d == &PyGetSetDescr_Type || d == &PyMemberDescr_Type || d == library().enum_property;
    if (!computed &&
        !(PyType_IsSubtype(d, &PyProperty_Type) && std::string_view(d->tp_name) == "DynamicClassAttribute"))
      return tr.attributes.bind_descriptor(descr, where, this, t, name);
  }
  Ref found = Ref::steal(native::attr(Ground::pure(this), value.get(), name));
  if (!found) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) tr.raise_current();
    PyErr_Clear();
    return nullptr;
  }
  return tr.from_python(std::move(found), Ground::pure(this));
}

Variable* ConstantVariable::call_method(Translator& tr, const char* name, Args& args) {
  if (PyUnicode_Check(value.get()) && args.size() == 1 && std::string_view(name) == "join") {
    Variable* parts = tr.force(args[0]);
    if (PyObject* c = constant_of(parts); c && !Py_TYPE(c)->tp_iter && !PySequence_Check(c))
      tr.raise(PyExc_TypeError, "can only join an iterable");
    args.pos[0] = tr.list(tr.as_sequence(parts));
  }
  if (std::string_view(name) == "__iter__" && args.size() == 0 && args.kw.empty()) return iter(tr);
  for (const char* changes : {"__setattr__", "__delattr__", "__setstate__"})  // numbers and texts of own classes
    if (std::string_view(name) == changes && !is_fixed_type(type())) return nullptr;
  Ref method = Ref::steal(native::attr(Ground::pure(this), value.get(), name));
  if (!method) {
    PyErr_Clear();
    return nullptr;
  }
  return tr.real.call_pure(method.get(), args);
}

Variable* ConstantVariable::getitem(Translator& tr, Variable* key) {
  if (Variable* v = own_method(tr, this, "__getitem__", {key})) return v;
  Ref k = tr.real.to_python(key);
  Ref r = Ref::steal(PyObject_GetItem(value.get(), k.get()));
  if (!r) tr.raise_current();
  return tr.from_python(std::move(r), Ground::pure(this, key));
}

bool ConstantVariable::contains(Translator& tr, Variable* item) {
  if (Variable* v = own_method(tr, this, "__contains__", {item})) return tr.truth(v);
  if (PyUnicode_Check(value.get()) && !tr.real.is_python_constant(item)) {
    Variable* part = content(tr.force(item));
    if (PyObject* text = constant_of(part); text && PyUnicode_Check(text))
      item = part;
    else if (!part->is(Kind::Host))
      tr.raise(PyExc_TypeError, "'in <string>' requires string as left operand, not " + tr.name_of(item->type()));
  }
  if (!tr.real.is_python_constant(item)) return Variable::contains(tr, item);
  Ref k = tr.real.to_python(item);
  int r = PySequence_Contains(value.get(), k.get());
  if (r < 0) tr.raise_current();
  return r == 1;
}

std::vector<Variable*> ConstantVariable::items(Translator& tr) {
  if (PyFrozenSet_Check(value.get())) tr.segment().here_only = SetVariable::kOrder;
  for (const char* method : {"__iter__", "__getitem__"})
    if (PyObject* own =
            is_fixed_type(type()) ? nullptr : tr.attributes.lookup_on_type(type(), tr.intern(method), nullptr);
        own && PyFunction_Check(own))
      tr.unsupported("iteration over " + describe());
  Ref all = Ref::steal(PySequence_Tuple(value.get()));
  if (!all) tr.raise_current();
  std::vector<Variable*> out;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(all.get()); ++i)
    out.push_back(tr.from_python(Ref::borrow(PyTuple_GET_ITEM(all.get(), i)), Ground::pure(this)));
  return out;
}

Variable* ConstantVariable::iter(Translator& tr) {
  if (PyRange_Check(value.get())) {
    auto attr = [&](const char* n) {
      Ref a = Ref::steal(native::attr(Ground::pure(this), value.get(), n));
      return PyLong_AsLongLong(a.get());
    };
    Py_ssize_t n = PyObject_Length(value.get());
    int64_t start = attr("start"), step = attr("step");
    if (PyErr_Occurred()) tr.raise_current();
    int64_t length, end;
    bool narrow =
        !__builtin_mul_overflow(step, static_cast<int64_t>(n), &length) && !__builtin_add_overflow(start, length, &end);
    if (narrow) return tr.make<RangeIterator>(start, step, n);
  }
  if (Variable* v = own_method(tr, this, "__iter__", {})) return tr.force(v);
  if (!is_fixed_type(type()) && !Py_TYPE(value.get())->tp_iter)
    if (tr.attributes.lookup_on_type(type(), tr.intern("__getitem__"), nullptr))
      return tr.make<CallIterator>(this, nullptr);
  if (!Py_TYPE(value.get())->tp_iter && !PySequence_Check(value.get())) return Variable::iter(tr);
  return tr.make<SequenceIterator>(this, items(tr));
}

bool ConstantVariable::has_len(Translator&) {
  PyTypeObject* t = type();
  return (t->tp_as_sequence && t->tp_as_sequence->sq_length) || (t->tp_as_mapping && t->tp_as_mapping->mp_length);
}

int64_t ConstantVariable::len(Translator& tr) {
  if (Variable* v = own_method(tr, this, "__len__", {})) {
    PyObject* own = constant_of(tr.force(v));
    int overflow = 0;
    long long size = own && PyLong_Check(own) ? PyLong_AsLongLongAndOverflow(own, &overflow) : -1;
    if (size < 0 || overflow) tr.unsupported("__len__ that does not return a size");
    return size;
  }
  Py_ssize_t n = PyObject_Length(value.get());
  if (n < 0) tr.raise_current();
  return n;
}

bool ConstantVariable::truth(Translator& tr) {
  if (Variable* v = own_method(tr, this, "__bool__", {})) {
    if (tr.force(v)->type() != &PyBool_Type) tr.unsupported("__bool__ that does not return a bool");
    return tr.truth(v);
  }
  PyNumberMethods* numbers = type()->tp_as_number;
  if (!(numbers && numbers->nb_bool) && has_len(tr)) return len(tr) != 0;
  int r = PyObject_IsTrue(value.get());
  if (r < 0) tr.raise_current();
  return r == 1;
}

Ref ConstantVariable::hash_key(Translator& tr) {
  for (const char* asked : {"__hash__", "__eq__"}) {
    SourceId at;
    PyObject* f = is_fixed_type(type()) ? nullptr : tr.attributes.lookup_on_type(type(), tr.intern(asked), &at);
    if (f && PyFunction_Check(f) && !of_library(f))
      tr.unsupported("a key that " + describe() + " is, whose class compares by code of its own");
    if (f && at.valid()) tr.guard_identity(at, f);
  }
  if (PyObject_Hash(value.get()) == -1) tr.raise_current();
  return value;
}

Reg ConstantVariable::build(Codegen& cg) { return cg.constant(value.get()); }

Variable* SliceVariable::getattr(Translator& tr, PyObject* name) {
  static const char* names[] = {"start", "stop", "step"};
  for (int i = 0; i < 3; ++i)
    if (PyUnicode_CompareWithASCIIString(name, names[i]) == 0) return parts[i];
  return Variable::getattr(tr, name);
}

Variable* SliceVariable::call_method(Translator& tr, const char* name, Args& args) {
  if (std::string_view(name) != "indices" || !tr.real.is_python_constant(this)) return nullptr;
  Ref method = Ref::steal(native::attr(Ground::pure(this), tr.real.to_python(this).get(), name));
  return tr.real.call_pure(method.get(), args);
}

Reg SliceVariable::build(Codegen& cg) {
  return cg.recipe.make(StepKind::Slice, {cg.reg(parts[0]), cg.reg(parts[1]), cg.reg(parts[2])});
}

PyTypeObject* SymVariable::type() const {
  PyTypeObject* t = Py_TYPE(value.get());
  return t == library().sym_int ? &PyLong_Type : t == library().sym_float ? &PyFloat_Type : &PyBool_Type;
}

Variable* SymVariable::getattr(Translator& tr, PyObject* name) {
  if (PyUnicode_CompareWithASCIIString(name, "__class__") == 0)
    return tr.global_object(reinterpret_cast<PyObject*>(type()), Ground::pure(this));
  return specialise(tr)->getattr(tr, name);
}

bool SymVariable::truth(Translator& tr) {
  int r = PyObject_IsTrue(value.get());
  if (r < 0) tr.raise_current();
  return r == 1;
}

Variable* SymVariable::specialise(Translator& tr) {
  PyTypeObject* t = Py_TYPE(value.get());
  if (t == library().sym_bool) return tr.boolean(truth(tr), Ground::pure(this));
  Ref n = Ref::steal(t == library().sym_float ? PyNumber_Float(value.get()) : PyNumber_Long(value.get()));
  if (!n) tr.raise_current();
  return tr.constant(n, Ground::pure(this));
}

Reg SymVariable::build(Codegen& cg) {
  if (cg.tr.tracer().depends_on_data(value.get())) {
    // The run hands it out in a tensor.
    static PyObject *scalar = native::attr(Ground::fixed(), library().torch, "scalar_tensor"),
                    *int64 = native::attr(Ground::fixed(), library().torch, "int64");
    Variable* number = cg.tr.from_python(Ref::steal(cg.tr.tracer().as_integer(value.get())), Ground::pure(this));
    Variable* t = cg.tr.real.call_torch(
        scalar, Args{{number}, {{cg.tr.intern("dtype"), cg.tr.constant(int64, Ground::pure(this))}}});
    return cg.recipe.make(StepKind::Call, {cg.constant(reinterpret_cast<PyObject*>(type())), cg.reg(t)});
  }
  return cg.recipe.integer(cg.tr.recipe_integer(value.get()), type() == &PyBool_Type);
}

Ref SymVariable::hash_key(Translator& tr) {
  // A key must have one value: the size is specialised.
  Ref n = Ref::steal(Py_TYPE(value.get()) == library().sym_float ? PyNumber_Float(value.get())
                                                                 : PyNumber_Long(value.get()));
  if (!n) tr.raise_current();
  return n;
}

}  // namespace braze::capture
