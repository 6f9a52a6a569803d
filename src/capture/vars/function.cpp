#include "capture/vars/function.h"

#include <string_view>
#include <unordered_set>

#include "capture/builtins/builtins.h"
#include "capture/builtins/signature_errors.h"
#include "capture/cpython/function_fields.h"
#include "capture/eval/calls.h"
#include "capture/eval/library_objects.h"
#include "capture/eval/scalar_operands.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"

namespace braze::capture {

// ---- cells ----

Variable* CellVariable::get(Translator& tr) {
  if (known) return contents;
  known = true;
  PyObject* v = PyCell_GET(real.get());
  SourceId at = tr.sources().contents(source);
  // That there is something nothing else asks, if all that happens to it is that it is passed on, or dropped.
  if (v)
    contents = tr.wrap(v, at), tr.guards().exists(at, tr.line());
  else
    tr.guards().absent(at, tr.line());
  return contents;
}

void CellVariable::set(Translator& tr, Variable* value) {
  tr.mutate();
  tr.effects.modified(this);
  known = true;
  contents = value;
}

Variable* CellVariable::getattr(Translator& tr, PyObject* name) {
  if (named(name, "cell_contents")) {
    if (Variable* v = get(tr)) return v;
    tr.raise(PyExc_ValueError, "Cell is empty");
  }
  return Variable::getattr(tr, name);
}

Reg CellVariable::build(Codegen& cg) {
  // Made empty and filled at once: a function in the cell may have this cell in its closure.
  Reg r = cg.recipe.make(StepKind::NewCell, {});
  reg = r;
  emitting = false;
  if (contents) cg.recipe.effect(StepKind::CellSet, {r, cg.reg(contents)});
  return r;
}

// ---- functions ----

std::string FunctionVariable::describe() const {
  PyObject* name = code_object()->co_qualname;
  return std::string("function ") + PyUnicode_AsUTF8(name);
}

PyCodeObject* FunctionVariable::code_object() const {
  return reinterpret_cast<PyCodeObject*>(real ? PyFunction_GET_CODE(real.get()) : code.get());
}

Variable* FunctionVariable::call(Translator& tr, Args& args) { return inline_function(tr, this, args, false); }

Variable* FunctionVariable::getattr(Translator& tr, PyObject* name) {
  for (auto& [k, v] : attributes)
    if (PyUnicode_Compare(k, name) == 0) return v;
  if (named(name, "__class__"))
    return tr.global_object(reinterpret_cast<PyObject*>(&PyFunction_Type), Ground::pure(this));
  if (real) {
    if (named(name, "__code__")) {
      tr.guards().identity(tr.sources().derived(SourceKind::FuncCode, source), PyFunction_GET_CODE(real.get()),
                           tr.line());
      return tr.global_object(PyFunction_GET_CODE(real.get()), Ground::pure(this));
    }
    auto derived = [&](const char* attr, SourceKind kind, PyObject* value) -> Variable* {
      if (!named(name, attr)) return nullptr;
      SourceId at = tr.sources().derived(kind, source);
      if (value) return tr.wrap(value, at);
      tr.guards().absent(at, tr.line());
      return tr.none();
    };
    if (Variable* v = derived("__defaults__", SourceKind::FuncDefaults, PyFunction_GET_DEFAULTS(real.get()))) return v;
    if (Variable* v = derived("__kwdefaults__", SourceKind::FuncKwDefaults, PyFunction_GET_KW_DEFAULTS(real.get())))
      return v;
    if (Variable* v = derived("__globals__", SourceKind::FuncGlobals, PyFunction_GET_GLOBALS(real.get()))) return v;
    if (Variable* v = derived("__closure__", SourceKind::FuncClosure, PyFunction_GET_CLOSURE(real.get()))) return v;
    for (auto [attr, offset] : cpython::kFunctionFields)
      if (named(name, attr)) {
        SourceId at = tr.sources().add(SourceKind::Slot, source, static_cast<int64_t>(offset), name);
        PyObject* value = *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(real.get()) + offset);
        if (value) return tr.guards().exists(at, tr.line()), tr.wrap(value, at);
        tr.guards().absent(at, tr.line());
        return tr.none();
      }
    PyObject* field = native::type_attr(Ground::fixed(), &PyFunction_Type, name);
    for (auto [attr, offset] : cpython::kFunctionFieldsMadeLate)
      if (named(name, attr)) {
        auto field_now = [&] { return *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(real.get()) + offset); };
        PyObject* kept = field_now();
        const bool annotations_of = named(name, "__annotations__");
        if (!kept || (PyTuple_Check(kept) && annotations_of)) {
          if (!annotations_of || cpython::kAnnotationsRunCode)
            tr.unsupported(std::string("attribute '") + attr + "' of a function");
          if (!Ref::steal(native::attr(Ground::made(), real.get(), name))) tr.raise_current();
          kept = field_now();
        }
        SourceId at = tr.sources().add(SourceKind::Slot, source, static_cast<int64_t>(offset), name);
        tr.guards().exists(at, tr.line());
        return tr.wrap(kept, at);
      }
    if (named(name, "__dict__")) return own_dict(tr);
    if (dict_) {
      if (Variable* v = dict_->get(tr, name)) return v;
      return field ? new_builtin(tr, field, name) : nullptr;
    }
    PyObject* d = reinterpret_cast<PyFunctionObject*>(real.get())->func_dict;
    SourceId at = tr.sources().instance_attr(source, name);
    if (PyObject* v = d ? native::item(Ground::guarded(source), d, name) : nullptr) {
      tr.guards().exists(at, tr.line());
      return tr.wrap(v, at);
    }
    if (PyObject* descr = native::type_attr(Ground::fixed(), &PyFunction_Type, name))
      return Py_TYPE(descr)->tp_descr_get ? new_builtin(tr, descr, name)
                                          : tr.from_python(Ref::borrow(descr), Ground::pure(this));
    tr.guards().absent(at, tr.line());
    return nullptr;
  }
  auto* co = code_object();
  if (named(name, "__name__")) return tr.constant(co->co_name, Ground::pure(this));
  if (named(name, "__qualname__")) return tr.constant(co->co_qualname, Ground::pure(this));
  if (named(name, "__code__")) return tr.global_object(code.get(), Ground::pure(this));
  if (named(name, "__doc__")) {
    PyObject* doc = cpython::docstring(co);
    return doc ? tr.constant(doc, Ground::pure(this)) : tr.none();
  }
  if (named(name, "__module__")) {
    Variable* m =
        tr.force(tr.wrap(globals, tr.sources().constant(globals)))->as<DictVariable>()->get(tr, tr.intern("__name__"));
    return m ? m : tr.none();
  }
  if (named(name, "__defaults__")) return defaults ? defaults : tr.none();
  if (named(name, "__kwdefaults__")) return kwdefaults ? kwdefaults : tr.none();
  if (named(name, "__closure__")) return closure ? closure : tr.none();
  if (named(name, "__annotations__")) {
    if (!annotations && annotate && !is_none(tr.force(annotate)))
      annotations = tr.call(annotate, {tr.integer(1, Ground::fixed())});  // as values
    return annotations ? annotations : annotations = tr.dict();
  }
  if (named(name, "__annotate__") && native::type_attr(Ground::fixed(), &PyFunction_Type, name))
    return annotate ? annotate : tr.none();
  if (named(name, "__type_params__")) return tr.tuple({});
  if (named(name, "__builtins__")) return tr.global_object(builtins, Ground::pure(this));
  if (named(name, "__dict__")) return own_dict(tr);
  if (Variable* v = dict_ ? dict_->get(tr, name) : nullptr) return v;
  if (PyObject* descr = native::type_attr(Ground::fixed(), &PyFunction_Type, name)) return new_builtin(tr, descr, name);
  return nullptr;
}

