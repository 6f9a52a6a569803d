// What an object is that was there before the capture: its guards, and the variable that stands for it.
#include <cstddef>

#include "capture/builtins/builtins.h"
#include "capture/code/kept_ends.h"
#include "capture/cpython/set_table.h"
#include "capture/eval/library_objects.h"
#include "capture/eval/translator.h"
#include "capture/guards/array_memory.h"
#include "capture/guards/content.h"
#include "capture/vars/all.h"
#include "capture/vars/random_generator.h"

namespace braze::capture {
namespace {

// Implemented in C: an instance holds nothing that we could follow.
bool is_opaque(PyTypeObject* t) {
  static const destructor python_defined = library().module->tp_dealloc;
  if (t == library().simple_namespace) return false;
  return t->tp_dealloc != python_defined && t != &PyBaseObject_Type &&
         !PyType_IsSubtype(t, reinterpret_cast<PyTypeObject*>(PyExc_BaseException));
}

bool is_known_by_identity(PyObject* o) {
  PyTypeObject* t = Py_TYPE(o);
  for (PyTypeObject* of_c : {&PyMethodDescr_Type, &PyWrapperDescr_Type, &PyClassMethodDescr_Type, &PyGetSetDescr_Type,
                             &PyMemberDescr_Type, &PyCode_Type, &PyStaticMethod_Type, &PyClassMethod_Type})
    if (t == of_c) return true;
  return PyType_Check(o) || PyModule_Check(o) || PyCFunction_Check(o) || PyType_IsSubtype(t, &PyProperty_Type) ||
         t == library().lru_cache || t == library().cached_property || torch_rule(o) != TorchRule::None;
}

}  // namespace

class Classifier {
 public:
  Classifier(Translator& tr, PyObject* o, SourceId s)
      : tr_(tr), values_(tr), object_(o), source_(s), type_(Py_TYPE(o)) {}

  Variable* classify() {
    tr_.attributes.guard_bases(type_);
    if (Variable* v = value()) return sourced(v);
    if (is_known_by_identity(object_)) return known_by_identity();
    if (Variable* v = met_before()) return v;
    if (PyTuple_Check(object_) && is_plain_tuple_class(tr_, type_)) return tuple();
    Variable* v = mutable_object();
    return v ? values_.by_object_[object_] = v : opaque();
  }

 private:
  Variable* sourced(Variable* v) {
    v->source = source_;
    v->born = 0;
    return v;
  }
  void has_type() { tr_.guards().type_is(source_, type_, tr_.line()); }
  SourceId part(SourceKind kind) { return tr_.sources().derived(kind, source_); }

  // Immutable values; nullptr: the object is none.
  Variable* value() {
    if (type_ == &PyLong_Type && tr_.view().seen && tr_.sources()[source_].kind != SourceKind::Const) {
      sym::Range range;
      int overflow = 0;
      int64_t n = PyLong_AsLongLongAndOverflow(object_, &overflow);
      if (!overflow && tr_.view().seen->integer(tr_.sources().print(source_), n, tr_.anchored(source_),
                                                tr_.view().dynamic, &range)) {
        has_type();
        Ref open = Ref::steal(tr_.tracer().lift_int(n, range));
        tr_.opened_integer(source_);
        return tr_.make<SymVariable>(open.get());
      }
    }
    if (is_constant_type(type_)) {
      if (tr_.sources()[source_].kind != SourceKind::Const) {
        if (type_ == &PyRange_Type)
          tr_.guards().range_is(source_, object_, tr_.line());
        else if (type_ == library().finfo || type_ == library().iinfo)
          tr_.guard_identity(source_, object_);
        else
          tr_.guards().equal(source_, object_, tr_.line());
      }
      return tr_.make<ConstantVariable>(object_, Ground::guarded(source_));
    }
    if (type_ == &PySlice_Type) {
      auto* p = reinterpret_cast<PySliceObject*>(object_);
      tr_.guards().equal(source_, object_, tr_.line());
      return tr_.make<SliceVariable>(tr_.from_python(Ref::borrow(p->start), Ground::guarded(source_)),
                                     tr_.from_python(Ref::borrow(p->stop), Ground::guarded(source_)),
                                     tr_.from_python(Ref::borrow(p->step), Ground::guarded(source_)));
    }
    if (type_ == library().sym_int || type_ == library().sym_float || type_ == library().sym_bool)
      tr_.unsupported("a symbolic number from outside");
    if (PyObject_TypeCheck(object_, library().enum_) || PyLong_Check(object_) || PyFloat_Check(object_) ||
        PyUnicode_Check(object_) || PyBytes_Check(object_)) {
      tr_.guard_identity(source_, object_);
      if (!is_fixed_type(type_)) has_type();  // it may be given another class
      return tr_.make<ConstantVariable>(object_, Ground::guarded(source_));
    }
    return nullptr;
  }

