// How objects of the program's classes are made anew, and what a run writes to those that are there.
#include "capture/cpython/class_in_c.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"
#include "capture/vars/object.h"

namespace braze::capture {

namespace {

// Exceptions whose fields are set by __init__.
bool keeps_arguments(PyTypeObject* cls) {
  for (PyObject* e : {PyExc_StopIteration, PyExc_SystemExit, PyExc_ImportError, PyExc_SyntaxError,
                      PyExc_UnicodeDecodeError, PyExc_UnicodeEncodeError, PyExc_UnicodeTranslateError})
    if (PyType_IsSubtype(cls, reinterpret_cast<PyTypeObject*>(e))) return true;
  return false;
}

}  // namespace

Reg ObjectVariable::build(Codegen& cg) {
  cg.tr.check_rebuild(cls);
  // Raised for real, it has a traceback, and what the interpreter notes in its fields.
  if (is_exception() && cg.tr.was_raised(this) &&
      (!bare || has_chain(like.get()) || (like && !is_plain_exception(cls))))
    cg.tr.raise_natively(this, "an exception outlives the compiled code");
  auto* type_object = reinterpret_cast<PyObject*>(cls);
  Reg r;
  if (is_exception() || (base && (base->is(Kind::Tuple) || base->is(Kind::Constant) ||
                                  (base->is(Kind::Set) && base->type() == &PyFrozenSet_Type)))) {
    // Immutable content goes in when the object is made.
    const bool by_init = is_exception() && !(cls->tp_flags & Py_TPFLAGS_HEAPTYPE) && keeps_arguments(cls);
    auto* maker = reinterpret_cast<PyObject*>(class_in_c(cls));
    Ref make = Ref::steal(native::attr(Ground::fixed(), maker, "__new__"));
    std::vector<Reg> args;
    if (!by_init) args.push_back(cg.constant(make.get()));
    args.push_back(cg.constant(type_object));
    if (is_exception()) {
      if (base)
        for (Variable* a : base->as<TupleVariable>()->elements) args.push_back(cg.reg(a));
    } else {
      args.push_back(cg.reg(base));
    }
    r = reg = cg.recipe.make(StepKind::Call, args);
    emitting = false;
  } else {
    r = reg = cg.recipe.make(StepKind::NewObject, {cg.constant(type_object)});
    emitting = false;
    if (base) {
      std::vector<Reg> args{r};
      if (base->is(Kind::Dict)) {
        for (const auto& e : base->as<DictVariable>()->entries(cg.tr)) {
          args.push_back(cg.reg(e.key));
          args.push_back(cg.reg(e.value));
        }
        cg.recipe.effect(StepKind::DictAssign, args);
      } else if (base->is(Kind::List)) {
        for (Variable* v : base->items(cg.tr)) args.push_back(cg.reg(v));
        cg.recipe.effect(StepKind::ListAssign, args);
      } else {
        base->as<SetVariable>()->add_content(cg, args);
        cg.recipe.effect(StepKind::SetAssign, args);
      }
    }
  }
  if (dict_)
    for (const auto& e : dict_->entries(cg.tr)) {
      PyObject* name = constant_of(e.key);
      if (!name || !PyUnicode_Check(name)) throw CannotRebuild{this, "an instance dict with keys that are no strings"};
      if (PyObject* on_class = cg.tr.attributes.lookup_on_type(cls, name, nullptr);
          on_class && Py_TYPE(on_class)->tp_descr_set) {
        // Written to the dict behind a descriptor, which setattr would ask.
        cg.recipe.effect(StepKind::SetItem, {cg.reg(dict_), cg.constant(name), cg.reg(e.value)});
        continue;
      }
      cg.recipe.effect(StepKind::SetAttrRaw, {r, cg.reg(e.value)}, name);
    }
  emit_changes(cg, r);
  return r;
}

void ObjectVariable::emit_changes(Codegen& cg, Reg self) {
  for (const Slot& s : slots) {
    if (s.value)
      cg.recipe.effect(StepKind::SetAttrRaw, {self, cg.reg(s.value)}, s.name);
    else if (real && s.there)
      cg.recipe.effect(StepKind::DelAttr, {self}, s.name);
  }
}

}  // namespace braze::capture