Variable* FunctionVariable::new_builtin(Translator& tr, PyObject* descr, PyObject* name) {
  return tr.make<BuiltinMethodVariable>(this, descr, &PyFunction_Type, name);
}

void FunctionVariable::setattr(Translator& tr, PyObject* name, Variable* value) {
  if (real || !value) {
    if (native::type_attr(Ground::fixed(), &PyFunction_Type, name)) return Variable::setattr(tr, name, value);
    if (value) return own_dict(tr)->set(tr, name, value);
    if (!own_dict(tr)->remove(tr, tr.constant(name, Ground::pure(this, value))))
      tr.raise(PyExc_AttributeError,
               std::string("'function' object has no attribute '") + PyUnicode_AsUTF8(name) + "'");
    return;
  }
  auto refuse = [&](const char* attribute, PyTypeObject* type) {
    PyTypeObject* t = tr.force(value)->type();
    if (named(name, attribute) && t != Py_TYPE(Py_None) && !PyType_IsSubtype(t, type))
      tr.raise(PyExc_TypeError, std::string(attribute) + " must be set to a " + type->tp_name + " object");
  };
  refuse("__defaults__", &PyTuple_Type);
  refuse("__kwdefaults__", &PyDict_Type);
  tr.mutate();
  tr.keep(Ref::borrow(name));
  if (named(name, "__defaults__")) {
    defaults = value;
    return;
  }
  if (named(name, "__kwdefaults__")) {
    kwdefaults = value;
    return;
  }
  if (named(name, "__annotations__")) {
    annotations = value;
    annotate = nullptr;
    return;
  }
  if (named(name, "__annotate__") && native::type_attr(Ground::fixed(), &PyFunction_Type, name)) {
    annotate = value;
    if (!is_none(tr.force(value))) annotations = nullptr;
    return;
  }
  bool field = false;
  for (const char* n : {"__name__", "__qualname__", "__doc__", "__module__", "__type_params__"})
    field = field || named(name, n);
  if (!field) {
    if (native::type_attr(Ground::fixed(), &PyFunction_Type, name)) return Variable::setattr(tr, name, value);
    return own_dict(tr)->set(tr, name, value);
  }
  for (auto& [k, v] : attributes)
    if (PyUnicode_Compare(k, name) == 0) {
      v = value;
      return;
    }
  attributes.emplace_back(name, value);
}

