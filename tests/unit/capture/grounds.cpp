// Compiles as it stands; with UNGROUNDED_CONSTANT or RAW_READ defined it must not: what capture knows of a program has
// a ground.
#include "capture/eval/translator.h"
#include "capture/vars/all.h"

using namespace braze::capture;

Variable* fold(Translator& tr, Variable* a) {
#ifdef UNGROUNDED_CONSTANT
  return tr.integer(a->len(tr));
#else
  return tr.integer(a->len(tr), Ground::pure(a));
#endif
}

PyObject* look(PyObject* o) {
#ifdef RAW_READ
  return PyObject_GetAttrString(o, "name");
#else
  return native::attr(Ground::made(), o, "name");
#endif
}
