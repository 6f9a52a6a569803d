// Tensor guards: what a compiled graph assumed about each input, compared on every call. No torch header.
#pragma once
#include <Python.h>

#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "trace/trace.h"

namespace braze::launch {

struct TensorSpec;  // sizes, strides, dtype, device, dispatch keys, requires_grad, leaf or not, python type
// `symbolic`: sizes in these dimensions are not compared, and if there are any no strides.
std::shared_ptr<const TensorSpec> snapshot(PyObject* tensor, const std::vector<trace::SymbolicDim>& symbolic = {});
// The size of dimension d (dim >= 0), the stride ~dim, or the storage offset (trace::kStorageOffset) of a tensor that
// matched a spec of that rank.
int64_t read_size(PyObject* tensor, int32_t dim);
// Sizes, then strides of a plain strided tensor; empty for others.
std::vector<int64_t> geometry(PyObject* tensor);
bool matches(const TensorSpec& spec, PyObject* tensor);
// The tensor's class, borrowed; and all else of a spec as bytes and back.
PyTypeObject* class_of(const TensorSpec& spec);
void pack(ByteWriter& out, const TensorSpec& spec);
std::shared_ptr<const TensorSpec> unpack_spec(ByteReader& in, PyTypeObject* type);
std::string describe_mismatch(const TensorSpec& spec, PyObject* tensor);

}  // namespace braze::launch