DictVariable* FunctionVariable::own_dict(Translator& tr) {
  if (dict_) return dict_;
  if (!real) return dict_ = instance_dict_of(tr, this);
  Ref d = Ref::steal(PyObject_GenericGetDict(real.get(), nullptr));
  return dict_ = dict_behind(tr, tr.wrap(d.get(), tr.sources().instance_dict(source)));
}

Variable* FunctionVariable::call_method(Translator& tr, const char* name, Args& args) {
  std::string_view n = name;
  if (n == "__call__") return tr.call(this, args);
  if (n == "__get__" && (args.size() == 1 || args.size() == 2)) {
    if (is_none(tr.force(args[0]))) return args.size() == 2 ? this : nullptr;
    return tr.make<BoundMethodVariable>(this, args[0]);
  }
  return nullptr;
}

Ref FunctionVariable::hash_key(Translator& tr) {
  if (real) {
    if (!anchored) tr.guard_identity(source, real.get());
    return real;
  }
  return Variable::hash_key(tr);
}

Reg FunctionVariable::build(Codegen& cg) {
  if (annotate && annotations) throw CannotRebuild{this, "a function whose annotations were made"};
  Reg name = kNoReg;
  std::vector<std::pair<PyObject*, Variable*>> rest;
  for (auto& [k, v] : attributes)
    if (named(k, "__qualname__"))
      name = cg.reg(v);
    else
      rest.emplace_back(k, v);
  Reg f = cg.recipe.make(StepKind::Function, {cg.constant(code.get()), cg.constant(globals), name, cg.reg(defaults),
                                              cg.reg(kwdefaults), cg.reg(closure), cg.reg(annotations)});
  reg = f;  // an attribute may refer to the function
  emitting = false;
  if (annotate) cg.recipe.effect(StepKind::SetAttr, {f, cg.reg(annotate)}, cg.tr.intern("__annotate__"));
  for (auto& [k, v] : rest) cg.recipe.effect(StepKind::SetAttr, {f, cg.reg(v)}, k);
  if (dict_)
    for (const auto& e : dict_->entries(cg.tr)) {
      PyObject* key = constant_of(e.key);
      if (!key || !PyUnicode_Check(key)) throw CannotRebuild{this, "a function's dict with keys that are no strings"};
      cg.recipe.effect(StepKind::SetAttr, {f, cg.reg(e.value)}, key);
    }
  return f;
}

// ---- bound methods ----

std::string BoundMethodVariable::describe() const { return "method " + function->describe(); }

Variable* BoundMethodVariable::getattr(Translator& tr, PyObject* name) {
  if (named(name, "__func__")) return function;
  if (named(name, "__self__")) return self;
  if (named(name, "__call__")) return this;
  // What methods have themselves is not the function's.
  if (!named(name, "__doc__") && native::type_attr(Ground::fixed(), &PyMethod_Type, name))
    return Variable::getattr(tr, name);
  return tr.getattr_or_null(function, name);
}

Ref BoundMethodVariable::hash_key(Translator& tr) {
  // Methods are told apart by which object they are of, whatever its class says of hashes and equality.
  Variable* of = tr.force(self);
  auto* object = of->is(Kind::Object) || of->is(Kind::Module) ? of->as<ObjectVariable>() : nullptr;
  if (object && object->real) tr.guard_identity(object->source, object->real.get());
  Ref f = tr.force(function)->hash_key(tr), s = object && object->real ? object->real : of->hash_key(tr);
  Ref m = Ref::steal(PyMethod_New(f.get(), s.get()));
  return m;
}

