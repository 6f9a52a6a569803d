#include "capture/code/kept_ends.h"

#include <Python.h>
#include <frameobject.h>

#include <unordered_set>

#include "base/check.h"
#include "capture/code/bytecode.h"
#include "capture/cpython/frame.h"
#include "capture/cpython/generator.h"

namespace braze::capture {
namespace {

constexpr size_t kMostObjects = 1000;

// Of a generator, one that has not begun too.
bool may_have_end_to_run(PyObject* generator) {
  Ref content = Ref::steal(cpython::generator_content(generator));
  if (!content) return true;
  if (PyTuple_GET_SIZE(content.get()) == 0) return false;
  try {
    PyObject* function = PyTuple_GET_ITEM(content.get(), 0);
    const Bytecode& code = decode(reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function)));
    for (size_t i = 0; i < code.instructions.size(); ++i)
      if (code.instructions[i].op == Opcode::YieldValue && code.has_end_to_run(static_cast<int32_t>(i))) return true;
    return false;
  } catch (const Unsupported&) {
    return true;
  }
}

bool has_end_to_run(cpython::Frame* f) {
  if (!f) return false;
  try {
    const Bytecode& code = decode(cpython::code(f));
    return code.has_end_to_run(code.index_at[static_cast<size_t>(cpython::left_at(f)) / 2]);
  } catch (const Unsupported&) {
    return true;
  }
}

class Search {
 public:
  explicit Search(bool ever = false) : ever_(ever) {}

  bool in_exception(PyObject* e, PyObject* traceback) {
    if (!e || !seen_.insert(e).second) return false;
    bool some = traceback && PyTraceBack_Check(traceback);  // e.with_traceback(None) leaves None there
    for (auto* tb = some ? reinterpret_cast<PyTracebackObject*>(traceback) : nullptr; tb; tb = tb->tb_next)
      if (in_frame(cpython::frame_of(tb->tb_frame))) return true;
    for (PyObject* other :
         {reinterpret_cast<PyBaseExceptionObject*>(e)->context, reinterpret_cast<PyBaseExceptionObject*>(e)->cause})
      if (other && PyExceptionInstance_Check(other) &&
          in_exception(other, reinterpret_cast<PyBaseExceptionObject*>(other)->traceback))
        return true;
    return false;
  }

  bool in_frame(cpython::Frame* f) {
    for (int i = 0, n = cpython::code(f)->co_nlocalsplus; i < n; ++i)
      if (in_object(cpython::slot(f, i))) return true;
    return false;
  }

  // Iterators hold others, some in a tuple: a generator those that its frame waits for.
  bool in_object(PyObject* o) {
    if (!o || seen_.size() > kMostObjects || !seen_.insert(o).second) return false;
    bool ends = PyGen_CheckExact(o) ? ever_ ? may_have_end_to_run(o) : has_end_to_run(cpython::suspended(o))
                                    : Py_TYPE(o)->tp_finalize != nullptr;
    if (ends) return true;
    if (!(Py_TYPE(o)->tp_iternext || PyCell_Check(o) || PyTuple_CheckExact(o)) || !Py_TYPE(o)->tp_traverse ||
        !PyObject_IS_GC(o))
      return false;
    auto visit = [](PyObject* held, void* search) {
      return static_cast<int>(static_cast<Search*>(search)->in_object(held));
    };
    return Py_TYPE(o)->tp_traverse(o, visit, this) != 0;
  }

 private:
  bool ever_;
  std::unordered_set<PyObject*> seen_;
};

}  // namespace

bool keeps_end(PyObject* object) { return Search().in_object(object); }
bool may_keep_end(PyObject* object) { return Search(true).in_object(object); }

bool raised_keeps_end() {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  bool found = Search().in_exception(value, traceback);
  PyErr_Restore(type, value, traceback);
  return found;
}

}  // namespace braze::capture
