#include "launch/run_twice.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "launch/gil.h"
#include "launch/profile.h"
#include "runtime/cuda/driver.h"
#include "symbolic/expr.h"
#include "trace/global_state.h"
#include "trace/joint.h"

namespace braze::launch {

using graph::Op;

// Of the results in the order in which they are computed.
struct RunTwice::Values {
  struct Change {
    size_t value;  // index of its elements' count
    int64_t bytes_each;
    bool freed;
  };
  sym::IntProgram elements;
  size_t count = 0;
  std::vector<Change> changes;
};

namespace {

std::string why_not_called_twice(const graph::Node& n) {
  if (n.op != Op::Extern) {
    uint8_t traits = graph::op_traits(n.op);
    if (traits & graph::kNondeterministic) return "it draws random numbers";
    return traits & graph::kEffect ? "it checks values of tensors" : "";
  }
  const std::string& name = n.extern_name;
  if (!name.starts_with("aten::")) return "it calls " + name + ", which is no operator of PyTorch's own";
  size_t dot = name.find('.');
  std::string overload = dot == std::string::npos ? "" : name.substr(dot + 1);
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  auto op = dispatcher.findSchema({name.substr(0, dot), overload});
  if (!op && overload == "default") op = dispatcher.findSchema({name.substr(0, dot), ""});
  if (!op || op->schema().is_mutable()) return "it calls " + name + ", which may write to what it is given";
  return op->hasTag(at::Tag::nondeterministic_seeded) ? "it draws random numbers" : "";
}

}  // namespace

RunTwice::RunTwice(const graph::Graph& captured) {
  if (!captured.writebacks.empty()) why_not_ = "it writes to its inputs";
  for (const graph::Node& n : captured.nodes()) {
    if (!why_not_.empty()) return;
    why_not_ = why_not_called_twice(n);
  }
  const auto& nodes = captured.nodes();
  sym::ExprArena& arena = captured.arena();
  // Per value the one whose memory it is on, and the last node that reads that.
  std::vector<size_t> owner(captured.values().size()), last(owner.size());
  for (size_t v = 0; v < owner.size(); ++v) owner[v] = v;
  size_t position = 0;
  for (const graph::Node& n : nodes) {
    graph::Graph::for_each_operand(n, [&](graph::ValueId v) { last[owner[v.index]] = position; });
    bool view = graph::op_class(n.op) == graph::OpClass::View;
    for (graph::ValueId v : n.outputs) {
      if (!v.valid()) continue;
      if (auto* of = view && !n.args.empty() ? std::get_if<graph::ValueId>(&n.args[0]) : nullptr)
        owner[v.index] = owner[of->index];
      last[owner[v.index]] = std::max(last[owner[v.index]], position);
    }
    ++position;
  }
  for (graph::ValueId v : captured.outputs)
    if (v.valid()) last[owner[v.index]] = position;
  std::vector<sym::Expr> elements;
  std::vector<size_t> number(owner.size());
  std::vector<std::vector<size_t>> ends(position + 1);
  values_ = std::make_unique<Values>();
  position = 0;
  for (const graph::Node& n : nodes) {
    for (graph::ValueId v : n.outputs) {
      if (!v.valid()) continue;
      const TensorType& type = captured.type(v);
      on_gpu_ = on_gpu_ || type.device.type == DeviceType::CUDA;
      if (owner[v.index] != v.index) continue;
      sym::Expr count = arena.constant(1);
      for (sym::Expr s : type.sizes) count = arena.mul(count, s);
      if (arena.depends_on_data(count)) {
        why_not_ = "a size in it depends on data";
        return;
      }
      number[v.index] = elements.size();
      elements.push_back(count);
      values_->changes.push_back({number[v.index], static_cast<int64_t>(size_of(type.dtype)), false});
      ends[last[v.index]].push_back(values_->changes.size() - 1);
    }
    for (size_t made : ends[position]) {
      Values::Change gone = values_->changes[made];
      gone.freed = true;
      values_->changes.push_back(gone);
    }
    ++position;
  }
  for (const graph::Input& in : captured.inputs)
    on_gpu_ = on_gpu_ || captured.type(in.value).device.type == DeviceType::CUDA;
  std::vector<sym::Expr> symbols;
  for (const auto& s : captured.size_symbols) symbols.push_back(s.first);
  values_->count = elements.size();
  values_->elements = sym::IntProgram::compile(arena, elements, symbols);
}

RunTwice::~RunTwice() = default;

int64_t RunTwice::peak_bytes(const int64_t* symbols) const {
  std::vector<int64_t> elements(values_->count);
  values_->elements.run(symbols, elements.data());
  int64_t held = 0, peak = 0;
  for (const Values::Change& c : values_->changes) {
    held += (c.freed ? -1 : 1) * elements[c.value] * c.bytes_each;
    peak = std::max(peak, held);
  }
  return peak;
}

bool RunTwice::now(PyObject* const* inputs, size_t n) const {
  if (is_profiled() || trace::dispatch_mode_active()) return false;
  for (size_t i = 0; c10::GradMode::is_enabled() && i < n; ++i)
    if (THPVariable_Check(inputs[i]) && THPVariable_Unpack(inputs[i]).requires_grad()) return false;
  if (!on_gpu_) return true;
  c10::impl::VirtualGuardImpl gpu(c10::DeviceType::CUDA);
  c10::Stream stream = gpu.getStream(gpu.getDevice());
  try {
    return !runtime::cuda::is_recording(gpu.getStreamNativeHandle(stream), stream.device_index());
  } catch (const std::exception&) {
    return false;
  }
}

double RunTwice::clock() const {
  if (on_gpu_) {
    c10::impl::VirtualGuardImpl gpu(c10::DeviceType::CUDA);
    GilRelease others_go_on;
    try {
      gpu.synchronizeStream(gpu.getStream(gpu.getDevice()));
    } catch (const std::exception&) {  // of what ran before: the program meets it where it waits
    }
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace braze::launch
