// Numbers between tensors and sizes: _local_scalar_dense binds an unbacked symbol, _assert_scalar checks what was
// assumed of such.
#include <c10/util/Exception.h>
#include <pybind11/pybind11.h>
#include <torch/csrc/Exceptions.h>

#include "base/check.h"
#include "launch/extern.h"

namespace braze::launch {
namespace {

class ReadCall final : public ExternCall {
 public:
  ReadCall(const runtime::Program& program, const plan::Extern& step) {
    const loop::ExternCall& call = step.call;
    BRAZE_CHECK(call.args.size() == 2 && call.views.size() == 1 && std::holds_alternative<sym::Expr>(call.args[1]),
                "_local_scalar_dense without a symbol");
    view_ = ViewSpec(program, call.views[0]);
    symbol_ = program.symbol_index(std::get<sym::Expr>(call.args[1]));
  }

  void run(runtime::Frame& frame, TorchFrame& call, CallFrame& state) const override {
    state.views.resize(1);
    frame.bind(symbol_, state.views[0].get(view_, frame, call).item().toLong());
    state.views[0].let_go_if_kept();
  }

 private:
  ViewSpec view_;
  uint32_t symbol_ = 0;
};

class AssertCall final : public ExternCall {
 public:
  AssertCall(const runtime::Program& program, const plan::Extern& step) {
    const auto& args = step.call.args;
    BRAZE_CHECK(args.size() == 6, "_assert_scalar without its parts");
    left_ = program.slot(std::get<sym::Expr>(args[0]));
    relation_ = std::get<std::string>(args[1]);
    right_ = program.slot(std::get<sym::Expr>(args[2]));
    exception_ = std::get<std::string>(args[3]);
    message_ = std::get<std::string>(args[4]);
    for (sym::Expr e : std::get<graph::IntList>(args[5]).v) values_.push_back(program.slot(e));
  }

  void run(runtime::Frame& frame, TorchFrame&, CallFrame&) const override {
    int64_t l = frame.value(left_), r = frame.value(right_);
    bool holds = relation_ == "==" ? l == r : relation_ == "!=" ? l != r : relation_ == "<" ? l < r : l <= r;
    if (holds) return;
    std::string text = message_;
    for (size_t i = 0; i < values_.size(); ++i) {
      std::string place = "{" + std::to_string(i) + "}";
      if (size_t at = text.find(place); at != std::string::npos)
        text.replace(at, place.size(), std::to_string(frame.value(values_[i])));
    }
    TORCH_CHECK(exception_ != "RuntimeError", text);
    pybind11::gil_scoped_acquire gil;
    PyObject* type = PyDict_GetItemString(PyEval_GetBuiltins(), exception_.c_str());
    PyErr_SetString(type ? type : PyExc_RuntimeError, text.c_str());
    python_error error;
    error.persist();
    throw error;
  }

 private:
  runtime::Slot left_ = 0, right_ = 0;
  std::string relation_, exception_, message_;
  std::vector<runtime::Slot> values_;
};

}  // namespace

std::unique_ptr<ExternCall> make_scalar_call(const runtime::Program& program, const plan::Extern& step) {
  if (step.call.op == graph::Op::_local_scalar_dense) return std::make_unique<ReadCall>(program, step);
  if (step.call.op == graph::Op::_assert_scalar) return std::make_unique<AssertCall>(program, step);
  return nullptr;
}

}  // namespace braze::launch
