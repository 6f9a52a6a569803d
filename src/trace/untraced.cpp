#include "trace/untraced.h"

#include "trace/below_tracing.h"

namespace braze::trace {

PyObject* call_untraced(PyObject* fn, PyObject* const* pos, size_t n, PyObject* kw) {
  c10::impl::ExcludeDispatchKeyGuard keys{c10::DispatchKeySet({kFakeKey, pytorch::kFrontKey}) |
                                          c10::DispatchKeySet(c10::DispatchKey::Functionalize)};
  return PyObject_VectorcallDict(fn, pos, n, kw);
}

}  // namespace braze::trace