Reg BoundMethodVariable::build(Codegen& cg) {
  return cg.recipe.make(StepKind::BoundMethod, {cg.reg(function), cg.reg(self)});
}

std::string BuiltinMethodVariable::describe() const {
  return std::string("method '") + PyUnicode_AsUTF8(name) + "' of '" + owner->tp_name + "' objects";
}

Variable* BuiltinMethodVariable::getattr(Translator& tr, PyObject* attr) {
  if (named(attr, "__self__")) return self;
  if (named(attr, "__name__")) return tr.constant(name, Ground::pure(this));
  if (named(attr, "__module__")) return tr.none();
  if (named(attr, "__doc__") || named(attr, "__qualname__")) {
    Ref v = Ref::steal(native::attr(Ground::fixed(), descr.get(), attr));
    if (!v) tr.raise_current();
    return tr.from_python(std::move(v), Ground::pure(this));
  }
  if (named(attr, "__call__")) return this;
  if (native::type_attr(Ground::conservative(), type(), attr))
    tr.unsupported(std::string("attribute '") + PyUnicode_AsUTF8(attr) + "' of " + describe());
  return nullptr;
}

Variable* BuiltinMethodVariable::call(Translator& tr, Args& args) {
  return call_builtin_method(tr, self, owner, name, args);
}

Reg BuiltinMethodVariable::build(Codegen& cg) {
  // Found by super() or shadowed, it is not what the object's attribute would give.
  PyTypeObject* d = Py_TYPE(descr.get());
  if (d == &PyMethodDescr_Type || d == &PyWrapperDescr_Type) {
    Ref bind = Ref::steal(native::attr(Ground::fixed(), descr.get(), "__get__"));
    return cg.recipe.make(StepKind::Call, {cg.constant(bind.get()), cg.reg(self),
                                           cg.constant(reinterpret_cast<PyObject*>(self->type()))});
  }
  static PyObject* getattr = native::builtin("getattr");
  return cg.recipe.make(StepKind::Call, {cg.constant(getattr), cg.reg(self), cg.constant(name)});
}

// What a method gives that returns "self" where self is an object of a subclass: the object where it was changed in
// place, else its content as an object of its own.
static Variable* content_given(Translator& tr, Variable* self, Variable* content) {
  if (content->is(Kind::Tuple)) return tr.tuple(content->as<TupleVariable>()->elements);
  if (!content->is(Kind::Set) || content->type() != &PyFrozenSet_Type) return self;
  return content->as<SetVariable>()->copy(tr, &PyFrozenSet_Type);
}

Variable* get_through(Translator& tr, PyObject* descr, Args& args) {
  bool of_c = Py_TYPE(descr) == &PyGetSetDescr_Type || Py_TYPE(descr) == &PyMemberDescr_Type;
  if (!of_c || !args.kw.empty() || args.size() < 1 || args.size() > 2) return nullptr;
  Variable* object = tr.force(args[0]);
  PyObject* name = reinterpret_cast<PyDescrObject*>(descr)->d_name;
  return !is_none(object) && native::type_attr(Ground::conservative(), object->type(), name) == descr
             ? tr.getattr(object, name)
             : nullptr;
}

