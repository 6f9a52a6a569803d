// From Python objects to variables: what was there before the capture, and what pure functions gave while capturing.
#include <algorithm>

#include <cstddef>

#include "capture/builtins/builtins.h"
#include "capture/cpython/set_table.h"
#include "capture/eval/library_objects.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"
#include "trace/pytorch/names.h"

namespace braze::capture {

namespace {

bool says_inference(PyObject* tensor) {
  trace::WithoutTorchFunctions no_operation_of_the_programs(2);
  Ref asked = Ref::steal(PyObject_CallMethod(tensor, "is_inference", nullptr));
  if (!asked) PyErr_Clear();
  return asked.get() != Py_False;
}

// And is no view, which asks for gradients as its base does.
bool is_leaf_with_gradient(PyObject* tensor) {
  Ref needs = Ref::steal(native::of_tensor(tensor, "requires_grad")),
      leaf = Ref::steal(native::of_tensor(tensor, "is_leaf")),
      base = Ref::steal(native::of_tensor(tensor, pytorch::text(pytorch::Attribute::base)));
  if (!needs || !leaf || !base) PyErr_Clear();
  return needs.get() == Py_True && leaf.get() == Py_True && base.get() == Py_None;
}

}  // namespace

Values::Values(Translator& tr) : tr_(tr) {
  auto singleton = [&](PyObject* o) {
    arena_.push_back(std::make_unique<ConstantVariable>(o, Ground::fixed()));
    return arena_.back().get();
  };
  none_ = singleton(Py_None), true_ = singleton(Py_True), false_ = singleton(Py_False);
}

uint64_t Values::now() const { return tr_.ordinal(); }

Variable* Values::constant(PyObject* o, Ground ground) {
  if (o == Py_None) return none_;
  if (o == Py_True) return true_;
  if (o == Py_False) return false_;
  return make<ConstantVariable>(o, ground);
}

Variable* Values::integer(int64_t n, Ground ground) {
  auto [it, fresh] = integers_.try_emplace(n);
  if (fresh) it->second = make<ConstantVariable>(Ref::steal(PyLong_FromLongLong(n)).get(), ground);
  return it->second;
}

Variable* Values::string(const std::string& s, Ground ground) {
  return constant(Ref::steal(PyUnicode_FromStringAndSize(s.data(), static_cast<Py_ssize_t>(s.size()))), ground);
}

TupleVariable* Values::tuple(std::vector<Variable*> items) { return make<TupleVariable>(std::move(items)); }
Variable* Values::make_tuple(PyTypeObject* cls, std::vector<Variable*> items) {
  if (is_plain_tuple_class(tr_, cls)) return make<TupleVariable>(std::move(items), cls);
  auto* o = make<ObjectVariable>(cls);
  o->base = tuple(std::move(items));
  return o;
}
ListVariable* Values::list(std::vector<Variable*> items) { return make<ListVariable>(std::move(items)); }
DictVariable* Values::dict() { return make<DictVariable>(); }

const char* Values::intern_text(const std::string& s) { return PyUnicode_AsUTF8(intern(s.c_str())); }

PyObject* Values::intern(const char* s) {
  auto it = interned_.find(s);
  if (it != interned_.end()) return it->second;
  PyObject* o = keep(Ref::steal(PyUnicode_InternFromString(s)));
  interned_.emplace(std::string_view(PyUnicode_AsUTF8(o)), o);
  return o;
}

Variable* Values::wrap(PyObject* object, SourceId source) {
  auto [it, fresh] = by_source_.try_emplace(source.index);
  if (fresh) {
    auto* v = make<LazyVariable>(object);
    v->source = source;
    it->second = v;
  }
  return it->second;
}

Variable* Values::global_object(PyObject* o, Ground ground) {
  if (is_constant_type(Py_TYPE(o)) || PyObject_TypeCheck(o, library().enum_)) return constant(o, ground);
  auto [it, fresh] = global_objects_.try_emplace(o);
  if (fresh) {
    SourceId s = tr_.sources().constant(o);
    it->second = force(wrap(o, s));
  }
  return it->second;
}

Variable* Values::from_python(Ref object, Ground ground) {
  PyObject* o = object.get();
  PyTypeObject* t = Py_TYPE(o);
  if (o == Py_None || o == Py_True || o == Py_False) return constant(o, ground);
  if (Variable* v = behind(o)) return v;
  if (is_constant_type(t) || PyObject_TypeCheck(o, library().enum_)) return constant(o, ground);
  if (PyObject_TypeCheck(o, library().tensor)) {
    if (auto it = by_object_.find(o); it != by_object_.end()) return it->second;
    if (!tr_.tracer().is_fake(o)) tr_.unsupported("a tensor that is made of memory outside of PyTorch");
    if (!tr_.effects.dual_since && tr_.tracer().has_tangent(o))
      tr_.effects.dual_since = std::max<uint64_t>(tr_.ordinal(), 1);
    // What another backend differentiates are the inputs.
    if (tr_.view().torch_level && is_leaf_with_gradient(o))
      tr_.unsupported("a leaf that requires a gradient made in a graph of PyTorch's calls");
    auto* tensor = make<TensorVariable>(o);
    by_object_[o] = tensor;
    tensor->inference = tr_.effects.inference && !on_plain_memory(o);
    keep(object);
    if (t != library().tensor && t != library().parameter && t != tr_.torch_functions.class_behind(t))
      tensor->cls = tr_.torch_functions.class_behind(t);
    else if (t != library().tensor && t != library().parameter)
      tr_.torch_functions.set_tensor_class(tensor, o, t);
    return tensor;
  }
  const LibraryObjects& k = library();
  if (t == k.untyped_storage || t == k.typed_storage) tr_.unsupported("a question about the memory of a tensor");
  if (t == k.sym_float) return make<SymVariable>(o)->specialise(tr_);  // computed from the sizes of this call
  if (t == k.sym_int || t == k.sym_bool) return make<SymVariable>(o);
  if (PySlice_Check(o)) {
    auto* s = reinterpret_cast<PySliceObject*>(o);
    return make<SliceVariable>(from_python(Ref::borrow(s->start), ground), from_python(Ref::borrow(s->stop), ground),
                               from_python(Ref::borrow(s->step), ground));
  }
  if (PyTuple_Check(o)) {
    std::vector<Variable*> items;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); ++i)
      items.push_back(from_python(Ref::borrow(PyTuple_GET_ITEM(o, i)), ground));
    return make<TupleVariable>(std::move(items), t);
  }
  if (PyList_CheckExact(o)) {
    std::vector<Variable*> items;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(o); ++i)
      items.push_back(from_python(Ref::borrow(PyList_GET_ITEM(o, i)), ground));
    return list(std::move(items));
  }
  if (PyDict_CheckExact(o)) {
    auto* d = dict();
    PyObject *key, *value;
    Py_ssize_t pos = 0;
    while (PyDict_Next(o, &pos, &key, &value))
      d->set(tr_, from_python(Ref::borrow(key), ground), from_python(Ref::borrow(value), ground));
    return d;
  }
  if (PyAnySet_CheckExact(o)) {
    std::vector<Variable*> elements;
    Ref it = Ref::steal(PyObject_GetIter(o));
    while (Ref e = Ref::steal(PyIter_Next(it.get()))) elements.push_back(from_python(e, ground));
    return make<SetVariable>(tr_, t, o, elements);
  }
  if (PyExceptionInstance_Check(o)) {
    auto* e = make<ObjectVariable>(t);
    Ref args = Ref::steal(native::attr(Ground::made(), o, "args"));
    e->base = args ? from_python(args, ground) : tuple({});
    PyErr_Clear();
    PyObject *name, *value, *fields = reinterpret_cast<PyBaseExceptionObject*>(o)->dict;
    for (Py_ssize_t at = 0; fields && PyDict_Next(fields, &at, &name, &value);) {
      // Others may lead back to the exception.
      if (!is_constant_type(Py_TYPE(value)) && PyUnicode_CompareWithASCIIString(name, "__notes__") != 0)
        tr_.unsupported(Reason::RaisedException, "an exception that holds more than constants");
      e->set_field(tr_, tr_.keep(Ref::borrow(name)), from_python(Ref::borrow(value), ground));
    }
    return e;
  }
  bool fixed = PyType_Check(o) || PyModule_Check(o) || PyCFunction_Check(o) || t == &PyMethodDescr_Type ||
               t == &PyWrapperDescr_Type;
  fixed |= torch_rule(o) == TorchRule::Call && !(PyFunction_Check(o) && PyFunction_GET_CLOSURE(o));
  if (tr_.host.hosting() && !fixed) return tr_.host.host_object(object);
  return global_object(o, ground);
}

