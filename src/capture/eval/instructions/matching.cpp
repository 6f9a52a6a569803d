// The match statement.
#include "capture/eval/instructions/instructions.h"
#include "capture/eval/library_objects.h"
#include "capture/vars/all.h"

namespace braze::capture {
namespace {

void match_class(Translator& tr, Frame& f, int n) {
  auto names = tr.unpack(f.pop());
  Variable *cls = tr.force(f.pop()), *subject = tr.force(f.pop());
  PyObject* c = cls->as_constant();
  if (!c || !PyType_Check(c)) tr.raise(PyExc_TypeError, "called match pattern must be a class");
  if (!tr.is_instance(subject, c)) {
    f.push(tr.none());
    return;
  }
  std::vector<Variable*> values;
  if (n > 0) {
    static const char* self_matching[] = {"bool", "bytearray", "bytes", "dict", "float", "frozenset",
                                          "int",  "list",      "set",   "str",  "tuple"};
    Variable* args = tr.getattr_or_null(cls, "__match_args__");
    if (args) {
      if (!PyType_IsSubtype(tr.force(args)->type(), &PyTuple_Type))
        tr.unsupported(Reason::RaisedException, "__match_args__ that is no tuple");
      auto fields = tr.unpack(args);
      if (static_cast<int>(fields.size()) < n) tr.raise(PyExc_TypeError, "too many positional sub-patterns");
      for (int i = 0; i < n; ++i) {
        PyObject* field = constant_of(tr.force(fields[static_cast<size_t>(i)]));
        bool once = field && PyUnicode_Check(field);
        for (int j = 0; once && j < i; ++j)
          once = PyUnicode_Compare(constant_of(tr.force(fields[static_cast<size_t>(j)])), field) != 0;
        for (Variable* name : names) once = once && PyUnicode_Compare(constant_of(tr.force(name)), field) != 0;
        if (!once) tr.unsupported(Reason::RaisedException, "fields of a class pattern that are no names or come twice");
        Variable* v = tr.getattr_or_null(subject, field);
        if (!v) return f.push(tr.none());
        values.push_back(v);
      }
    } else {
      bool self = false;
      for (const char* s : self_matching) self |= std::string_view(s) == reinterpret_cast<PyTypeObject*>(c)->tp_name;
      if (!self || n > 1) tr.raise(PyExc_TypeError, "class accepts no positional sub-patterns");
      values.push_back(subject);
    }
  }
  for (Variable* name : names) {
    Variable* v = tr.getattr_or_null(subject, constant_of(tr.force(name)));
    if (!v) return f.push(tr.none());
    values.push_back(v);
  }
  f.push(tr.tuple(values));
}

}  // namespace

void Instructions::MatchMapping(Execution& x) {
  Variable* v = x.tr.force(x.f.top());
  unsigned long flag = x.ins.op == Opcode::MatchMapping ? Py_TPFLAGS_MAPPING : Py_TPFLAGS_SEQUENCE;
  x.f.push(x.tr.boolean(v->type()->tp_flags & flag, Ground::pure(v)));
}
void Instructions::MatchSequence(Execution& x) { MatchMapping(x); }

void Instructions::MatchKeys(Execution& x) {
  auto keys = x.tr.unpack(x.f.top(1));
  Variable* subject = x.tr.force(x.f.top(2));
  std::vector<Variable*> values;
  for (size_t i = 0; i < keys.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (x.tr.equal(keys[i], keys[j]))
        x.tr.unsupported(Reason::RaisedException, "a key that comes twice in a pattern");
  for (Variable* k : keys) {
    Variable* v = subject->is(Kind::Dict)     ? subject->as<DictVariable>()->get(x.tr, k)
                  : x.tr.contains(subject, k) ? x.tr.getitem(subject, k)
                                              : nullptr;
    if (!v) {
      x.f.push(x.tr.none());
      return;
    }
    values.push_back(v);
  }
  x.f.push(x.tr.tuple(values));
}

void Instructions::MatchClass(Execution& x) { match_class(x.tr, x.f, x.ins.arg); }

}  // namespace braze::capture
