#include "capture/eval/translator.h"
#include "capture/guards/content.h"
#include "capture/vars/all.h"

namespace braze::capture {

DictVariable* ThreadLocalVariable::instance_dict(Translator& tr) {
  if (own_) return own_;
  PyObject* content = tr.keep(Ref::borrow(content_of(real.get())));
  SourceId at = tr.sources().derived(SourceKind::Content, source);
  tr.guards().length(at, 1, tr.line());
  return own_ = tr.force(tr.wrap(PyTuple_GET_ITEM(content, 0), tr.sources().tuple_item(at, 0)))->as<DictVariable>();
}

Variable* ThreadLocalVariable::getattr(Translator& tr, PyObject* name) {
  if (named(name, "__dict__")) return instance_dict(tr);
  return generic_getattr(tr, name);
}

void ThreadLocalVariable::setattr(Translator& tr, PyObject* name, Variable* value) {
  if (named(name, "__dict__"))
    tr.raise(PyExc_AttributeError, "'_thread._local' object attribute '__dict__' is read-only");
  generic_setattr(tr, name, value);
}

}  // namespace braze::capture
