// oneDNN's operators on weights in the layout of its kernels, as nodes of a graph: their weight is there as it is, and
// whoever runs them may hand them a packed one in its place.
#pragma once
#include <cstddef>
#include <string_view>

namespace braze::graph {

// Each translation unit has its own: one in the core and another in an extension would be two variables of one name.
// (x, weight, bias, padding, stride, dilation, groups, attr, scalars, algorithm)
constexpr std::string_view kPackedConvolution = "mkldnn::_convolution_pointwise";
// (x, weight, bias, attr, scalars, algorithm); the weight has a row for each column of the result.
constexpr std::string_view kPackedLinear = "mkldnn::_linear_pointwise";
constexpr size_t kPackedWeight = 1;  // the argument

}  // namespace braze::graph
