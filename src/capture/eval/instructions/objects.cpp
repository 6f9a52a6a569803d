// Attributes, items, operators.
#include <optional>

#include "capture/eval/checks.h"
#include "capture/eval/instructions/instructions.h"
#include "capture/eval/size_floats.h"
#include "capture/vars/all.h"

namespace braze::capture {

void Instructions::LoadAttr(Execution& x) {
  Variable* v = x.tr.getattr(x.f.pop(), x.f.code->name(x.ins.arg));
  x.f.push(v);
}

void Instructions::LoadMethod(Execution& x) {
  Variable* v = x.tr.getattr(x.f.pop(), x.f.code->name(x.ins.arg));
  if (v->is(Kind::BoundMethod)) {
    x.f.push(v->as<BoundMethodVariable>()->function);
    x.f.push(v->as<BoundMethodVariable>()->self);
  } else {
    if (v->is(Kind::BuiltinMethod)) v->as<BuiltinMethodVariable>()->only_called = true;
    x.f.push_callable(v);
  }
}

void Instructions::LoadSuperAttr(Execution& x) {
  Variable *self = x.f.pop(), *cls = x.f.pop(), *super = x.f.pop();
  // A super() without arguments finds them itself; what has taken its name is called as it is written.
  bool as_written = !x.ins.flag && x.tr.force(super)->as_constant() != reinterpret_cast<PyObject*>(&PySuper_Type);
  Variable* bound = x.tr.call(super, as_written ? std::vector<Variable*>{} : std::vector<Variable*>{cls, self});
  Variable* v = x.tr.getattr(bound, x.f.code->name(x.ins.arg));
  if (x.ins.op == Opcode::LoadSuperMethod) {
    if (v->is(Kind::BoundMethod)) {
      x.f.push(v->as<BoundMethodVariable>()->function);
      x.f.push(v->as<BoundMethodVariable>()->self);
      return;
    }
    return x.f.push_callable(v);
  }
  x.f.push(v);
}
void Instructions::LoadSuperMethod(Execution& x) { LoadSuperAttr(x); }

void Instructions::StoreAttr(Execution& x) {
  Variable *obj = x.f.pop(), *value = x.f.pop();
  x.tr.setattr(obj, x.f.code->name(x.ins.arg), value);
}

void Instructions::DeleteAttr(Execution& x) { x.tr.setattr(x.f.pop(), x.f.code->name(x.ins.arg), nullptr); }

void Instructions::BinarySubscr(Execution& x) {
  Variable *key = x.f.pop(), *v = x.f.pop();
  Variable* r = x.tr.getitem(v, key);
  x.f.push(r);
}

void Instructions::StoreSubscr(Execution& x) {
  Variable *key = x.f.pop(), *container = x.f.pop(), *value = x.f.pop();
  x.tr.setitem(container, key, value);
}

void Instructions::DeleteSubscr(Execution& x) {
  Variable *key = x.f.pop(), *container = x.f.pop();
  x.tr.delitem(container, key);
}

void Instructions::BinarySlice(Execution& x) {
  Variable *stop = x.f.pop(), *start = x.f.pop(), *v = x.f.pop();
  x.f.push(x.tr.getitem(v, x.tr.make<SliceVariable>(start, stop, x.tr.none())));
}

void Instructions::StoreSlice(Execution& x) {
  Variable *stop = x.f.pop(), *start = x.f.pop(), *v = x.f.pop(), *value = x.f.pop();
  x.tr.setitem(v, x.tr.make<SliceVariable>(start, stop, x.tr.none()), value);
}

void Instructions::BinaryOp(Execution& x) {
  Variable *b = x.f.pop(), *a = x.f.pop();
  x.f.push(x.tr.binary_op(x.ins.arg, a, b));
}

void Instructions::CompareOp(Execution& x) {
  Variable *b = x.f.pop(), *a = x.f.pop();
  auto read = [](Variable* v) { return v->is(Kind::Float) && !open_float(v); };
  std::optional<OpenNumbers> open;
  if ((read(a) || read(b)) && awaits_check(x.tr, x.f)) open.emplace(x.tr);
  x.f.push(x.tr.compare(x.ins.arg, a, b));
}

void Instructions::IsOp(Execution& x) {
  Variable *b = x.f.pop(), *a = x.f.pop();
  x.f.push(x.tr.boolean(x.tr.identical(a, b) != (x.ins.arg == 1), Ground::pure(a, b)));
}

void Instructions::ContainsOp(Execution& x) {
  Variable *container = x.f.pop(), *item = x.f.pop();
  x.f.push(x.tr.boolean(x.tr.contains(container, item) != (x.ins.arg == 1), Ground::pure(container, item)));
}

void Instructions::UnaryPositive(Execution& x) {
  Variable* v = x.f.pop();
  x.f.push(x.tr.unary_op(x.ins.op, v));
}
void Instructions::UnaryNegative(Execution& x) { UnaryPositive(x); }
void Instructions::UnaryNot(Execution& x) { UnaryPositive(x); }
void Instructions::UnaryInvert(Execution& x) { UnaryPositive(x); }

}  // namespace braze::capture
