#include "trace/complex_number.h"

#include <ATen/EmptyTensor.h>
#include <ATen/native/TypeProperties.h>

#include <algorithm>

namespace braze::trace {
namespace {

bool is_complex_number(const c10::IValue& v) {
  return v.isTensor() && v.toTensor().defined() && v.toTensor().unsafeGetTensorImpl()->is_wrapped_number() &&
         v.toTensor().scalar_type() == at::kComplexDouble && v.toTensor().has_storage();
}

template <class T>
void fill(at::Tensor& t, c10::complex<double> value) {
  *t.mutable_data_ptr<c10::complex<T>>() = c10::complex<T>(static_cast<T>(value.real()), static_cast<T>(value.imag()));
}

}  // namespace

void unwrap_complex_numbers(c10::IValue* operands, size_t count) {
  if (std::none_of(operands, operands + count, is_complex_number)) return;
  at::native::ResultTypeState state;
  for (size_t i = 0; i < count; ++i)
    if (operands[i].isTensor() && operands[i].toTensor().defined())
      state = at::native::update_result_type_state(operands[i].toTensor(), state);
  const at::ScalarType dtype = at::native::result_type(state);
  for (size_t i = 0; i < count; ++i) {
    if (!is_complex_number(operands[i])) continue;
    const auto value = *operands[i].toTensor().const_data_ptr<c10::complex<double>>();
    at::Tensor plain(at::detail::empty_cpu({}, dtype));  // real, while a capture makes fakes, too
    if (dtype == at::kComplexDouble)
      fill<double>(plain, value);
    else if (dtype == at::kComplexFloat)
      fill<float>(plain, value);
    else if (dtype == at::kComplexHalf)
      fill<c10::Half>(plain, value);
    else
      continue;  // not computed in complex numbers
    operands[i] = std::move(plain);
  }
}

}  // namespace braze::trace
