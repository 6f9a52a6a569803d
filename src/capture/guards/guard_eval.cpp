// One guard on one value.
#include <algorithm>
#include <cstring>
#include <string_view>

#include "capture/cpython/dict.h"
#include "capture/cpython/set_table.h"
#include "capture/guards/dynamic.h"
#include "capture/guards/guard_eval.h"
#include "launch/tensor_spec.h"

namespace braze::capture {

namespace {

bool same_bits(double a, double b) { return std::memcmp(&a, &b, sizeof a) == 0; }

bool plain_key(PyObject* k) {
  return PyUnicode_CheckExact(k) || PyLong_CheckExact(k) || k == Py_None || PyBool_Check(k);
}

bool same_key(PyObject* key, const LooseRef& want) {
  return key == want.get() || (plain_key(key) && equal_constants(key, want.get()));
}

bool same_members(PyObject* set, const std::vector<LooseRef>& expected) {
  if (!PyAnySet_Check(set) || static_cast<size_t>(PySet_GET_SIZE(set)) != expected.size()) return false;
  Py_ssize_t place = 0;
  for (size_t i = 0; PyObject* key = next_element(set, place); ++i)
    if (key != expected[i].get() && !equal_constants(key, expected[i].get())) return false;
  return true;
}

bool same_keys(PyObject* dict, const std::vector<LooseRef>& expected) {
  if (!PyDict_Check(dict) || static_cast<size_t>(PyDict_GET_SIZE(dict)) != expected.size()) return false;
  if (PyODict_Check(dict)) {
    Ref keys = Ref::steal(cpython::keys_in_order(dict));
    if (!keys) return PyErr_Clear(), false;
    for (size_t i = 0; i < expected.size(); ++i)
      if (!same_key(PyTuple_GET_ITEM(keys.get(), static_cast<Py_ssize_t>(i)), expected[i])) return false;
    return true;
  }
  PyObject *key, *value;
  Py_ssize_t pos = 0;
  for (size_t i = 0; PyDict_Next(dict, &pos, &key, &value); ++i)
    if (!same_key(key, expected[i])) return false;
  return true;
}

}  // namespace

std::vector<LooseRef> items_of(PyObject* tuple) {
  std::vector<LooseRef> out;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) out.push_back(Ref::borrow(PyTuple_GET_ITEM(tuple, i)));
  return out;
}

bool is_compared_by_address(PyObject* member) {
  std::string_view name = Py_TYPE(member)->tp_name;
  bool by_content = plain_key(member) || PyTuple_Check(member) || PyFrozenSet_Check(member) ||
                    name.starts_with("numpy.") || name == "torch.device";
  return !by_content;
}