  Variable* known_by_identity() {
    Variable*& known = values_.global_objects_[object_];
    tr_.guard_identity(source_, object_);
    if (!known) known = tr_.make<RealVariable>(object_, source_);
    return known;
  }

  // The same object through another path is the same variable, as long as the paths meet.
  Variable* met_before() {
    auto it = values_.by_object_.find(object_);
    if (it == values_.by_object_.end()) return nullptr;
    if (it->second->is(Kind::Cell) && it->second->as<CellVariable>()->real.get() != object_)
      return it->second;  // of a class made here
    if (it->second->source.valid())
      tr_.guards().same_object(it->second->source, source_, tr_.line());
    else
      tr_.guard_identity(source_, object_);
    return it->second;
  }

  std::vector<Variable*> tuple_items() {
    tr_.guards().length(source_, PyTuple_GET_SIZE(object_), tr_.line());
    std::vector<Variable*> items;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object_); ++i)
      items.push_back(tr_.wrap(PyTuple_GET_ITEM(object_, i), tr_.sources().tuple_item(source_, i)));
    return items;
  }
  std::vector<Variable*> list_items() {
    tr_.guards().length(source_, PyList_GET_SIZE(object_), tr_.line());
    std::vector<Variable*> items;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(object_); ++i)
      items.push_back(tr_.wrap(PyList_GET_ITEM(object_, i), tr_.sources().list_item(source_, i)));
    return items;
  }

  Variable* tuple() {
    has_type();
    auto* v = tr_.make<TupleVariable>(tuple_items(), type_);
    v->real = Ref::borrow(object_);
    return sourced(v);
  }

  Variable* opaque() {
    // Objects of the call's own, like iterators, files and buffers, are not kept alive.
    bool weak = !tr_.anchored(source_) && PyType_SUPPORTS_WEAKREFS(type_) &&
                (type_->tp_flags & Py_TPFLAGS_IMMUTABLETYPE) && !PyCallable_Check(object_);
    if (weak)
      tr_.guards().weak_identity(source_, object_, tr_.line());
    else
      tr_.guard_identity(source_, object_);
    return tr_.make<RealVariable>(object_, source_);
  }

  // nullptr: of a class in C that nothing is known of.
  Variable* mutable_object() {
    const LibraryObjects& k = library();
    if (PyObject_TypeCheck(object_, k.tensor)) return tensor();
    if (type_ == &PyFunction_Type) return function();
    if (type_ == &PyMethod_Type) return bound_method();
    if (type_ == &PyCell_Type) return tr_.make<CellVariable>(object_, source_);
    if (type_ == &PyDictProxy_Type) return mapping_proxy();
    if (type_ == k.partial) return partial();
    if (type_ == &PyList_Type) return list();
    if (type_ == k.deque) return deque();
    if (type_ == &PyDict_Type || type_ == k.ordered_dict || type_ == k.default_dict) return dict();
    if (PyAnySet_CheckExact(object_)) return has_type(), sourced(set_content());
    if (PyObject_TypeCheck(object_, k.module)) return module();
    if (type_ == array_type())
      if (Variable* v = wrap_array(tr_, object_, source_)) return v;
    // What the stack holds may be let go of before the frame ends, with the generators that are in it.
    bool ends_early = Py_TYPE(object_)->tp_iternext && tr_.on_stack(source_) && may_keep_end(object_);
    if (type_ == &PyGen_Type && !ends_early)
      if (Variable* v = wrap_generator(tr_, tr_.view().seen, object_, source_)) return v;
    if (!ends_early)
      if (Variable* v = wrap_iterator(tr_, tr_.view().seen, object_, source_)) return v;
    if (type_ == thread_local_type() && content_of(object_))
      return has_type(), tr_.make<ThreadLocalVariable>(object_, source_);
    if (type_ == random_generator_type())
      if (Variable* v = wrap_random_generator(tr_, object_, source_)) return v;
    if (is_opaque(type_) && !PyDict_Check(object_) && !PyList_Check(object_) && !PyTuple_Check(object_)) return nullptr;
    return instance();
  }

  Variable* tensor() {
    if (type_ != library().tensor && type_ != library().parameter) {
      if (tr_.tracer().is_fake(object_)) tr_.unsupported(Reason::UnsupportedTensor, "a fake tensor from outside");
      if (const char* why = refuse_tensor_class(type_))
        tr_.unsupported(Reason::UnsupportedTensor, std::string("a tensor of class ") + type_->tp_name + ": " + why);
      // What the class does not define, it may define later.
      for (PyTypeObject* c = type_; c && c != library().tensor && c != library().parameter; c = c->tp_base)
        tr_.guards().dict_keys(tr_.sources().constant(type_dict(c)), type_dict(c), tr_.line());
      tr_.torch_functions.of(type_);
      tr_.torch_functions.met_subclass();
    }
    auto* tensor = tr_.make<TensorVariable>(object_, source_);
    if (tr_.view().seen && !tr_.is_fixed(source_, object_)) {
      std::vector<DimMark> marks = marks_of(object_);
      tensor->symbolic = tr_.view().seen->tensor(tr_.sources().print(source_), object_, marks, tr_.view().dynamic);
    }
    tr_.guards().tensor(source_, object_, tensor->symbolic, tr_.line());
    return tensor;
  }

  Variable* function() {
    auto* f = tr_.make<FunctionVariable>(object_, source_);
    if (tr_.anchored(source_)) {
      tr_.guard_identity(source_, object_);
      f->anchored = true;
    } else {
      has_type();
    }
    return f;
  }

  Variable* bound_method() {
    has_type();
    Variable* fn = tr_.wrap(PyMethod_GET_FUNCTION(object_), part(SourceKind::MethodFunc));
    auto* method =
        tr_.make<BoundMethodVariable>(fn, tr_.wrap(PyMethod_GET_SELF(object_), part(SourceKind::MethodSelf)));
    method->real = Ref::borrow(object_);
    return sourced(method);
  }

  // Read through to the mapping behind it, the first field of the object.
  Variable* mapping_proxy() {
    has_type();
    PyObject* origin = *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object_) + sizeof(PyObject));
    return sourced(tr_.make<MappingProxyVariable>(tr_.force(tr_.wrap(origin, part(SourceKind::MappingOrigin)))));
  }

  Variable* partial() {
    has_type();
    auto field = [&](const char* name) { return Ref::steal(native::attr(Ground::guarded(source_), object_, name)); };
    auto* args = tr_.force(tr_.wrap(field("args").get(), part(SourceKind::PartialArgs)))->as<TupleVariable>();
    if (PyObject* place = partial_placeholder())
      for (Variable* v : args->elements)
        if (tr_.force(v)->type() == Py_TYPE(place)) tr_.unsupported("a functools.partial with a Placeholder");
    auto* keywords =
        tr_.force(tr_.wrap(field("keywords").get(), part(SourceKind::PartialKeywords)))->as<DictVariable>();
    auto* made =
        tr_.make<PartialVariable>(tr_.wrap(field("func").get(), part(SourceKind::PartialFunc)), args, keywords);
    made->real = Ref::borrow(object_);
    return sourced(made);
  }

  Variable* list() {
    has_type();
    auto* v = tr_.make<ListVariable>(list_items());
    v->real = Ref::borrow(object_);
    return sourced(v);
  }

  Variable* deque() {
    has_type();
    PyObject* content = tr_.keep(Ref::borrow(content_of(object_)));  // maxlen, then the items
    SourceId at = tr_.sources().derived(SourceKind::Content, source_);
    tr_.guards().length(at, PyTuple_GET_SIZE(content), tr_.line());
    PyObject* maxlen = PyTuple_GET_ITEM(content, 0);
    tr_.guards().equal(tr_.sources().tuple_item(at, 0), maxlen, tr_.line());
    std::vector<Variable*> items;
    for (Py_ssize_t i = 1; i < PyTuple_GET_SIZE(content); ++i)
      items.push_back(tr_.wrap(PyTuple_GET_ITEM(content, i), tr_.sources().tuple_item(at, i)));
    auto* d = tr_.make<ListVariable>(std::move(items), type_);
    d->real = Ref::borrow(object_);
    d->maxlen = maxlen == Py_None ? -1 : PyLong_AsLongLong(maxlen);
    return sourced(d);
  }

  Variable* dict() {
    if (tr_.sources()[source_].kind != SourceKind::Const && tr_.sources()[source_].kind != SourceKind::InstanceDict)
      has_type();
    auto* d = tr_.make<DictVariable>(object_, source_, type_);
    if (type_ == library().default_dict) {
      // The one field that collections.defaultdict adds to a dict.
      Ref f = Ref::steal(native::attr(Ground::guarded(source_), object_, "default_factory"));
      d->default_factory = tr_.wrap(
          f.get(), tr_.sources().add(SourceKind::Slot, source_, sizeof(PyDictObject), tr_.intern("default_factory")));
    }
    return d;
  }

  // By identity: what hangs off it is watched then, instead of compared in each call.
  void guard_fixed() {
    bool passing = tr_.view().seen && tr_.sources()[source_].kind != SourceKind::Const &&
                   tr_.view().seen->is_passing(tr_.sources(), source_, object_);
    if (!passing) tr_.guard_identity(source_, object_);
  }

  Variable* module() {
    guard_fixed();
    has_type();  // __class__ can be set
    return tr_.make<ModuleVariable>(object_, source_);
  }

  // Of a class of the program's, which may derive from a container.
  Variable* instance() {
    if (PyObject_TypeCheck(object_, library().optimizer)) guard_fixed();
    if (tr_.sources()[source_].kind != SourceKind::Const) has_type();
    auto* v = tr_.make<ObjectVariable>(object_, source_);
    if (PyDict_Check(object_)) {
      v->base = tr_.make<DictVariable>(
          object_, source_, PyType_IsSubtype(type_, library().ordered_dict) ? library().ordered_dict : &PyDict_Type);
    } else if (PyList_Check(object_)) {
      v->base = sourced(tr_.make<ListVariable>(list_items()));
    } else if (PyTuple_Check(object_)) {
      v->base = sourced(tr_.make<TupleVariable>(tuple_items()));
    } else if (PyAnySet_Check(object_)) {
      v->base = sourced(set_content());
    } else if (PyExceptionInstance_Check(object_)) {
      PyObject* args = reinterpret_cast<PyBaseExceptionObject*>(object_)->args;
      v->base = tr_.force(tr_.wrap(args, tr_.sources().add(SourceKind::Slot, source_,
                                                           offsetof(PyBaseExceptionObject, args), tr_.intern("args"))));
    }
    return v;
  }

  // The content of a set that was there before, guarded.
  Variable* set_content() {
    tr_.guards().set_members(source_, object_, tr_.line());
    std::unordered_map<PyObject*, Variable*> of;
    Py_ssize_t place = 0;
    while (PyObject* key = next_element(object_, place)) {
      // Objects that are told apart by identity are members as such.
      PyTypeObject* kind = Py_TYPE(key);
      bool by_identity =
          (kind->tp_hash == PyBaseObject_Type.tp_hash && kind->tp_richcompare == PyBaseObject_Type.tp_richcompare &&
           !PyObject_TypeCheck(key, library().tensor)) ||
          PyCFunction_Check(key);
      if (by_identity) {
        of.emplace(key, tr_.global_object(key, Ground::guarded(source_)));
        tr_.keep(Ref::borrow(key));
        continue;
      }
      if (!is_constant_type(kind) && !PyType_Check(key) &&
          !(PyTuple_Check(key) &&
            tr_.real.is_python_constant(tr_.from_python(Ref::borrow(key), Ground::guarded(source_)))))
        tr_.unsupported("a set of objects");
      of.emplace(key, tr_.from_python(Ref::borrow(key), Ground::guarded(source_)));
      tr_.keep(Ref::borrow(key));
    }
    return tr_.make<SetVariable>(PyFrozenSet_Check(object_) ? &PyFrozenSet_Type : &PySet_Type,
                                 set_like(&PySet_Type, object_), std::move(of));
  }

  Translator& tr_;
  Values& values_;
  PyObject* object_;
  SourceId source_;
  PyTypeObject* type_;
};

Variable* Values::classify(PyObject* o, SourceId s) { return Classifier(tr_, o, s).classify(); }

}  // namespace braze::capture