bool Values::anchored(SourceId s) {
  for (SourceId at = s; at.valid(); at = tr_.sources()[at].base) {
    if (is_fleeting(tr_.sources()[at].kind) && !identities_.count(at.index)) return false;  // nothing is to hold it
    if (tr_.sources()[at].kind == SourceKind::Const) return true;
    if (identities_.count(at.index)) return true;
  }
  return false;
}

bool Values::is_fixed(SourceId s, PyObject* tensor) {
  if (!anchored(s)) return false;
  if (tr_.sources()[s].kind == SourceKind::Const || !tr_.view().seen) return true;
  auto [known, is_new] = passing_.try_emplace(s.index);
  if (is_new) known->second = tr_.view().seen->is_passing(tr_.sources(), s, tensor);
  return !known->second;
}

bool Values::on_stack(SourceId s) {
  while (tr_.sources()[s].base.valid()) s = tr_.sources()[s].base;
  return tr_.sources()[s].kind == SourceKind::Stack;
}

// What names a tensor's storage; 0: it has none.
static uint64_t storage_of(PyObject* tensor) {
  trace::WithoutTorchFunctions no_operation_of_the_programs(2);
  Ref storage = Ref::steal(PyObject_CallMethod(tensor, "untyped_storage", nullptr));
  Ref address = Ref::steal(
      storage ? native::attr(Ground::made(), storage.get(), pytorch::interned(pytorch::Attribute::cdata)) : nullptr);
  if (!address) return PyErr_Clear(), 0;
  return PyLong_AsUnsignedLongLong(address.get());
}

