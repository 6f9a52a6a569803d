// Containers and texts that instructions build, change and take apart.
#include "capture/cpython/texts.h"
#include "capture/eval/instructions/instructions.h"
#include "capture/eval/library_objects.h"
#include "capture/vars/all.h"

namespace braze::capture {
namespace {

// The n topmost values, popped.
std::vector<Variable*> take(Frame& f, int n) {
  std::vector<Variable*> out(f.stack.begin() + (f.sp - n), f.stack.begin() + f.sp);
  f.sp -= n;
  return out;
}

void unpack_sequence(Translator& tr, Frame& f, int n) {
  Variable* v = tr.force(f.pop());
  bool iterable = v->type()->tp_iter || (v->type()->tp_as_sequence && v->type()->tp_as_sequence->sq_item);
  if (!iterable ||
      (v->is(Kind::Constant) && !v->as<ConstantVariable>()->has_len(tr) && !PyRange_Check(v->as_constant())))
    tr.raise(PyExc_TypeError, std::string("cannot unpack non-iterable ") + tr.name_of(v->type()) + " object");
  auto items = v->items(tr);
  PyTypeObject* t = v->type();
  bool counted = cpython::kTellsLength && (t == &PyList_Type || t == &PyTuple_Type || t == &PyDict_Type);
  if (static_cast<int>(items.size()) < n)
    tr.raise(PyExc_ValueError, "not enough values to unpack (expected " + std::to_string(n) + ", got " +
                                   std::to_string(items.size()) + ")");
  if (static_cast<int>(items.size()) > n)
    tr.raise(PyExc_ValueError, "too many values to unpack (expected " + std::to_string(n) +
                                   (counted ? ", got " + std::to_string(items.size()) : "") + ")");
  for (int i = n - 1; i >= 0; --i) f.push(items[static_cast<size_t>(i)]);
}

void unpack_ex(Translator& tr, Frame& f, int before, int after) {
  Variable* from = tr.force(f.pop());
  std::vector<Variable*> items;
  if (from->is(Kind::Object) || from->is(Kind::Iterator)) {  // the rest is a list of what its iterator gives
    Variable* it = tr.force(tr.iter(from));
    for (int i = 0; i < before; ++i)
      if (Variable* v = tr.next(it))
        items.push_back(v);
      else
        break;
    if (static_cast<int>(items.size()) == before)
      for (Variable* v : tr.listed(it)) items.push_back(v);
  } else {
    items = tr.unpack(from);
  }
  int n = static_cast<int>(items.size());
  if (n < before + after)
    tr.raise(PyExc_ValueError, "not enough values to unpack (expected at least " + std::to_string(before + after) +
                                   ", got " + std::to_string(n) + ")");
  for (int i = 0; i < after; ++i) f.push(items[static_cast<size_t>(n - 1 - i)]);
  f.push(tr.list({items.begin() + before, items.end() - after}));
  for (int i = before - 1; i >= 0; --i) f.push(items[static_cast<size_t>(i)]);
}

}  // namespace

void Instructions::BuildTuple(Execution& x) { x.f.push(x.tr.tuple(take(x.f, x.ins.arg))); }

void Instructions::BuildList(Execution& x) { x.f.push(x.tr.list(take(x.f, x.ins.arg))); }

void Instructions::BuildSet(Execution& x) {
  auto* s = x.tr.make<SetVariable>();
  for (Variable* v : take(x.f, x.ins.arg)) s->add(x.tr, v);
  x.f.push(s);
}

void Instructions::BuildMap(Execution& x) {
  auto* d = x.tr.dict();
  auto items = take(x.f, 2 * x.ins.arg);
  for (size_t i = 0; i < items.size(); i += 2) d->set(x.tr, items[i], items[i + 1]);
  x.f.push(d);
}

void Instructions::BuildConstKeyMap(Execution& x) {
  auto keys = x.tr.unpack(x.f.pop());
  auto values = take(x.f, x.ins.arg);
  auto* d = x.tr.dict();
  for (size_t i = 0; i < values.size(); ++i) d->set(x.tr, keys[i], values[i]);
  x.f.push(d);
}

void Instructions::BuildString(Execution& x) {
  Ref parts = Ref::steal(PyList_New(0));
  for (Variable* v : take(x.f, x.ins.arg)) PyList_Append(parts.get(), x.tr.real.to_python(v).get());
  Ref empty = Ref::steal(PyUnicode_FromString(""));
  Ref s = Ref::steal(PyUnicode_Join(empty.get(), parts.get()));
  if (!s) x.tr.raise_current();
  x.f.push(x.tr.constant(s, Ground::pure(parts)));
}

void Instructions::BuildSlice(Execution& x) {
  Variable* step = x.ins.arg == 3 ? x.f.pop() : x.tr.none();
  Variable *stop = x.f.pop(), *start = x.f.pop();
  x.f.push(x.tr.make<SliceVariable>(start, stop, step));
}

void Instructions::ListExtend(Execution& x) {
  Variable* from = x.tr.force(x.f.pop());
  if (!x.tr.can_iterate(from))
    x.tr.raise(PyExc_TypeError, std::string("Value after * must be an iterable, not ") + x.tr.name_of(from->type()));
  auto more = x.tr.listed(from);
  auto* l = x.tr.force(x.f.top(x.ins.arg))->as<ListVariable>();
  l->change(x.tr);
  l->elements.insert(l->elements.end(), more.begin(), more.end());
}

void Instructions::ListAppend(Execution& x) {
  Variable* v = x.f.pop();
  auto* l = x.tr.force(x.f.top(x.ins.arg))->as<ListVariable>();
  l->change(x.tr);
  l->elements.push_back(v);
}

void Instructions::SetAdd(Execution& x) {
  Variable* v = x.f.pop();
  auto* s = x.tr.force(x.f.top(x.ins.arg))->as<SetVariable>();
  s->change(x.tr);
  s->add(x.tr, v);
}

void Instructions::SetUpdate(Execution& x) {
  Variable* more = x.f.pop();
  auto* s = x.tr.force(x.f.top(x.ins.arg))->as<SetVariable>();
  s->change(x.tr);
  s->merge(x.tr, more);
}

void Instructions::MapAdd(Execution& x) {
  Variable *value = x.f.pop(), *key = x.f.pop();
  x.tr.force(x.f.top(x.ins.arg))->as<DictVariable>()->set(x.tr, key, value);
}

void Instructions::DictUpdate(Execution& x) {
  Variable* other = x.tr.force(x.f.pop());
  auto* d = x.tr.force(x.f.top(x.ins.arg))->as<DictVariable>();
  auto callee = [&] {
    return x.tr.text_of_callee(cpython::called(x.f.top(x.ins.arg + 3), x.f.top(x.ins.arg + 2)).callable);
  };
  if (x.ins.op == Opcode::DictMerge) {
    Variable* mapping =
        other->is(Kind::Object) && other->as<ObjectVariable>()->base ? other->as<ObjectVariable>()->base : other;
    if (mapping->is(Kind::Dict))
      for (Variable* k : mapping->items(x.tr))
        if (d->contains(x.tr, k))
          x.tr.raise(PyExc_TypeError,
                     callee() + " got multiple values for keyword argument " + x.tr.force(k)->describe());
  }
  if (!x.tr.getattr_or_null(other, "keys")) {
    if (x.ins.op == Opcode::DictMerge)
      x.tr.raise(PyExc_TypeError,
                 callee() + " argument after ** must be a mapping, not " + x.tr.name_of(other->type()));
    x.tr.raise(PyExc_TypeError, std::string("'") + x.tr.name_of(other->type()) + "' object is not a mapping");
  }
  Args args{{other}, {}};
  d->call_method(x.tr, "update", args);
}
void Instructions::DictMerge(Execution& x) { DictUpdate(x); }

void Instructions::ListToTuple(Execution& x) {
  x.f.push(x.tr.tuple(x.tr.force(x.f.pop())->as<ListVariable>()->elements));
}

void Instructions::FormatValue(Execution& x) {
  std::string spec;
  if (x.ins.arg & 4) {
    Ref s = x.tr.real.to_python(x.f.pop());
    const char* text = PyUnicode_Check(s.get()) ? PyUnicode_AsUTF8(s.get()) : nullptr;
    if (!text) {
      PyErr_Clear();
      x.tr.unsupported("a format that is no string of characters");
    }
    spec = text;
  }
  Variable* v = x.f.pop();
  x.f.push(x.tr.format(v, spec, x.ins.arg & 3));
}

void Instructions::ConvertValue(Execution& x) {
  Variable* v = x.f.pop();
  x.f.push(x.tr.format(v, "", x.ins.arg));
}

void Instructions::UnpackSequence(Execution& x) { unpack_sequence(x.tr, x.f, x.ins.arg); }

void Instructions::UnpackEx(Execution& x) { unpack_ex(x.tr, x.f, x.ins.arg & 0xff, x.ins.arg >> 8); }

void Instructions::GetLen(Execution& x) { x.f.push(x.tr.integer(x.tr.len(x.f.top()), Ground::pure(x.f.top()))); }

}  // namespace braze::capture