bool equal_constants(PyObject* a, PyObject* b) {
  if (a == b) return true;
  if (!a || !b || Py_TYPE(a) != Py_TYPE(b)) return false;
  if (PyLong_CheckExact(a) || PyBytes_CheckExact(a)) return PyObject_RichCompareBool(a, b, Py_EQ) == 1;
  if (PyUnicode_CheckExact(a)) return PyUnicode_Compare(a, b) == 0;
  if (PyFloat_CheckExact(a)) return same_bits(PyFloat_AS_DOUBLE(a), PyFloat_AS_DOUBLE(b));
  if (PyComplex_CheckExact(a)) {
    Py_complex x = PyComplex_AsCComplex(a), y = PyComplex_AsCComplex(b);
    return same_bits(x.real, y.real) && same_bits(x.imag, y.imag);
  }
  // A subclass of tuple that adds nothing to it compares by its items too (torch.Size, named tuples).
  if (PyTuple_Check(a)) {
    if (PyTuple_GET_SIZE(a) != PyTuple_GET_SIZE(b)) return false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(a); ++i)
      if (!equal_constants(PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i))) return false;
    return true;
  }
  if (PySlice_Check(a)) {
    auto* x = reinterpret_cast<PySliceObject*>(a);
    auto* y = reinterpret_cast<PySliceObject*>(b);
    return equal_constants(x->start, y->start) && equal_constants(x->stop, y->stop) &&
           equal_constants(x->step, y->step);
  }
  if (PyFrozenSet_CheckExact(a)) {
    Ref members = Ref::steal(PySequence_Tuple(b));
    return same_members(a, items_of(members.get()));
  }
  if (std::strncmp(Py_TYPE(a)->tp_name, "numpy.dtype", 11) == 0) return PyObject_RichCompareBool(a, b, Py_EQ) == 1;
  // Numbers of NumPy: by their bytes.
  if (std::strncmp(Py_TYPE(a)->tp_name, "numpy.", 6) == 0) {
    Py_buffer x, y;
    if (PyObject_GetBuffer(a, &x, PyBUF_SIMPLE) < 0) return PyErr_Clear(), false;
    bool same = false;
    if (PyObject_GetBuffer(b, &y, PyBUF_SIMPLE) < 0) {
      PyErr_Clear();
    } else {
      same = x.len == y.len && std::memcmp(x.buf, y.buf, static_cast<size_t>(x.len)) == 0;
      PyBuffer_Release(&y);
    }
    PyBuffer_Release(&x);
    return same;
  }
  // torch.device: compared by value, in C.
  static PyTypeObject* device = nullptr;
  if (!device && std::strcmp(Py_TYPE(a)->tp_name, "torch.device") == 0) device = Py_TYPE(a);
  if (device && Py_TYPE(a) == device) {
    int same = PyObject_RichCompareBool(a, b, Py_EQ);
    if (same < 0) PyErr_Clear();
    return same == 1;
  }
  return false;
}

bool holds(const Guard& g, PyObject* v, PyObject* other) {
  switch (g.kind) {
    case GuardKind::Absent: return v == nullptr;
    case GuardKind::Lacks:
      return !v || !PyDict_Check(v) || std::none_of(g.members.begin(), g.members.end(), [&](const LooseRef& key) {
        return cpython::dict_get(v, key.get());
      });
    case GuardKind::SameObject: return v && v == other;
    case GuardKind::Distinct: return v != other;
    default: break;
  }
  if (!v || (g.type && reinterpret_cast<PyObject*>(Py_TYPE(v)) != g.type.get())) return false;
  switch (g.kind) {
    case GuardKind::TypeIs: return reinterpret_cast<PyObject*>(Py_TYPE(v)) == g.object.get();
    case GuardKind::Identity:
    case GuardKind::WeakIdentity: return v == g.object.get();
    case GuardKind::Equal: return equal_constants(v, g.object.get());
    case GuardKind::Tensor: return launch::matches(*g.tensor, v) && marks_within(v, g.symbolic);
    case GuardKind::Exists: return true;
    case GuardKind::Length:
      if (PyList_Check(v)) return PyList_GET_SIZE(v) == g.number;
      if (PyTuple_Check(v)) return PyTuple_GET_SIZE(v) == g.number;
      if (PyDict_Check(v)) return PyDict_GET_SIZE(v) == g.number;
      if (PyAnySet_Check(v)) return PySet_GET_SIZE(v) == g.number;
      return false;
    case GuardKind::DictKeys: return same_keys(v, g.members);
    case GuardKind::SetMembers: return same_members(v, g.members);
    case GuardKind::RangeIs:
      return Py_TYPE(v) == &PyRange_Type && PyObject_RichCompareBool(v, g.object.get(), Py_EQ) == 1;
    case GuardKind::Answer: {
      Ref now = Ref::steal(PyObject_Call(v, PyTuple_GET_ITEM(g.object.get(), 0), nullptr));
      if (!now) return PyErr_Clear(), false;
      return equal_constants(now.get(), PyTuple_GET_ITEM(g.object.get(), 1));
    }
    default: return false;
  }
}

}  // namespace braze::capture
