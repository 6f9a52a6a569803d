// Instructions on attributes, items, containers, operators.
#include <opcode.h>

#include "capture/builtins/builtins.h"
#include "capture/eval/library_objects.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"

namespace braze::capture {
namespace {

// The n topmost values, popped.
std::vector<Variable*> take(Frame& f, int n) {
  std::vector<Variable*> out(f.stack.begin() + (f.sp - n), f.stack.begin() + f.sp);
  f.sp -= n;
  return out;
}

}  // namespace

bool Translator::step_object(Frame& f, const Instruction& ins) {
  using enum Opcode;
  const Bytecode& code = *f.code;
  switch (ins.op) {
    case LoadAttr: {
      Variable* v = getattr(f.pop(), code.name(ins.arg));
      f.push(v);
      return true;
    }
    case LoadMethod: {
      Variable* v = getattr(f.pop(), code.name(ins.arg));
      if (v->is(Kind::BoundMethod)) {
        f.push(v->as<BoundMethodVariable>()->function);
        f.push(v->as<BoundMethodVariable>()->self);
      } else {
        f.push(nullptr);
        f.push(v);
      }
      return true;
    }
    case LoadSuperAttr:
    case LoadSuperMethod: {
      Variable *self = f.pop(), *cls = f.pop(), *super = f.pop();
      Variable* s = call(super, {cls, self});
      Variable* v = getattr(s, code.name(ins.arg));
      if (ins.op == LoadSuperMethod) {
        if (v->is(Kind::BoundMethod)) {
          f.push(v->as<BoundMethodVariable>()->function);
          f.push(v->as<BoundMethodVariable>()->self);
          return true;
        }
        f.push(nullptr);
      }
      f.push(v);
      return true;
    }
    case StoreAttr: {
      Variable *obj = f.pop(), *value = f.pop();
      setattr(obj, code.name(ins.arg), value);
      return true;
    }
    case DeleteAttr: setattr(f.pop(), code.name(ins.arg), nullptr); return true;
    case BinarySubscr: {
      Variable *key = f.pop(), *v = f.pop();
      Variable* r = getitem(v, key);
      f.push(r);
      return true;
    }
    case StoreSubscr: {
      Variable *key = f.pop(), *container = f.pop(), *value = f.pop();
      setitem(container, key, value);
      return true;
    }
    case DeleteSubscr: {
      Variable *key = f.pop(), *container = f.pop();
      delitem(container, key);
      return true;
    }
    case BinarySlice: {
      Variable *stop = f.pop(), *start = f.pop(), *v = f.pop();
      f.push(getitem(v, make<SliceVariable>(start, stop, none())));
      return true;
    }
    case StoreSlice: {
      Variable *stop = f.pop(), *start = f.pop(), *v = f.pop(), *value = f.pop();
      setitem(v, make<SliceVariable>(start, stop, none()), value);
      return true;
    }
    case BinaryOp: {
      Variable *b = f.pop(), *a = f.pop();
      f.push(binary_op(ins.arg, a, b));
      return true;
    }
    case CompareOp: {
      Variable *b = f.pop(), *a = f.pop();
      f.push(compare(ins.arg, a, b));
      return true;
    }
    case IsOp: {
      Variable *b = f.pop(), *a = f.pop();
      f.push(boolean(identical(a, b) != (ins.arg == 1)));
      return true;
    }
    case ContainsOp: {
      Variable *container = f.pop(), *item = f.pop();
      f.push(boolean(contains(container, item) != (ins.arg == 1)));
      return true;
    }
    case UnaryPositive:
    case UnaryNegative:
    case UnaryNot:
    case UnaryInvert: {
      Variable* v = f.pop();
      f.push(unary_op(ins.op, v));
      return true;
    }
    case BuildTuple: f.push(tuple(take(f, ins.arg))); return true;
    case BuildList: f.push(list(take(f, ins.arg))); return true;
    case BuildSet: {
      auto* s = make<SetVariable>();
      for (Variable* v : take(f, ins.arg)) s->add(*this, v);
      f.push(s);
      return true;
    }
    case BuildMap: {
      auto* d = dict();
      auto items = take(f, 2 * ins.arg);
      for (size_t i = 0; i < items.size(); i += 2) d->set(*this, items[i], items[i + 1]);
      f.push(d);
      return true;
    }
    case BuildConstKeyMap: {
      auto keys = unpack(f.pop());
      auto values = take(f, ins.arg);
      auto* d = dict();
      for (size_t i = 0; i < values.size(); ++i) d->set(*this, keys[i], values[i]);
      f.push(d);
      return true;
    }
    case BuildString: {
      Ref parts = Ref::steal(PyList_New(0));
      for (Variable* v : take(f, ins.arg)) PyList_Append(parts.get(), to_python(v).get());
      Ref empty = Ref::steal(PyUnicode_FromString(""));
      Ref s = Ref::steal(PyUnicode_Join(empty.get(), parts.get()));
      if (!s) raise_current();
      f.push(constant(s));
      return true;
    }
    case BuildSlice: {
      Variable* step = ins.arg == 3 ? f.pop() : none();
      Variable *stop = f.pop(), *start = f.pop();
      f.push(make<SliceVariable>(start, stop, step));
      return true;
    }
    case ListExtend: {
      Variable* from = force(f.pop());
      bool constant_alone = from->is(Kind::Constant) && !Py_TYPE(from->as_constant())->tp_iter && !PySequence_Check(from->as_constant());
      if (constant_alone) raise(PyExc_TypeError, std::string("Value after * must be an iterable, not ") + from->type()->tp_name);
      auto more = unpack(from);
      auto* l = force(f.top(ins.arg))->as<ListVariable>();
      l->change(*this);
      l->elements.insert(l->elements.end(), more.begin(), more.end());
      return true;
    }
    case ListAppend: {
      Variable* v = f.pop();
      auto* l = force(f.top(ins.arg))->as<ListVariable>();
      l->change(*this);
      l->elements.push_back(v);
      return true;
    }
    case SetAdd: {
      Variable* v = f.pop();
      auto* s = force(f.top(ins.arg))->as<SetVariable>();
      s->change(*this);
      s->add(*this, v);
      return true;
    }
    case SetUpdate: {
      Variable* more = f.pop();
      auto* s = force(f.top(ins.arg))->as<SetVariable>();
      s->change(*this);
      s->merge(*this, more);
      return true;
    }
    case MapAdd: {
      Variable *value = f.pop(), *key = f.pop();
      force(f.top(ins.arg))->as<DictVariable>()->set(*this, key, value);
      return true;
    }
    case DictUpdate:
    case DictMerge: {
      Variable* other = force(f.pop());
      auto* d = force(f.top(ins.arg))->as<DictVariable>();
      if (ins.op == DictMerge) {
        Variable* mapping = other->is(Kind::Object) && other->as<ObjectVariable>()->base ? other->as<ObjectVariable>()->base : other;
        if (mapping->is(Kind::Dict))
          for (Variable* k : mapping->items(*this))
            if (d->contains(*this, k)) raise(PyExc_TypeError, "got multiple values for keyword argument " + force(k)->describe());
      }
      if (!getattr_or_null(other, intern("keys"))) {
        if (ins.op == DictMerge) unsupported("keyword arguments from " + other->describe());
        raise(PyExc_TypeError, std::string("'") + other->type()->tp_name + "' object is not a mapping");
      }
      Args args{{other}, {}};
      d->call_method(*this, "update", args);
      return true;
    }
    case ListToTuple: f.push(tuple(force(f.pop())->as<ListVariable>()->elements)); return true;
    case FormatValue: {
      std::string spec;
      if (ins.arg & 4) {
        Ref s = to_python(f.pop());
        const char* text = PyUnicode_Check(s.get()) ? PyUnicode_AsUTF8(s.get()) : nullptr;
        if (!text) {
          PyErr_Clear();
          unsupported("a format that is no string of characters");
        }
        spec = text;
      }
      Variable* v = f.pop();
      f.push(format(v, spec, ins.arg & 3));
      return true;
    }
    case UnpackSequence: unpack_sequence(f, ins.arg); return true;
    case UnpackEx: unpack_ex(f, ins.arg & 0xff, ins.arg >> 8); return true;
    case GetLen: f.push(integer(len(f.top()))); return true;
    case MatchMapping:
    case MatchSequence: {
      Variable* v = force(f.top());
      unsigned long flag = ins.op == MatchMapping ? Py_TPFLAGS_MAPPING : Py_TPFLAGS_SEQUENCE;
      f.push(boolean(v->type()->tp_flags & flag));
      return true;
    }
    case MatchKeys: {
      auto keys = unpack(f.top(1));
      Variable* subject = force(f.top(2));
      std::vector<Variable*> values;
      for (size_t i = 0; i < keys.size(); ++i)
        for (size_t j = 0; j < i; ++j)
          if (equal(keys[i], keys[j])) unsupported(Reason::RaisedException, "a key that comes twice in a pattern");
      for (Variable* k : keys) {
        Variable* v = subject->is(Kind::Dict) ? subject->as<DictVariable>()->get(*this, k) : contains(subject, k) ? getitem(subject, k) : nullptr;
        if (!v) {
          f.push(none());
          return true;
        }
        values.push_back(v);
      }
      f.push(tuple(values));
      return true;
    }
    case MatchClass: match_class(f, ins.arg); return true;
    case LoadBuildClass: {
      static PyObject* build = PyDict_GetItemString(PyEval_GetBuiltins(), "__build_class__");
      f.push(global_object(build));
      return true;
    }
    case ImportName: {
      Ref from = to_python(f.pop()), level = to_python(f.pop());
      // Importing what is imported already has no effects; what is not would be imported by the code as well.
      Ref m = Ref::steal(PyImport_ImportModuleLevelObject(code.name(ins.arg), f.globals, nullptr, from.get(), static_cast<int>(PyLong_AsLong(level.get()))));
      if (!m) raise_current();
      f.push(global_object(m.get()));
      return true;
    }
    case ImportFrom: {
      Variable* v = getattr_or_null(f.top(), code.name(ins.arg));
      if (!v) unsupported("a name to import that is not there");
      f.push(v);
      return true;
    }
    default: return false;
  }
}

void Translator::unpack_sequence(Frame& f, int n) {
  Variable* v = force(f.pop());
  bool iterable = v->type()->tp_iter || (v->type()->tp_as_sequence && v->type()->tp_as_sequence->sq_item);
  if (!iterable || (v->is(Kind::Constant) && !v->as<ConstantVariable>()->has_len(*this) && !PyRange_Check(v->as_constant())))
    raise(PyExc_TypeError, std::string("cannot unpack non-iterable ") + v->type()->tp_name + " object");
  auto items = v->items(*this);
  if (static_cast<int>(items.size()) < n)
    raise(PyExc_ValueError, "not enough values to unpack (expected " + std::to_string(n) + ", got " + std::to_string(items.size()) + ")");
  if (static_cast<int>(items.size()) > n) raise(PyExc_ValueError, "too many values to unpack (expected " + std::to_string(n) + ")");
  for (int i = n - 1; i >= 0; --i) f.push(items[static_cast<size_t>(i)]);
}

void Translator::unpack_ex(Frame& f, int before, int after) {
  auto items = unpack(f.pop());
  int n = static_cast<int>(items.size());
  if (n < before + after)
    raise(PyExc_ValueError, "not enough values to unpack (expected at least " + std::to_string(before + after) + ", got " + std::to_string(n) + ")");
  for (int i = 0; i < after; ++i) f.push(items[static_cast<size_t>(n - 1 - i)]);
  f.push(list({items.begin() + before, items.end() - after}));
  for (int i = before - 1; i >= 0; --i) f.push(items[static_cast<size_t>(i)]);
}

void Translator::match_class(Frame& f, int n) {
  auto names = unpack(f.pop());
  Variable *cls = force(f.pop()), *subject = force(f.pop());
  PyObject* c = cls->as_constant();
  if (!c || !PyType_Check(c)) raise(PyExc_TypeError, "called match pattern must be a class");
  if (!is_instance(subject, c)) {
    f.push(none());
    return;
  }
  std::vector<Variable*> values;
  if (n > 0) {
    static const char* self_matching[] = {"bool", "bytearray", "bytes", "dict", "float", "frozenset", "int", "list", "set", "str", "tuple"};
    Variable* args = getattr_or_null(cls, "__match_args__");
    if (args) {
      if (!PyType_IsSubtype(force(args)->type(), &PyTuple_Type)) unsupported(Reason::RaisedException, "__match_args__ that is no tuple");
      auto fields = unpack(args);
      if (static_cast<int>(fields.size()) < n) raise(PyExc_TypeError, "too many positional sub-patterns");
      for (int i = 0; i < n; ++i) {
        PyObject* field = constant_of(force(fields[static_cast<size_t>(i)]));
        bool once = field && PyUnicode_Check(field);
        for (int j = 0; once && j < i; ++j) once = PyUnicode_Compare(constant_of(force(fields[static_cast<size_t>(j)])), field) != 0;
        for (Variable* name : names) once = once && PyUnicode_Compare(constant_of(force(name)), field) != 0;
        if (!once) unsupported(Reason::RaisedException, "fields of a class pattern that are no names or come twice");
        Variable* v = getattr_or_null(subject, field);
        if (!v) return f.push(none());
        values.push_back(v);
      }
    } else {
      bool self = false;
      for (const char* s : self_matching) self |= std::string_view(s) == reinterpret_cast<PyTypeObject*>(c)->tp_name;
      if (!self || n > 1) raise(PyExc_TypeError, "class accepts no positional sub-patterns");
      values.push_back(subject);
    }
  }
  for (Variable* name : names) {
    Variable* v = getattr_or_null(subject, constant_of(force(name)));
    if (!v) return f.push(none());
    values.push_back(v);
  }
  f.push(tuple(values));
}

}  // namespace braze::capture
