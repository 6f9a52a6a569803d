#include "trace/fixed_sizes.h"

#include <torch/csrc/Size.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/utils/python_symnode.h>

#include <string_view>
#include <vector>

#include "trace/fake_tensor.h"
#include "trace/graph_break.h"
#include "trace/trace.h"

namespace braze::trace {
namespace {

// Replaces sizes and tensors with symbols by those of this call.
class Fixer {
 public:
  Fixer(Recorder& recorder, const std::function<bool(PyObject*)>& is_symbol)
      : recorder_(recorder), is_symbol_(is_symbol) {}
  // New reference; nullptr with a Python exception set.
  PyObject* fix(PyObject* obj);

  struct {
    std::vector<PyObject*> from;
    std::vector<pybind11::object> to;  // none for a number
  } replaced;

 private:
  Recorder& recorder_;
  const std::function<bool(PyObject*)>& is_symbol_;
};

PyObject* Fixer::fix(PyObject* obj) {
  auto parts = [&](PyObject* made, Py_ssize_t n, auto&& get, auto&& set) -> PyObject* {
    for (Py_ssize_t i = 0; made && i < n; ++i) {
      PyObject* part = fix(get(obj, i));
      if (!part)
        Py_CLEAR(made);
      else
        set(made, i, part);
    }
    return made;
  };
  if (PyTuple_CheckExact(obj) || THPSize_Check(obj))
    return parts(
        PyTuple_New(PyTuple_GET_SIZE(obj)), PyTuple_GET_SIZE(obj),
        [](PyObject* o, Py_ssize_t i) { return PyTuple_GET_ITEM(o, i); },
        [](PyObject* o, Py_ssize_t i, PyObject* v) { PyTuple_SET_ITEM(o, i, v); });
  if (PyList_CheckExact(obj))
    return parts(
        PyList_New(PyList_GET_SIZE(obj)), PyList_GET_SIZE(obj),
        [](PyObject* o, Py_ssize_t i) { return PyList_GET_ITEM(o, i); },
        [](PyObject* o, Py_ssize_t i, PyObject* v) { PyList_SET_ITEM(o, i, v); });
  if (is_symbol_(obj)) {
    PyObject* plain = torch::is_symbool(obj) ? PyBool_FromLong(PyObject_IsTrue(obj)) : PyNumber_Long(obj);
    if (!PyErr_Occurred()) replaced.from.push_back(obj), replaced.to.emplace_back();
    return plain;
  }
  bool symbolic = THPVariable_Check(obj) && unwrap_fake(THPVariable_Unpack(obj)) &&
                  THPVariable_Unpack(obj).unsafeGetTensorImpl()->has_symbolic_sizes_strides();
  if (!symbolic) {
    Py_INCREF(obj);
    return obj;
  }
  const at::Tensor& t = THPVariable_Unpack(obj);
  // Strides that are no function of the sizes are symbols of their own.
  for (const c10::SymInt& s : t.sym_sizes()) s.guard_int(__FILE__, __LINE__);
  for (const c10::SymInt& s : t.sym_strides()) s.guard_int(__FILE__, __LINE__);
  t.sym_storage_offset().guard_int(__FILE__, __LINE__);
  recorder_.refresh_sizes();
  auto plain = pybind11::reinterpret_steal<pybind11::object>(THPVariable_Wrap(at::alias(t)));
  replaced.from.push_back(obj);
  replaced.to.push_back(plain);
  return plain.release().ptr();
}

}  // namespace

bool may_be_of_symbols() {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  Reason reason{};
  bool may = !is_graph_break_exception(value, &reason, nullptr) || reason == Reason::UnsupportedOp;
  PyErr_Restore(type, value, traceback);
  return may;
}

PyObject* call_with_fixed_sizes(Recorder& recorder, const std::function<bool(PyObject*)>& is_symbol, PyObject* fn,
                                PyObject* const* args, size_t nargs, PyObject* kwargs) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  Fixer fixer(recorder, is_symbol);
  auto& [from, to] = fixer.replaced;
  std::vector<pybind11::object> plain;
  pybind11::dict named;
  try {
    for (size_t i = 0; i < nargs; ++i) {
      PyObject* v = fixer.fix(args[i]);
      if (!v) throw pybind11::error_already_set();
      plain.push_back(pybind11::reinterpret_steal<pybind11::object>(v));
    }
    PyObject *name, *given;
    for (Py_ssize_t at = 0; kwargs && PyDict_Next(kwargs, &at, &name, &given);) {
      PyObject* v = fixer.fix(given);
      if (!v) throw pybind11::error_already_set();
      named[name] = pybind11::reinterpret_steal<pybind11::object>(v);
    }
  } catch (const std::exception&) {  // a size that only the run knows
    PyErr_Clear();
    from.clear();
  }
  if (from.empty()) {
    PyErr_Restore(type, value, traceback);
    return nullptr;
  }
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(traceback);
  std::vector<PyObject*> vector;
  for (auto& o : plain) vector.push_back(o.ptr());
  PyObject* result = PyObject_VectorcallDict(fn, vector.data(), nargs, kwargs ? named.ptr() : nullptr);
  for (size_t i = 0; result && i < to.size(); ++i) {  // what an in-place function returns is what it was given
    if (result != to[i].ptr()) continue;
    const at::Tensor &now = THPVariable_Unpack(result), &before = THPVariable_Unpack(from[i]);
    auto same = [](c10::SymIntArrayRef a, c10::SymIntArrayRef b) {
      return std::equal(a.begin(), a.end(), b.begin(), b.end());
    };
    if (!now.is_alias_of(before) || !same(now.sym_sizes(), before.sym_sizes()) ||
        !same(now.sym_strides(), before.sym_strides())) {
      Py_CLEAR(result);  // it changed what it was given, which is not what the program has
      set_graph_break(Reason::UnsupportedOp, "the sizes of a tensor with symbolic sizes are changed");
      break;
    }
    Py_INCREF(from[i]);
    Py_SETREF(result, from[i]);
  }
  return result;
}

}  // namespace braze::trace
