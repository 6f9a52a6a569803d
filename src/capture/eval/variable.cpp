#include "capture/eval/variable.h"

#include "capture/cpython/iterators.h"
#include "capture/cpython/texts.h"
#include "capture/eval/library_objects.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"

namespace braze::capture {

Variable* Args::take_kw(const char* name) {
  for (size_t i = 0; i < kw.size(); ++i)
    if (PyUnicode_CompareWithASCIIString(kw[i].first, name) == 0) {
      Variable* v = kw[i].second;
      kw.erase(kw.begin() + static_cast<long>(i));
      return v;
    }
  return nullptr;
}

std::string Variable::describe() const { return std::string("a value of type ") + type()->tp_name; }

Variable* Variable::getattr(Translator& tr, PyObject* name) {
  PyTypeObject* t = type();
  if (PyUnicode_CompareWithASCIIString(name, "__class__") == 0)
    return tr.global_object(reinterpret_cast<PyObject*>(t), Ground::pure(this));
  SourceId where;
  PyObject* descr = tr.attributes.lookup_on_type(t, name, &where);
  return descr ? tr.attributes.bind_descriptor(descr, where, this, t, name) : nullptr;
}

void Variable::setattr(Translator& tr, PyObject* name, Variable*) {
  if (is(Kind::Constant) && !(type()->tp_flags & Py_TPFLAGS_HEAPTYPE))
    tr.unsupported(Reason::RaisedException, "an attribute of " + describe() + " is set");
  tr.unsupported(Reason::UnsupportedMutation,
                 "attribute '" + std::string(PyUnicode_AsUTF8(name)) + "' of " + describe() + " is set");
}

Variable* Variable::call(Translator& tr, Args&) {
  // With the guard that the class does not learn to be called.
  if (!is_fixed_type(type())) tr.attributes.lookup_on_type(type(), tr.intern("__call__"), nullptr);
  if (!type()->tp_call) tr.raise(PyExc_TypeError, std::string("'") + tr.name_of(type()) + "' object is not callable");
  tr.unsupported(Reason::UnknownFunction, "a call of " + describe());
}
Variable* Variable::call_method(Translator&, const char*, Args&) { return nullptr; }
Variable* Variable::getitem(Translator& tr, Variable*) {
  tr.raise(PyExc_TypeError, std::string("'") + tr.name_of(type()) + "' object is not subscriptable");
}
void Variable::setitem(Translator& tr, Variable*, Variable*) {
  tr.raise(PyExc_TypeError, std::string("'") + tr.name_of(type()) + "' object does not support item assignment");
}
void Variable::delitem(Translator& tr, Variable*) {
  if (is(Kind::Tensor)) tr.raise(PyExc_TypeError, "Tensor does not support deleting items");
  if (type()->tp_as_sequence) tr.unsupported(Reason::RaisedException, "an item of " + describe() + " is deleted");
  tr.raise(PyExc_TypeError, std::string("'") + tr.name_of(type()) + "' object does not support item deletion");
}
bool Variable::contains(Translator& tr, Variable* item) {
  PyTypeObject* t = type();
  if (!(t->tp_as_sequence && t->tp_as_sequence->sq_contains) && !tr.can_iterate(this) &&
      !tr.attributes.lookup_on_type(t, tr.intern("__contains__"), nullptr))
    tr.raise(PyExc_TypeError, std::string("argument of type '") + tr.name_of(t) + cpython::kNoContainer);
  Variable* it = tr.force(tr.iter(this));  // what comes after the item stays in what gives each item once
  while (Variable* v = it->next(tr))
    if (tr.same_item(v, item)) return true;
  return false;
}
Variable* Variable::iter(Translator& tr) {
  for (const char* method : {"__iter__", "__getitem__"})
    if (!is_fixed_type(type()) && tr.attributes.lookup_on_type(type(), tr.intern(method), nullptr))
      tr.unsupported("iteration over " + describe());
  tr.raise(PyExc_TypeError, std::string("'") + tr.name_of(type()) + "' object is not iterable");
}
Variable* Variable::next(Translator& tr) {
  if (cpython::is_iterator_class(type())) tr.unsupported("the next item of " + describe());
  tr.raise(PyExc_TypeError, std::string("'") + tr.name_of(type()) + "' object is not an iterator");
}
int64_t Variable::len(Translator& tr) {
  tr.raise(PyExc_TypeError, std::string("object of type '") + tr.name_of(type()) + "' has no len()");
}
bool Variable::truth(Translator& tr) { return has_len(tr) ? len(tr) != 0 : true; }

Ref Variable::hash_key(Translator& tr) {
  if (PyObject* o = as_constant()) return Ref::borrow(o);
  if (type()->tp_hash == PyObject_HashNotImplemented)
    tr.raise(PyExc_TypeError, std::string("unhashable type: '") + tr.name_of(type()) + "'");
  tr.unsupported("the hash of " + describe());
}

std::vector<Variable*> Variable::items(Translator& tr) { return tr.rest(iter(tr)); }

Reg Variable::build(Codegen&) { throw CannotRebuild{this, describe()}; }

Reg Codegen::reg(Variable* v) {
  if (!v) return kNoReg;
  if (v->kind == Kind::Lazy) {
    auto* lazy = v->as<LazyVariable>();
    // From its own place: that another place has the same object may be what an instruction saw that is carried out
    // natively.
    Variable* met = lazy->forced;
    Reg known = met ? reg(met) : kNoReg;
    if (met && (lazy->function || !met->source.valid() || met->source == v->source)) return known;
    if (!lazy->function) return recipe.load(v->source);
    if (lazy->made == kNoReg) {
      std::vector<Reg> args{constant(lazy->function), reg(lazy->left)};
      if (lazy->right) args.push_back(reg(lazy->right));
      lazy->made = recipe.make(StepKind::Call, args);
    }
    return lazy->made;
  }
  if (v->reg != kNoReg) return v->reg;
  if (v->kind == Kind::Real && PyType_Check(v->as_constant()))
    tr.check_rebuild(reinterpret_cast<PyTypeObject*>(v->as_constant()));
  // Raised for real, an exception that was there before has a new traceback.
  if (v->source.valid() && v->kind == Kind::Object && v->as<ObjectVariable>()->is_exception() && tr.was_raised(v))
    tr.raise_natively(v, "an exception outlives the compiled code");
  if (PyObject* f = v->kind == Kind::Function ? v->as<FunctionVariable>()->real.get() : nullptr;
      f && PyFunction_GET_CLOSURE(f)) {
    PyObject* cells = PyFunction_GET_CLOSURE(f);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(cells); ++i)
      if (Variable* c = tr.standing_for(PyTuple_GET_ITEM(cells, i));
          c && c->kind == Kind::Cell && c->as<CellVariable>()->real.get() != PyTuple_GET_ITEM(cells, i))
        throw CannotRebuild{c, "a method of a class that the code defines,"};
  }
  if (v->source.valid()) return v->reg = recipe.load(v->source);
  if (v->owner && v->is_instance_dict) {
    static PyObject* get =
        native::attr(Ground::fixed(), reinterpret_cast<PyObject*>(&PyBaseObject_Type), "__getattribute__");
    static PyObject* dict = PyUnicode_InternFromString("__dict__");
    const Reg of = reg(v->owner);
    return v->reg = recipe.make(StepKind::Call, {constant(get), of, constant(dict)});
  }
  if (v->owner) return v->reg = reg(v->owner);
  if (v->emitting) throw CannotRebuild{v, "a container that contains itself"};
  if (stack_is_low()) throw CannotRebuild{v, "a value that is nested too deeply"};
  v->emitting = true;
  Reg r = v->build(*this);
  v->emitting = false;
  return v->reg = r;
}

std::vector<Reg> Codegen::regs(const std::vector<Variable*>& vs) {
  std::vector<Reg> out;
  out.reserve(vs.size());
  for (Variable* v : vs) out.push_back(reg(v));
  return out;
}

Reg Codegen::tensor(PyObject* fake) {
  for (size_t i = 0; i < outputs.size(); ++i)
    if (outputs[i] == fake) return recipe.graph_output(static_cast<int64_t>(i));
  outputs.push_back(fake);
  return recipe.graph_output(static_cast<int64_t>(outputs.size() - 1));
}

void check_loop(Translator& tr, int64_t n) {
  if (n > kMostElements) tr.unsupported("a loop over more than " + std::to_string(kMostElements) + " elements");
}

}  // namespace braze::capture
