// oneDNN's operators on weights in the layout of its kernels, as nodes of a graph: their weight is there as it is, and
// whoever runs them may hand them a packed one in its place.
#pragma once
#include <cstddef>
#include <string_view>

namespace braze::graph {

// Functions, since a variable of the core and one of an extension would be two of one name.
// (x, weight, bias, padding, stride, dilation, groups, attr, scalars, algorithm)
constexpr std::string_view packed_convolution() { return "mkldnn::_convolution_pointwise"; }
// (x, weight, bias, attr, scalars, algorithm); the weight has a row for each column of the result.
constexpr std::string_view packed_linear() { return "mkldnn::_linear_pointwise"; }
enum : size_t { kPackedWeight = 1 };  // the argument

}  // namespace braze::graph
