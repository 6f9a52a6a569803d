// weakref.ref: made in the capture, or found; what they answer is told by what still holds the object.
#include <set>

#include "capture/builtins/builtins.h"
#include "capture/eval/library_objects.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"
#include "capture/vars/weakref.h"

namespace braze::capture {
namespace {

SourceId source_of(const Variable* v) { return v ? v->source : SourceId{}; }

// Whether the outermost frame began with objects that may have held `target`, and has let go of one since. Constants
// hold nothing, tensors nothing but themselves.
bool frame_let_go(Translator& tr, PyObject* target) {
  const FrameView& view = tr.view();
  if (view.start == 0) return false;  // arguments: the caller has them, too
  const Frame* f = tr.frame();
  while (f->parent) f = f->parent;
  const int num_locals = view.bytecode->num_locals_plus;
  for (int i = 0; i < num_locals + view.depth; ++i) {
    PyObject* o = view.slots[i];
    if (!o || is_constant_type(Py_TYPE(o)) || (Py_TYPE(o) == library().tensor && o != target)) continue;
    const int at = i - num_locals;
    const bool kept = at < 0 ? source_of(f->locals[static_cast<size_t>(i)]) == tr.sources().local(i)
                             : at < f->sp && source_of(f->stack[static_cast<size_t>(at)]) == tr.sources().stack(at);
    if (!kept) return true;
  }
  return false;
}

// Whether a frame holds it, by itself or through objects that nothing has changed.
bool held_by_frame(Translator& tr, Variable* target) {
  std::set<SourceId> changed, held;
  for (Variable* m : tr.effects.modifications()) changed.insert(m->source);
  for (const Frame* f = tr.frame(); f; f = f->parent) {
    auto hold = [&](Variable* v) {
      if (!v) return false;
      if (v->source.valid()) held.insert(v->source);
      if (v->is(Kind::Cell)) v = tr.force(v)->as<CellVariable>()->contents;
      if (v && v->source.valid()) held.insert(v->source);
      return v == target;
    };
    for (Variable* v : f->locals)
      if (hold(v)) return true;
    for (int i = 0; i < f->sp; ++i)
      if (hold(f->stack[static_cast<size_t>(i)])) return true;
  }
  bool inside = false;  // of something
  for (SourceId s = target->source; s.valid(); inside = true) {
    const Source& at = tr.sources()[s];
    if (inside && changed.count(s)) return false;
    if (held.count(s)) return true;
    switch (at.kind) {
      // The caller's arguments; what it holds of a tensor is no matter of the frame's.
      case SourceKind::Local:
        return tr.view().start == 0 && (inside || !PyType_IsSubtype(target->type(), library().tensor));
      case SourceKind::Const: return inside;
      case SourceKind::DictItem:
      case SourceKind::ListItem:
      case SourceKind::TupleItem:
      case SourceKind::InstanceDict:
      case SourceKind::Slot: s = at.base; break;
      default: return false;
    }
  }
  return false;
}

// One of them may be nullptr: an object that the capture has not met, or has made.
void refuse_if_let_go(Translator& tr, Variable* target, PyObject* object) {
  if (object && tr.effects.modifications().empty() && !frame_let_go(tr, object)) return;
  if (!target || !held_by_frame(tr, target))
    tr.unsupported("a weak reference to an object that a change may have let go of");
}

Variable* make_weakref(Translator& tr, Args& a) {
  if (a.size() < 1 || a.size() > 2 || !a.kw.empty() || (a.size() == 2 && !is_none(a[1]))) return nullptr;
  // Others are held by the entry, or die where nothing of the capture shows it.
  bool followed = a[0]->is(Kind::Object) || a[0]->is(Kind::Module) || a[0]->is(Kind::Dict) || a[0]->is(Kind::Set) ||
                  a[0]->is(Kind::Function) || a[0]->is(Kind::Tensor);
  if (!followed) return nullptr;
  if (!a[0]->type()->tp_weaklistoffset)
    tr.raise(PyExc_TypeError, std::string("cannot create weak reference to '") + tr.name_of(a[0]->type()) + "' object");
  // References without a callback are one object.
  auto [it, fresh] = tr.effects.weakrefs.try_emplace(a[0]);
  if (fresh) it->second = tr.make<WeakrefVariable>(a[0]);
  return it->second;
}

}  // namespace

void refuse_if_let_go(Translator& tr, PyObject* target) {
  if (target == Py_None) return;
  refuse_if_let_go(tr, tr.standing_for(target), target);
}

Variable* WeakrefVariable::call(Translator& tr, Args& args) {
  if (args.size() || !args.kw.empty()) tr.unsupported("arguments of a weak reference");
  refuse_if_let_go(tr, target, target->source.valid() ? tr.wrapped_at(target->source) : nullptr);
  return target;
}

Reg WeakrefVariable::build(Codegen& cg) {
  return cg.recipe.make(StepKind::Call,
                        {cg.constant(reinterpret_cast<PyObject*>(&_PyWeakref_RefType)), cg.reg(target)});
}

void register_weak_reference_builtins() { register_builtin("weakref", "ref", make_weakref); }

}  // namespace braze::capture
