// Warnings: those without tensors in them are given when the entry runs, and end no graph.
#include "capture/builtins/messages.h"

#include "capture/builtins/builtins.h"
#include "capture/eval/library_objects.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"

namespace braze::capture {

PyObject* object_behind(Variable* v) {
  switch (v->kind) {
    case Kind::Lazy: return v->as<LazyVariable>()->object.get();
    case Kind::List: return v->as<ListVariable>()->real.get();
    case Kind::Dict: return v->as<DictVariable>()->real.get();
    case Kind::Object: return v->as<ObjectVariable>()->real.get();
    default: return nullptr;
  }
}

namespace {

// Whether it is this object, or one whose attribute it is, or a method of such a one.
bool leads_to(PyObject* o, PyObject* object) {
  if (o && PyMethod_Check(o)) o = PyMethod_GET_SELF(o);
  if (!o || o == object) return o != nullptr;
  PyObject** dict = _PyObject_GetDictPtr(o);
  PyObject *key, *value;
  for (Py_ssize_t pos = 0; dict && *dict && PyDict_Next(*dict, &pos, &key, &value);)
    if (value == object) return true;
  return false;
}

bool leads_to(Variable* v, PyObject* object) {
  if (!v) return false;
  if (v->is(Kind::BoundMethod)) return leads_to(v->as<BoundMethodVariable>()->self, object);
  if (!v->is(Kind::Cell)) return leads_to(object_behind(v), object);
  auto* cell = v->as<CellVariable>();
  return leads_to(cell->contents, object) || (cell->real && leads_to(PyCell_GET(cell->real.get()), object));
}

}  // namespace

bool frames_lead_to(Translator& tr, PyObject* object) {
  for (Frame* f = tr.frame(); f; f = f->parent) {
    for (Variable* v : f->locals)
      if (leads_to(v, object)) return true;
    for (int i = 0; i < f->sp; ++i)
      if (leads_to(f->stack[static_cast<size_t>(i)], object)) return true;
    PyObject *key, *value;
    for (Py_ssize_t pos = 0; PyDict_CheckExact(f->globals) && PyDict_Next(f->globals, &pos, &key, &value);)
      if (!PyModule_Check(value) && leads_to(value, object)) return true;
  }
  return false;
}

namespace {

PyObject* warn_explicit() {
  static PyObject* f = [] {
    Ref m = Ref::steal(PyImport_ImportModule("_warnings"));
    return native::attr(Ground::fixed(), m.get(), "warn_explicit");
  }();
  return f;
}

PyObject* warnings_dict() {
  static PyObject* module = PyImport_ImportModule("warnings");
  return PyModule_GetDict(module);
}
DictVariable* warnings_state(Translator& tr) {
  return tr.force(tr.wrap(warnings_dict(), tr.sources().constant(warnings_dict())))->as<DictVariable>();
}

// Whether the code in this capture can see what becomes of a warning: it set how warnings are shown or filtered itself,
// holds the list that they are recorded in, or gets an error in its place.
bool warning_is_observed(Translator& tr, PyObject* category) {
  DictVariable* state = warnings_state(tr);
  for (const char* name : {"filters", "showwarning", "_showwarnmsg_impl", "_showwarnmsg"})
    if (state->wrote(tr, tr.intern(name))) return true;
  Variable* shown_by = state->get(tr, tr.intern("_showwarnmsg_impl"));
  PyObject* impl = shown_by ? tr.force(shown_by)->as_constant() : nullptr;
  PyObject* records = impl && PyCFunction_Check(impl) ? PyCFunction_GET_SELF(impl) : nullptr;
  if (records && !PyModule_Check(records) && frames_lead_to(tr, records)) return true;
  Variable* filters = state->get(tr, tr.intern("filters"));
  if (!filters || !tr.force(filters)->is(Kind::List)) return true;
  for (Variable* entry : tr.force(filters)->items(tr)) {
    Variable* row = tr.force(entry);
    if (!row->is(Kind::Tuple) || row->as<TupleVariable>()->elements.size() < 3) return true;
    const auto& columns = row->as<TupleVariable>()->elements;
    PyObject *action = tr.force(columns[0])->as_constant(), *of = nullptr;
    if (!action || !PyUnicode_Check(action)) return true;
    if (PyUnicode_CompareWithASCIIString(action, "error") != 0) continue;
    of = tr.force(columns[2])->as_constant();
    if (!of || tr.is_subclass(category, of)) return true;
  }
  return false;
}

// warnings.warn(message, category=None, stacklevel=1): for the line that it names, with the registry of that line's
// module, so that the filters decide as in eager.
Variable* warn(Translator& tr, Args& a) {
  Args rest = a;
  Variable *message = a.size() > 0 ? a[0] : rest.take_kw("message"),
           *category = a.size() > 1 ? a[1] : rest.take_kw("category");
  Variable* stacklevel = a.size() > 2 ? a[2] : rest.take_kw("stacklevel");
  if (!message || a.size() > 3 || !rest.kw.empty()) return nullptr;
  message = tr.force(message);
  PyObject* text = constant_of(message);
  if (!text || !PyUnicode_Check(text)) return nullptr;
  PyObject* cls = category && !is_none(tr.force(category)) ? tr.force(category)->as_constant() : PyExc_UserWarning;
  if (!cls || !PyExceptionClass_Check(cls) || warning_is_observed(tr, cls)) return nullptr;
  int64_t level = 1;
  if (stacklevel) {
    PyObject* n = constant_of(tr.force(stacklevel));
    if (!n || !PyLong_Check(n)) return nullptr;
    level = PyLong_AsLongLong(n);
  }
  Frame* f = tr.frame();
  for (; f && level > 1; --level) f = f->parent;
  if (!f) return nullptr;  // a line outside of what is compiled
  static PyObject* key = PyUnicode_InternFromString("__warningregistry__");
  static PyObject* name_key = PyUnicode_InternFromString("__name__");
  if (!native::item(Ground::made(), f->globals, key)) {  // as the interpreter does
    Ref fresh = Ref::steal(PyDict_New());
    PyDict_SetItem(f->globals, key, fresh.get());
  }
  DictVariable* globals = tr.globals_dict(*f);
  Variable *registry = globals->get(tr, key), *module = globals->get(tr, name_key);
  if (!registry) return nullptr;
  Args call{{message, tr.global_object(cls, Ground::pure(a)), tr.constant(f->code->code->co_filename, Ground::pure(a)),
             tr.integer(f->line().line, Ground::pure(a)), module ? module : tr.none(), registry},
            {}};
  PyObject* filters = object_behind(tr.force(warnings_state(tr)->get(tr, tr.intern("filters"))));
  std::vector<PyObject*> way{warnings_dict()};
  if (filters) way.push_back(filters);
  tr.effects.defer_message(tr.global_object(warn_explicit(), Ground::pure(a)), std::move(call), way);
  return tr.none();
}

// Whether the filter that comes first was there before, or hides warnings: then it does not matter that functions which
// capture calls once and for all warn before the filter is set.
bool first_filter_hides(Translator& tr) {
  Variable* filters = warnings_state(tr)->get(tr, tr.intern("filters"));
  if (!filters || tr.force(filters)->kind != Kind::List) return false;
  std::vector<Variable*> rows = tr.force(filters)->items(tr);
  Variable* first = rows.empty() ? nullptr : tr.force(rows[0]);
  if (!first || first->kind != Kind::Tuple) return false;
  auto* row = first->as<TupleVariable>();
  if (row->real) return true;
  PyObject* action = row->elements.empty() ? nullptr : tr.force(row->elements[0])->as_constant();
  return action && PyUnicode_Check(action) && PyUnicode_CompareWithASCIIString(action, "ignore") == 0;
}

// The filters that are set while capturing are set when the entry runs: so is what it remembers of them.
Variable* filters_mutated(Translator& tr, Args& a) {
  if (a.size() || !a.kw.empty() || !first_filter_hides(tr)) return nullptr;
  static PyObject* fn = [] {
    Ref m = Ref::steal(PyImport_ImportModule("_warnings"));
    return native::attr(Ground::fixed(), m.get(), "_filters_mutated");
  }();
  tr.effects.defer_call(tr.global_object(fn, Ground::pure(a)), Args{});
  return tr.none();
}

}  // namespace

void register_message_builtins() {
  register_builtin("_warnings", "warn", warn);
  register_builtin("_warnings", "_filters_mutated", filters_mutated);
  register_builtin("warnings", "warn", warn);
}

}  // namespace braze::capture