// What the captured code's own mode makes of it, its fake does not know; all else it does.
bool Values::is_inference(TensorVariable* t) { return t->inference || says_inference(t->fake.get()); }

void Values::note_plain_memory(PyObject* except) {
  for (; plain_until_ < arena_.size(); ++plain_until_) {
    if (!arena_[plain_until_]->is(Kind::Tensor)) continue;
    auto* t = arena_[plain_until_]->as<TensorVariable>();
    if (!t->real && t->fake.get() != except && !is_inference(t)) plain_memory_.insert(storage_of(t->fake.get()));
  }
  for (; plain_until_lifted_ < tr_.lifted_tensors().size(); ++plain_until_lifted_) {
    TensorVariable* t = tr_.lifted_tensors()[plain_until_lifted_];
    if (!says_inference(t->real.get())) plain_inputs_.insert(storage_of(t->fake.get()));
  }
}

bool Values::on_plain_input(PyObject* fake) {
  note_plain_memory(fake);
  return plain_inputs_.count(storage_of(fake)) != 0;
}

bool Values::on_plain_memory(PyObject* fake) {
  note_plain_memory(fake);
  uint64_t storage = storage_of(fake);
  return plain_inputs_.count(storage) || plain_memory_.count(storage);
}

void Values::guard_identity(SourceId s, PyObject* o) {
  if (!s.valid() || tr_.sources()[s].kind == SourceKind::Const) return;
  if (identities_.emplace(s.index, true).second) tr_.guards().identity(s, o, tr_.line());
}

