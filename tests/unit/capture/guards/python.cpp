#include "python.h"

#include <gtest/gtest.h>

#include "launch/storage_range.h"
#include "launch/tensor_spec.h"
#include "trace/global_state.h"
#include "trace/trace.h"

namespace braze::capture::test {
namespace {

class Interpreter : public ::testing::Environment {
  void SetUp() override { Py_InitializeEx(0); }
};
[[maybe_unused]] const auto* interpreter = ::testing::AddGlobalTestEnvironment(new Interpreter);

uint64_t g_state = 1;

int64_t attribute(PyObject* o, const char* name) {
  Ref v = Ref::steal(PyObject_GetAttrString(o, name));
  if (!v) return PyErr_Clear(), -1;
  return PyLong_AsLongLong(v.get());
}

}  // namespace

Python::Python(const std::string& lines) : names_(Ref::steal(PyDict_New())), values_(Ref::steal(PyList_New(0))) {
  PyDict_SetItemString(names_.get(), "__builtins__", PyEval_GetBuiltins());
  run(lines);
}

void Python::run(const std::string& lines) {
  Ref r = Ref::steal(PyRun_String(lines.c_str(), Py_file_input, names_.get(), names_.get()));
  if (!r) PyErr_Print();
  ASSERT_TRUE(r) << lines;
}

PyObject* Python::operator[](const std::string& expression) {
  Ref v = Ref::steal(PyRun_String(expression.c_str(), Py_eval_input, names_.get(), names_.get()));
  if (!v) PyErr_Print();
  EXPECT_TRUE(v) << expression;
  PyList_Append(values_.get(), v.get());
  return v.get();
}

int64_t Python::integer(const std::string& expression) { return PyLong_AsLongLong((*this)[expression]); }

void set_global_state(uint64_t key) { g_state = key; }

}  // namespace braze::capture::test

namespace braze::launch {

using capture::test::attribute;

struct TensorSpec {
  int64_t kind;
};
std::shared_ptr<const TensorSpec> snapshot(PyObject* tensor, const std::vector<trace::SymbolicDim>&) {
  return std::make_shared<TensorSpec>(TensorSpec{attribute(tensor, "kind")});
}
bool matches(const TensorSpec& spec, PyObject* tensor) { return attribute(tensor, "kind") == spec.kind; }
std::string describe_mismatch(const TensorSpec& spec, PyObject* tensor) {
  return matches(spec, tensor) ? "" : "another kind";
}
int64_t read_size(PyObject* tensor, int32_t) { return attribute(tensor, "size"); }
std::vector<int64_t> geometry(PyObject* tensor) { return {attribute(tensor, "size")}; }
StorageRange storage_range(PyObject* tensor) {
  capture::Ref pair = capture::Ref::steal(PyObject_GetAttrString(tensor, "storage"));
  if (!pair) return PyErr_Clear(), StorageRange{};
  auto item = [&](Py_ssize_t i) { return static_cast<uintptr_t>(PyLong_AsLongLong(PyTuple_GET_ITEM(pair.get(), i))); };
  return {item(0), item(1)};
}

}  // namespace braze::launch

namespace braze::trace {

uint64_t global_state_key() { return capture::test::g_state; }

}  // namespace braze::trace
