#include "capture/eval/index_protocol.h"

#include <string_view>
#include <unordered_set>

#include "capture/eval/library_objects.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"

namespace braze::capture {
namespace {

// The object's method of this name, a Python function, called; nullptr: it has none.
Variable* number_by(Translator& tr, Variable* v, const char* method) {
  PyTypeObject* t = v->type();
  bool plain_object = v->is(Kind::Object) && !v->as<ObjectVariable>()->base;
  // Numbers of the program's classes are read as what they hold, but a float is no index; texts and others have the
  // method if their class does.
  bool read = PyType_IsSubtype(t, &PyLong_Type) ||
              (PyType_IsSubtype(t, &PyFloat_Type) && std::string_view(method) != "__index__");
  bool holds_other = (v->is(Kind::Object) || v->is(Kind::Constant)) && !is_fixed_type(t) && !read;
  if (!plain_object && !holds_other) return nullptr;
  SourceId at;
  PyObject* f = tr.attributes.lookup_on_type(v->type(), tr.intern(method), &at);
  if (!f || !PyFunction_Check(f)) return nullptr;
  return tr.force(
      tr.call(tr.attributes.bind_descriptor(f, at, v, v->type(), tr.intern(method)), std::vector<Variable*>{}));
}

}  // namespace

Variable* index_of(Translator& tr, Variable* v) {
  v = tr.force(v);
  Variable* n = number_by(tr, v, "__index__");
  if (!n) return v;
  if (!PyType_IsSubtype(n->type(), &PyLong_Type))
    tr.raise(PyExc_TypeError, std::string("__index__ returned non-int (type ") + tr.name_of(n->type()) + ")");
  if (n->type() != &PyLong_Type) tr.unsupported("__index__ that does not return an int itself");  // a warning
  return n;
}

Variable* as_key(Translator& tr, Variable* container, Variable* key) {
  key = tr.force(key);
  if (!container->is(Kind::List) && !container->is(Kind::Tuple) && !container->is(Kind::Constant)) return key;
  if (!key->is(Kind::Slice)) return index_of(tr, key);
  Variable** parts = key->as<SliceVariable>()->parts;
  Variable* numbers[3];
  bool same = true;
  for (int i = 0; i < 3; ++i) {
    numbers[i] = index_of(tr, parts[i]);
    same = same && numbers[i] == tr.force(parts[i]);
  }
  return same ? key : tr.make<SliceVariable>(numbers[0], numbers[1], numbers[2]);
}

Args as_numbers(Translator& tr, PyObject* function, const Args& args) {
  Args out = args;
  Ref name = Ref::steal(native::attr(Ground::fixed(), function, "__name__")),
      module = Ref::steal(native::attr(Ground::fixed(), function, "__module__"));
  PyErr_Clear();
  const char* n = name && PyUnicode_Check(name.get()) ? PyUnicode_AsUTF8(name.get()) : "";
  bool of_math = module && PyUnicode_Check(module.get()) && PyUnicode_CompareWithASCIIString(module.get(), "math") == 0;
  static const std::unordered_set<std::string_view> own_methods{"floor", "ceil", "trunc"},
      of_ints{"gcd", "lcm", "comb", "perm", "factorial", "isqrt"},
      elsewhere{"index", "hex", "oct", "bin", "chr", "range"};
  bool floats = of_math && !of_ints.count(n) && !own_methods.count(n);
  if (!floats && !of_math && !elsewhere.count(n)) return out;
  for (Variable*& v : out.pos) {
    v = tr.force(v);
    if (of_math && own_methods.count(n)) continue;
    if (Variable* f = floats ? number_by(tr, v, "__float__") : nullptr) {
      if (f->type() != &PyFloat_Type) tr.unsupported("__float__ that does not return a float");
      v = f;
    } else {
      v = index_of(tr, v);
    }
  }
  return out;
}

}  // namespace braze::capture