Variable* call_builtin_method(Translator& tr, Variable* self, PyTypeObject* owner, PyObject* name, Args& args) {
  self = tr.force(self);
  const char* n = PyUnicode_AsUTF8(name);
  if (PyObject* raw = self->is(Kind::Tensor) ? native::type_attr(Ground::fixed(), owner, name) : nullptr) {
    Args all{{self}, args.kw};
    all.pos.insert(all.pos.end(), args.pos.begin(), args.pos.end());
    if (Variable* v = call_with_open_scalar(tr, raw, all)) return v;
  }
  for (Variable*& a : args.pos) a = tr.force(a);
  if (PyObject* descr = self->is(Kind::Real) && std::string_view(n) == "__get__" ? self->as_constant() : nullptr)
    if (Variable* v = get_through(tr, descr, args)) return v;
  if (PyObject* raw = native::type_attr(Ground::fixed(), owner, name)) {
    if (BuiltinHandler handler = find_builtin(raw)) {
      Args all{{self}, args.kw};
      all.pos.insert(all.pos.end(), args.pos.begin(), args.pos.end());
      if (Variable* v = handler(tr, all)) return v;
    }
    if (const char* polyfill = find_polyfill(raw)) return tr.call(tr.real.polyfill(polyfill), args);
  }
  Variable* target = self;
  if (self->is(Kind::Object) && owner != &PyBaseObject_Type && self->as<ObjectVariable>()->base &&
      !self->as<ObjectVariable>()->is_exception())
    target = self->as<ObjectVariable>()->base;
  // The content of an object of another C class is not known.
  bool unknown = target->is(Kind::Object) && owner != &PyBaseObject_Type && owner != &PyType_Type &&
                 !target->as<ObjectVariable>()->base && owner != braze::capture::library().simple_namespace;
  if (unknown)
    tr.unsupported(Reason::UnknownFunction, std::string("method '") + n + "' of '" + owner->tp_name + "' objects");
  if (target->is(Kind::Dict) && target->as<DictVariable>()->is_ordered_dict()) {
    // dict's own methods leave the order that an OrderedDict keeps for itself behind; its copies are of the object's
    // class.
    static const std::unordered_set<std::string_view> changes{"__setitem__", "__delitem__", "pop",        "popitem",
                                                              "clear",       "update",      "setdefault", "__init__",
                                                              "__ior__",     "__or__"};
    if ((owner == &PyDict_Type && changes.count(n)) || (target != self && std::string_view(n) == "copy"))
      tr.unsupported(Reason::UnknownFunction,
                     std::string("method '") + n + "' of '" + owner->tp_name + "' objects on an OrderedDict");
  }
  // Copies are of the object's class where that is a subclass of defaultdict, and of dict where dict's own method makes
  // them.
  if (target->is(Kind::Dict)) {
    static const std::unordered_set<std::string_view> copies{"copy", "__copy__", "__or__", "__ror__"};
    const bool subclass = target != self && PyType_IsSubtype(self->type(), braze::capture::library().default_dict);
    if (copies.count(n) && (subclass || (owner == &PyDict_Type && target->type() != &PyDict_Type)))
      tr.unsupported(Reason::UnknownFunction, std::string("method '") + n + "' of '" + owner->tp_name +
                                                  "' objects on a '" + self->type()->tp_name + "'");
  }
  if (PyObject* cls = target->is(Kind::Real) ? target->as_constant() : nullptr;
      cls && PyType_Check(cls) && is_constant_type(reinterpret_cast<PyTypeObject*>(cls))) {
    Ref method = Ref::steal(native::attr(Ground::fixed(), cls, name));
    if (method && PyCFunction_Check(method.get()) && PyCFunction_GET_SELF(method.get()) == cls)
      return tr.real.call_pure(method.get(), args);
    PyErr_Clear();
  }
  bool container = target->is(Kind::List) || target->is(Kind::Tuple) || target->is(Kind::Dict) ||
                   target->is(Kind::Set) || target->is(Kind::DictView) || target->is(Kind::Iterator) ||
                   target->is(Kind::Generator);
  if (Variable* v = target->call_method(tr, n, args)) {
    if (PyObject* raw =
            container && !args.kw.empty() && target == self ? native::type_attr(Ground::fixed(), owner, name) : nullptr;
        raw && (Py_TYPE(raw) == &PyMethodDescr_Type || Py_TYPE(raw) == &PyWrapperDescr_Type))
      raise_if_miscalled(tr, raw, owner, args);
    if (container && !args.kw.empty())
      tr.unsupported(Reason::UnknownFunction, std::string("keyword arguments of ") + n + "()");
    if (v == target && target != self) return content_given(tr, self, target);
    return v;
  }
  if (PyObject* raw = target == self ? native::type_attr(Ground::fixed(), owner, name) : nullptr;
      raw && (Py_TYPE(raw) == &PyMethodDescr_Type || Py_TYPE(raw) == &PyWrapperDescr_Type))
    raise_if_miscalled(tr, raw, owner, args);
  tr.unsupported(Reason::UnknownFunction, std::string("method '") + n + "' of '" + owner->tp_name + "' objects");
}

// ---- partial ----

PyTypeObject* PartialVariable::type() const { return braze::capture::library().partial; }

