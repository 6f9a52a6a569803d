#include "trace/pytorch/python_function.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/python_cpp_function.h>

#include "trace/pytorch/names.h"

namespace braze::pytorch {

// The class of such nodes is not exported; as Python sees them, they are instances of one that is.
bool is_python_function(const decltype(torch::autograd::Edge::function)& node) {
  PyObject* seen = torch::autograd::functionToPyObject(node);
  if (!seen) throw python_error();
  bool is = PyObject_TypeCheck(seen, get_type(Name::FunctionBase));
  Py_DECREF(seen);
  return is;
}

}  // namespace braze::pytorch
