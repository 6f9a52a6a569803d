#include "launch/score_functions.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/scalar_tensor.h>

#include <mutex>
#include <unordered_map>

#include "base/fork_mutex.h"
#include "trace/convert.h"

namespace braze::launch {
namespace {

using c10::IValue;
using graph::ValueId;

IValue number(const c10::TypePtr& type, const at::Scalar& value) {
  switch (type->kind()) {
    case c10::TypeKind::FloatType: return value.toDouble();
    case c10::TypeKind::BoolType: return value.toBool();
    case c10::TypeKind::TensorType: {
      at::Tensor t = at::scalar_tensor(value, value.isFloatingPoint() ? at::kDouble
                                              : value.isBoolean()     ? at::kBool
                                                                      : at::kLong);
      t.unsafeGetTensorImpl()->set_wrapped_number(true);
      return t;
    }
    default: return value;
  }
}

class Evaluation {
 public:
  Evaluation(const graph::Graph& graph, std::vector<at::Tensor> values) : graph_(graph), values_(std::move(values)) {}

  void run(const graph::Node& node) {
    std::string name(graph::op_name(node.op));
    size_t dot = name.find('.');
    auto op = c10::Dispatcher::singleton().findSchemaOrThrow(
        name.substr(0, dot).c_str(), dot == std::string::npos ? "" : name.substr(dot + 1).c_str());
    torch::jit::Stack stack;
    const auto& formals = op.schema().arguments();
    for (size_t i = 0; i < formals.size(); ++i) {
      c10::TypePtr type = formals[i].type();
      if (type->kind() == c10::TypeKind::OptionalType) type = type->castRaw<c10::OptionalType>()->getElementType();
      stack.push_back(i < node.args.size() ? argument(type, node.args[i]) : *formals[i].default_value());
    }
    op.callBoxed(&stack);
    at::Tensor made = stack.back().toTensor();
    DType dtype = graph_.type(node.outputs[0]).dtype;
    values_[node.outputs[0].index] = made.to(trace::scalar_type(dtype));
  }
  at::Tensor& value(ValueId v) { return values_[v.index]; }

 private:
  IValue argument(const c10::TypePtr& type, const graph::Arg& a) {
    if (auto* v = std::get_if<ValueId>(&a)) return v->valid() ? IValue(values_[v->index]) : IValue();
    if (auto* b = std::get_if<bool>(&a)) return number(type, *b);
    if (auto* d = std::get_if<double>(&a)) return number(type, *d);
    if (auto* e = std::get_if<sym::Expr>(&a)) return number(type, *graph_.arena().as_const(*e));
    if (auto* s = std::get_if<std::string>(&a)) return *s;
    if (auto* t = std::get_if<DType>(&a)) return trace::scalar_type(*t);
    if (auto* d = std::get_if<Device>(&a)) return trace::torch_device(*d);
    if (auto* m = std::get_if<graph::MemoryFormatArg>(&a)) return static_cast<c10::MemoryFormat>(m->value);
    if (auto* l = std::get_if<graph::LayoutArg>(&a)) return static_cast<c10::Layout>(l->value);
    if (std::holds_alternative<graph::IntList>(a)) return c10::List<int64_t>({1, 1, 1, 1});  // a number
    if (auto* l = std::get_if<graph::TensorList>(&a)) {
      c10::List<std::optional<at::Tensor>> list;
      for (ValueId v : *l) list.push_back(values_[v.index]);
      return list;
    }
    return IValue();
  }

  const graph::Graph& graph_;
  std::vector<at::Tensor> values_;
};

}  // namespace

ScoreFunctions::ScoreFunctions(graph::Graph graph) : graph_(std::move(graph)) {
  for (uint32_t k = 0; k < graph::kScoreOutputs; ++k) {
    std::vector<bool> needed(graph_.values().size());
    if (graph_.outputs[k].valid()) needed[graph_.outputs[k].index] = true;
    for (size_t i = graph_.nodes().size(); i-- > 0;) {
      const graph::Node& n = graph_.node(graph::NodeId(i));
      if (!needed[n.outputs[0].index]) continue;
      nodes_[k].insert(nodes_[k].begin(), graph::NodeId(i));
      graph::Graph::for_each_operand(n, [&](ValueId v) { needed[v.index] = true; });
    }
  }
}

std::shared_ptr<const ScoreFunctions> ScoreFunctions::of(const std::string& text) {
  static auto& mutex = *new ForkMutex;
  static auto* known = new std::unordered_map<std::string, std::shared_ptr<const ScoreFunctions>>;
  std::lock_guard lock(mutex);
  auto& f = (*known)[text];
  if (!f) f = std::make_shared<ScoreFunctions>(graph::parse(text));
  return f;
}

at::Tensor ScoreFunctions::run(graph::ScoreOutput output, const std::array<at::Tensor, graph::kScoreInputs>& inputs,
                               const std::vector<at::Tensor>& operands) const {
  std::vector<at::Tensor> values(graph_.values().size());
  for (size_t i = 0; i < inputs.size(); ++i) values[graph_.inputs[i].value.index] = inputs[i];
  for (size_t i = 0; i < operands.size(); ++i) {
    const at::Tensor& t = operands[i];
    values[graph_.inputs[graph::kScoreInputs + i].value.index] = t.dim() == 0 ? t.view({1, 1, 1, 1}) : t;
  }
  Evaluation evaluation(graph_, std::move(values));
  for (graph::NodeId n : nodes_[output]) evaluation.run(graph_.node(n));
  return evaluation.value(graph_.outputs[output]);
}

}  // namespace braze::launch