void PartialVariable::merge(Translator& tr, Args& call) const {
  call.pos.insert(call.pos.begin(), args->elements.begin(), args->elements.end());
  std::vector<std::pair<PyObject*, Variable*>> own;
  for (const auto& e : keywords->entries(tr)) {
    PyObject* key = constant_of(e.key);
    if (!key || !PyUnicode_Check(key)) tr.unsupported("keyword arguments whose names are no strings");
    own.emplace_back(tr.keep(Ref::borrow(key)), e.value);
  }
  for (auto& [k, v] : call.kw) {
    bool found = false;
    for (auto& [k2, v2] : own)
      if (PyUnicode_Compare(k, k2) == 0) {
        v2 = v;
        found = true;
      }
    if (!found) own.emplace_back(k, v);
  }
  call.kw = std::move(own);
}

void PartialVariable::setattr(Translator& tr, PyObject* name, Variable* value) {
  bool field = named(name, "func") || named(name, "args") || named(name, "keywords") || named(name, "__dict__") ||
               named(name, "__class__");
  if (source.valid() || !value || field) return Variable::setattr(tr, name, value);
  tr.mutate();
  tr.keep(Ref::borrow(name));
  for (auto& [k, v] : attributes)
    if (PyUnicode_Compare(k, name) == 0) {
      v = value;
      return;
    }
  attributes.emplace_back(name, value);
}

Variable* PartialVariable::getattr(Translator& tr, PyObject* name) {
  for (auto& [k, v] : attributes)
    if (PyUnicode_Compare(k, name) == 0) return v;
  if (named(name, "func")) return function;
  if (named(name, "args")) return args;
  if (named(name, "keywords")) return keywords;
  if (named(name, "__class__")) return Variable::getattr(tr, name);
  if (source.valid()) {
    if (native::type_attr(Ground::fixed(), type(), name)) tr.unsupported("attribute of a functools.partial");
    Ref own = Ref::steal(PyObject_GenericGetDict(real.get(), nullptr));
    if (!own) tr.raise_current();
    return dict_behind(tr, tr.wrap(own.get(), tr.sources().instance_dict(source)))->get(tr, name);
  }
  PyObject* of_class = native::type_attr(Ground::fixed(), type(), name);
  if (!of_class) return nullptr;
  if (Py_TYPE(of_class) == &PyMethodDescr_Type || Py_TYPE(of_class) == &PyWrapperDescr_Type)
    return tr.make<BuiltinMethodVariable>(this, of_class, type(), name);
  if (Py_TYPE(of_class) == &PyGetSetDescr_Type || Py_TYPE(of_class) == &PyMemberDescr_Type)
    tr.unsupported("attribute of a functools.partial");
  Ref v = Ref::steal(native::attr(Ground::fixed(), reinterpret_cast<PyObject*>(type()), name));
  if (!v) tr.raise_current();
  return tr.global_object(tr.keep(std::move(v)), Ground::pure(this));
}

Reg PartialVariable::build(Codegen& cg) {
  if (keywords->reg != kNoReg) throw CannotRebuild{this, "a functools.partial whose keywords were built before it"};
  std::vector<Reg> regs{cg.constant(reinterpret_cast<PyObject*>(braze::capture::library().partial)), cg.reg(function)};
  for (Variable* a : args->elements) regs.push_back(cg.reg(a));
  // Its keywords are a dict of its own, which it copies from what it is called with.
  std::vector<Ref> named_ones;
  std::vector<std::pair<Variable*, Variable*>> others;
  for (const auto& e : keywords->entries(cg.tr)) {
    PyObject* key = constant_of(e.key);
    if (!key || !PyUnicode_CheckExact(key) || !others.empty()) {
      others.emplace_back(e.key, e.value);
      continue;
    }
    regs.push_back(cg.reg(e.value));
    named_ones.push_back(Ref::borrow(key));
  }
  Ref names = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(named_ones.size())));
  for (size_t i = 0; i < named_ones.size(); ++i)
    PyTuple_SET_ITEM(names.get(), static_cast<Py_ssize_t>(i), named_ones[i].release());
  reg = cg.recipe.make(StepKind::Call, regs, named_ones.empty() ? nullptr : names.get());
  // The dict that the code may hold, too, is the one in the partial.
  static PyObject* getattr = native::builtin("getattr");
  keywords->reg = cg.recipe.make(StepKind::Call, {cg.constant(getattr), reg, cg.constant(cg.tr.intern("keywords"))});
  for (auto& [k, v] : others) cg.recipe.effect(StepKind::SetItem, {keywords->reg, cg.reg(k), cg.reg(v)});
  emitting = false;
  for (auto& [k, v] : attributes) cg.recipe.effect(StepKind::SetAttr, {reg, cg.reg(v)}, k);
  return reg;
}

}  // namespace braze::capture
