#include "trace/ambient.h"

#include <ATen/autocast_mode.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/GradMode.h>
#include <c10/core/ScalarTypeToTypeMeta.h>

namespace braze::trace {
namespace {

void set(const Ambient& a) {
  c10::GradMode::set_enabled(a.grad);
  at::autocast::set_autocast_enabled(at::kCPU, a.autocast_cpu);
  at::autocast::set_autocast_enabled(at::kCUDA, a.autocast_cuda);
  at::autocast::set_autocast_dtype(at::kCPU, static_cast<c10::ScalarType>(a.dtype_cpu));
  at::autocast::set_autocast_dtype(at::kCUDA, static_cast<c10::ScalarType>(a.dtype_cuda));
  // All threads have it: not written without need.
  if (auto dtype = static_cast<c10::ScalarType>(a.default_dtype); dtype != c10::get_default_dtype_as_scalartype())
    c10::set_default_dtype(c10::scalarTypeToTypeMeta(dtype));
}

}  // namespace

Ambient current_ambient() {
  return {c10::GradMode::is_enabled(),
          at::autocast::is_autocast_enabled(at::kCPU),
          at::autocast::is_autocast_enabled(at::kCUDA),
          static_cast<int8_t>(at::autocast::get_autocast_dtype(at::kCPU)),
          static_cast<int8_t>(at::autocast::get_autocast_dtype(at::kCUDA)),
          static_cast<int8_t>(c10::get_default_dtype_as_scalartype())};
}

AmbientScope::AmbientScope(const Ambient& wanted) : before_(current_ambient()) { set(wanted); }
AmbientScope::~AmbientScope() { set(before_); }

}  // namespace braze::trace
