#include "trace/number.h"

#include <ATen/EmptyTensor.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

namespace braze::trace {

PyObject* tensor_of_number(double value) {
  HANDLE_TH_ERRORS
  at::Tensor t(at::detail::empty_cpu({}, at::kDouble));  // real, while a capture makes fakes, too
  *t.mutable_data_ptr<double>() = value;
  return THPVariable_Wrap(std::move(t));
  END_HANDLE_TH_ERRORS
}

PyObject* tensor_of_integer(int64_t value) {
  HANDLE_TH_ERRORS
  at::Tensor t(at::detail::empty_cpu({}, at::kLong));
  *t.mutable_data_ptr<int64_t>() = value;
  return THPVariable_Wrap(std::move(t));
  END_HANDLE_TH_ERRORS
}

}  // namespace braze::trace
