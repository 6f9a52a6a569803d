#include "trace/pytorch/overloads.h"

#include <ATen/ops/zeros.h>
#include <pybind11/pybind11.h>
#include <torch/csrc/autograd/python_variable.h>

#include <string>
#include <vector>

#include "trace/below_tracing.h"
#include "trace/pytorch/names.h"

namespace braze::pytorch {
namespace {

namespace py = pybind11;

py::object stand_in(py::handle argument) {
  PyObject* o = argument.ptr();
  if (THPVariable_Check(o)) {
    const at::Tensor& t = THPVariable_Unpack(o);
    return py::reinterpret_steal<py::object>(
        THPVariable_Wrap(at::zeros(std::vector<int64_t>(static_cast<size_t>(t.dim()), 1), t.scalar_type())));
  }
  if (PyTuple_CheckExact(o) || PyList_CheckExact(o)) {
    py::list all;
    for (py::handle item : py::reinterpret_borrow<py::sequence>(o)) all.append(stand_in(item));
    if (PyTuple_CheckExact(o)) return py::tuple(all);
    return py::object(all);
  }
  return py::reinterpret_borrow<py::object>(o);
}

}  // namespace

bool is_overload_packet(PyObject* function) { return Py_TYPE(function) == get_type(Name::OpOverloadPacket); }

PyObject* overload_of(PyObject* packet, PyObject* const* args, size_t nargs, PyObject* kwargs) {
  try {
    py::handle all(packet);
    py::list names = all.attr("overloads")();
    if (names.size() == 1) return py::object(all.attr(names[0])).release().ptr();
    trace::BelowTracing plain;
    py::list given;
    for (size_t i = 0; i < nargs; ++i) given.append(stand_in(args[i]));
    py::dict named;
    if (kwargs)
      for (auto [key, value] : py::reinterpret_borrow<py::dict>(kwargs)) named[key] = stand_in(value);
    std::string name = py::str(all);  // "namespace.name"
    name.replace(name.find('.'), 1, "::");
    py::object found = py::handle(get(Name::resolve_packet))(name, *given, **named);
    return py::object(all.attr(found)).release().ptr();
  } catch (py::error_already_set& e) {
    e.restore();
  } catch (const c10::Error& e) {  // no stand-in for a tensor of this dtype
    PyErr_SetString(PyExc_RuntimeError, e.what_without_backtrace());
  }
  return nullptr;
}

}  // namespace braze::pytorch