void Values::guards_truncated() {
  identities_.clear();
  for (const Guard& g : tr_.guards().items())
    if (g.kind == GuardKind::Identity) identities_.emplace(g.source.index, true);
  for (; !computed_.empty() && computed_.back().guards >= tr_.guards().size(); computed_.pop_back())
    computed_.back().number->forced = nullptr;
}

PyObject* Values::wrapped_at(SourceId s) const {
  auto it = by_source_.find(s.index);
  return it == by_source_.end() ? nullptr : it->second->as<LazyVariable>()->object.get();
}

Variable* Values::load_const(PyObject* o) {
  auto [it, fresh] = consts_.try_emplace(o);
  if (fresh) {
    Variable* v = from_python(Ref::borrow(o), Ground::code());
    it = consts_.insert_or_assign(o, v).first;
  }
  return it->second;
}

Variable* Values::made_class(Ref cls) {
  tr_.mutate();
  keep(cls);
  Variable* v = make<RealVariable>(cls.get(), tr_.sources().constant(cls.get()));
  global_objects_[cls.get()] = v;
  made_classes_[cls.get()] = v;
  return v;
}

std::unordered_set<PyObject*> Values::of_made_classes() const {
  std::unordered_set<PyObject*> out;
  for (const auto& [cls, v] : made_classes_) {
    out.insert(cls);
    out.insert(type_dict(reinterpret_cast<PyTypeObject*>(cls)));
  }
  return out;
}

void Values::check_rebuild(PyTypeObject* cls) const {
  if (auto it = made_classes_.find(reinterpret_cast<PyObject*>(cls)); it != made_classes_.end())
    throw CannotRebuild{it->second, std::string("class ") + cls->tp_name + ", which the code defines,"};
}

void Values::verify_grounds() {
  std::unordered_set<uint32_t> guarded;
  for (const Guard& g : tr_.guards().items()) {
    guarded.insert(g.source.index);
    if (g.other.valid()) guarded.insert(g.other.index);
  }
  for (size_t i = 0; i < std::min(arena_.size(), forgotten_); ++i) {
    Variable* v = arena_[i].get();
    if (!v->is(Kind::Constant)) continue;
    const Ground& g = v->as<ConstantVariable>()->ground;
    bool held =
        g.kind() != Ground::Kind::Guarded || !g.source().valid() || tr_.sources()[g.source()].kind == SourceKind::Const;
    if (!held && !guarded.count(g.source().index))
      throw InternalError("no guard for " + v->describe() + ", found at " + tr_.sources().print(g.source()));
  }
}

Variable* Values::force_lazy(Variable* v) {
  auto* lazy = v->as<LazyVariable>();
  if (!lazy->forced && lazy->function) computed_.push_back({lazy, tr_.guards().size()});
  if (!lazy->forced && lazy->function && PyFloat_CheckExact(lazy->object.get())) {
    // What it was computed from is as in this call.
    Variable *left = tr_.real.specialised(force(lazy->left)),
             *right = lazy->right ? tr_.real.specialised(force(lazy->right)) : nullptr;
    lazy->forced = constant(lazy->object, Ground::pure(left, right));
  } else if (!lazy->forced && lazy->function) {
    Variable *left = force(lazy->left), *right = force(lazy->right);
    if (left->is(Kind::Sym) || right->is(Kind::Sym)) {
      lazy->forced = force(tr_.call(global_object(lazy->function, Ground::pure(v)), {left, right}));
    } else {
      lazy->forced = constant(lazy->object, Ground::pure(left, right));
    }
  }
  if (!lazy->forced) lazy->forced = classify(lazy->object.get(), v->source);
  return lazy->forced;
}

}  // namespace braze::capture
