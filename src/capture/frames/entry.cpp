#include "capture/frames/entry.h"

#include "capture/guards/guard_eval.h"

namespace braze::capture {

Entry::~Entry() {
  for (PyObject* c : constants) Py_XDECREF(c);
}

int Entry::traverse(visitproc visit, void* arg) const {
  for (PyObject* c : constants) Py_VISIT(c);
  Py_VISIT(callable.get());
  if (speed)
    if (int r = speed->traverse(visit, arg)) return r;
  for (size_t i = 0; sources && i < sources->size(); ++i) Py_VISIT((*sources)[SourceId(i)].key.owned());
  for (const Step& s : recipe.steps()) Py_VISIT(s.object.owned());
  return guards ? guards->traverse(visit, arg) : 0;
}

}  // namespace braze::capture
