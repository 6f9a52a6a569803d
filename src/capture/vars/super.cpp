// super(): attributes of the classes after one in the order of a class, and tracebacks, which only a real raise gives.
#include "capture/eval/library_objects.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"

namespace braze::capture {

Variable* SuperVariable::getattr(Translator& tr, PyObject* name) {
  if (named(name, "__class__")) return tr.global_object(reinterpret_cast<PyObject*>(&PySuper_Type), Ground::pure(this));
  PyObject* self_object = self->as_constant();
  // A class is looked up in as such below another of its bases, and as an instance in methods of its metaclass.
  const bool through_class =
      self_object && PyType_Check(self_object) && PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(self_object), after);
  PyTypeObject* start = through_class ? reinterpret_cast<PyTypeObject*>(self_object) : self->type();
  tr.attributes.guard_bases(start);
  PyObject* mro = start->tp_mro;
  Py_ssize_t n = PyTuple_GET_SIZE(mro), i = 0;
  while (i < n && PyTuple_GET_ITEM(mro, i) != reinterpret_cast<PyObject*>(after)) ++i;
  auto in_dict = [&](PyTypeObject* of) { return tr.sources().dict_item(tr.sources().constant(type_dict(of)), name); };
  for (Py_ssize_t j = i + 1; j < n; ++j) {
    auto* t = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(mro, j));
    PyObject* d = native::item(is_fixed_type(t) ? Ground::fixed() : Ground::guarded(in_dict(t)), type_dict(t), name);
    if (!d) continue;
    // In the classes' own dicts: none of those between has the name.
    SourceId at;
    for (Py_ssize_t k = i + 1; k <= j; ++k) {
      auto* between = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(mro, k));
      if (is_fixed_type(between)) continue;
      SourceId own = in_dict(between);
      if (k < j)
        tr.guards().absent(own, tr.line());
      else
        tr.guards().exists(at = own, tr.line());
    }
    if (through_class) {
      // Through a class: functions stay unbound, class methods bind to it.
      auto itself = [&] { return at.valid() ? tr.wrap(d, at) : tr.global_object(d, Ground::pure(this)); };
      PyTypeObject* kind = Py_TYPE(d);
      if (kind == &PyFunction_Type || kind == &PyWrapperDescr_Type || PyType_IsSubtype(kind, &PyProperty_Type))
        return itself();
      if (Py_TYPE(d)->tp_descr_get) {
        SourceId get_at;
        PyObject* get = tr.attributes.lookup_on_type(Py_TYPE(d), tr.intern("__get__"), &get_at);
        if (get && PyFunction_Check(get))
          return tr.call(tr.force(tr.wrap(get, get_at)), {tr.force(itself()), tr.none(), self});
      }
    }
    if (d == library().object_new || (named(name, "__new__") && PyCFunction_Check(d)))
      return tr.global_object(d, Ground::pure(this));
    return tr.attributes.bind_descriptor(d, at, self, start, name);
  }
  for (Py_ssize_t j = i + 1; j < n; ++j)
    if (auto* t = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(mro, j)); !is_fixed_type(t))
      tr.guards().absent(in_dict(t), tr.line());
  return nullptr;
}

Variable* TracebackVariable::getattr(Translator& tr, PyObject*) {
  tr.raise_natively(exception, "the traceback of an exception");
}
Reg TracebackVariable::build(Codegen& cg) { cg.tr.raise_natively(exception, "the traceback of an exception"); }

}  // namespace braze::capture
