// print(): what is to be written is known, up to tensors and numbers that only the run knows; it is written when the
// entry runs, after its graph, in order with other messages.
#include <string_view>

#include "capture/builtins/builtins.h"
#include "capture/builtins/messages.h"
#include "capture/cpython/imported.h"
#include "capture/eval/library_objects.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"

namespace braze::capture {
namespace {

// Whether nothing but what writes to this object sees it written to: its methods are those of the interpreter's own
// streams.
bool is_plain_stream(Translator& tr, PyTypeObject* t) {
  for (const char* name : {"write", "flush"}) {
    SourceId at;
    PyObject* method = tr.attributes.lookup_on_type(t, tr.intern(name), &at);
    if (!method || Py_TYPE(method) != &PyMethodDescr_Type) return false;
    tr.guard_identity(at, method);
  }
  return true;
}

// The object of a value that was there before, of which only the class is guarded.
PyObject* of_guarded_class(Translator& tr, Variable* v) {
  if (!v->is(Kind::Lazy)) return v->as_constant();
  PyObject* o = v->as<LazyVariable>()->object.get();
  tr.guards().type_is(v->source, Py_TYPE(o), tr.line());
  return o;
}

// Where print() writes to by default. nullptr: the captured code put it there.
Variable* standard_output(Translator& tr) {
  static PyObject* sys = PyImport_ImportModule("sys");
  PyObject* dict = PyModule_GetDict(sys);
  auto* state = tr.force(tr.wrap(dict, tr.sources().constant(dict)))->as<DictVariable>();
  return state->wrote(tr, tr.intern("stdout")) ? nullptr : state->get(tr, tr.intern("stdout"));
}

// What is printed for it later: its text, if that is known, or itself, if it is a tensor of which no history would be
// printed, or a number of the run. nullptr: neither.
Variable* printed(Translator& tr, Variable* v) {
  v = tr.force(v);
  if (v->is(Kind::Float) || v->is(Kind::Sym)) return v;
  if (!v->is(Kind::Tensor)) return tr.format(v, "", 1);
  auto* t = v->as<TensorVariable>();
  Ref history = Ref::steal(native::attr(Ground::pure(t), t->value(tr), "requires_grad"));
  if (history.get() != Py_False || t->type() != library().tensor) return nullptr;
  static PyObject* clone = native::attr(Ground::fixed(), reinterpret_cast<PyObject*>(library().tensor), "clone");
  return tr.real.call_torch(clone, Args{{v}, {}});  // later writes to it are not to be seen
}

// Whether the call itself is right: its errors come at once, not when the entry writes.
bool well_called(Translator& tr, const Args& a) {
  for (auto& [name, v] : a.kw) {
    std::string_view n = PyUnicode_AsUTF8(name);
    if (n == "file" || n == "flush") continue;
    PyObject* text = constant_of(tr.force(v));
    if ((n != "sep" && n != "end") || !text || (text != Py_None && !PyUnicode_Check(text))) return false;
  }
  return true;
}

Variable* print(Translator& tr, Args& a) {
  const char* why = "print() of what only the run knows, or to a stream that the program looks at";
  if (!well_called(tr, a)) tr.unsupported(Reason::Print, why);
  Args later;
  Variable* file = nullptr;
  for (auto& [name, v] : a.kw) {
    bool is_file = PyUnicode_CompareWithASCIIString(name, "file") == 0;
    const bool names_none = is_none(v) || object_behind(v) == Py_None;
    if (is_file && v->source.valid() && !names_none)
      file = v;
    else if (!tr.real.is_python_constant(v) || (is_file && !is_none(tr.force(v))))
      tr.unsupported(Reason::Print, why);
    if (!is_file || file) later.kw.emplace_back(name, v);
  }
  const bool by_default = !file;
  if (by_default) file = standard_output(tr);
  PyObject* stream = file ? of_guarded_class(tr, file) : nullptr;
  // Without a stream nothing is printed.
  if (!stream || (stream != Py_None && !is_plain_stream(tr, Py_TYPE(stream)))) tr.unsupported(Reason::Print, why);
  for (Variable* v : a.pos) {
    Variable* p = printed(tr, v);
    if (!p) tr.unsupported(Reason::Print, why);
    later.pos.push_back(p);
  }
  if (stream == Py_None) return tr.none();
  // The program may replace it before the entry writes.
  if (by_default) later.kw.emplace_back(tr.intern("file"), file);
  static PyObject* function = imported("builtins", "print", true);
  tr.effects.defer_call(tr.global_object(function, Ground::fixed()), std::move(later));
  return tr.none();
}

}  // namespace

void register_print_builtin() { register_builtin("builtins", "print", print); }

}  // namespace braze::capture
