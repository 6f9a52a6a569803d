#include "capture/frames/entry.h"

#include "capture/guards/guards_eval.h"

namespace braze::capture {

Entry::~Entry() {
  for (PyObject* c : constants) Py_XDECREF(c);
}

int Entry::traverse(visitproc visit, void* arg) const {
  for (PyObject* c : constants) Py_VISIT(c);
  Py_VISIT(callable.get());
  for (size_t i = 0; sources && i < sources->size(); ++i) Py_VISIT((*sources)[SourceId(i)].key.owned());
  for (const Step& s : recipe.steps()) Py_VISIT(s.object.owned());
  return guards ? capture::traverse(*guards, visit, arg) : 0;
}

}  // namespace braze::capture
