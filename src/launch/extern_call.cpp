// Calls of any operator through the dispatcher, with arguments laid out by its schema.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty_strided.h>
#include <torch/csrc/jit/python/pybind_utils.h>

#include <iterator>

#include "base/check.h"
#include "graph/packed_weight.h"
#include "graph/written.h"
#include "launch/attention_mask.h"
#include "launch/extern.h"
#include "launch/packed_weight.h"
#include "launch/timed_convolution.h"
#include "launch/written_inputs.h"
#include "trace/find_operator.h"
#include "trace/kernel_launches.h"
#include "trace/schema.h"

namespace braze::launch {
namespace {

using c10::IValue;

// One argument of the call as it is made: constants are ready, the rest is read from the frame.
struct Argument {
  enum class Kind : uint8_t { Constant, View, Views, OptionalViews, Int, Float, Ints, Number } kind = Kind::Constant;
  IValue constant;
  uint32_t view = 0;
  std::vector<uint32_t> views;  // UINT32_MAX: none
  std::vector<runtime::Slot> slots;
};

bool is_optional(const c10::TypePtr& type) { return type->kind() == c10::TypeKind::OptionalType; }
c10::TypePtr without_optional(c10::TypePtr type) {
  while (is_optional(type)) type = type->castRaw<c10::OptionalType>()->getElementType();
  return type;
}

at::Tensor wrapped_number(const at::Scalar& value) {
  at::Tensor t = at::scalar_tensor(value, value.isFloatingPoint() ? at::kDouble
                                          : value.isBoolean()     ? at::kBool
                                                                  : at::kLong);
  t.unsafeGetTensorImpl()->set_wrapped_number(true);
  return t;
}

IValue number_as(const c10::TypePtr& type, const at::Scalar& value) {
  switch (type->kind()) {
    case c10::TypeKind::TensorType: return wrapped_number(value);
    case c10::TypeKind::FloatType: return IValue(value.toDouble());
    case c10::TypeKind::BoolType: return IValue(value.toBool());
    default: return IValue(value);
  }
}

class Builder {
 public:
  Builder(const runtime::Program& program, const plan::Extern& step, const std::vector<PyObject*>& constants)
      : program_(program), call_(step.call), constants_(constants) {}

  Argument argument(const c10::Argument& formal, const loop::ExternArg& actual) {
    type_ = without_optional(formal.type());
    std::visit([&](auto& a) { fill(a); }, actual);
    // Operators that only PyTorch's own backward calls take no tensor where their schema asks for one.
    bool none = result_.kind == Kind::Constant && result_.constant.isNone();
    if (none && formal.type()->kind() == c10::TypeKind::TensorType) result_.constant = at::Tensor();
    return std::move(result_);
  }

 private:
  using Kind = Argument::Kind;
  const sym::ExprArena& arena() const { return *program_.plan().arena; }

  c10::TypeKind element_kind() const {
    auto* list = type_->castRaw<c10::ListType>();
    return list ? without_optional(list->getElementType())->kind() : c10::TypeKind::AnyType;
  }

  void fill(graph::NoneArg) {}
  void fill(loop::ViewRef v) {
    if (!v.valid()) return;
    result_.kind = Kind::View;
    result_.view = v.index;
  }
  void fill(const std::vector<loop::ViewRef>& vs) {
    auto* list = type_->castRaw<c10::ListType>();
    bool optional = list && is_optional(list->getElementType());
    result_.kind = optional ? Kind::OptionalViews : Kind::Views;
    for (loop::ViewRef v : vs) result_.views.push_back(v.index);
  }
  void fill(bool b) { result_.constant = number_as(type_, b); }
  void fill(double d) { result_.constant = number_as(type_, d); }
  void fill(sym::Expr e) {
    if (auto value = arena().as_const(e)) {
      result_.constant = number_as(type_, *value);
      return;
    }
    bool tensor = type_->kind() == c10::TypeKind::TensorType;
    result_.kind = tensor ? Kind::Number : type_->kind() == c10::TypeKind::FloatType ? Kind::Float : Kind::Int;
    result_.slots = {program_.slot(e)};
  }
  void fill(const std::string& s) { result_.constant = s; }
  void fill(DType d) { result_.constant = trace::scalar_type(d); }
  void fill(Device d) { result_.constant = trace::torch_device(d); }
  void fill(const graph::MemoryFormatArg& m) { result_.constant = static_cast<c10::MemoryFormat>(m.value); }
  void fill(const graph::LayoutArg& l) { result_.constant = static_cast<c10::Layout>(l.value); }
  void fill(const graph::IntList& l) {
    if (element_kind() == c10::TypeKind::FloatType || element_kind() == c10::TypeKind::BoolType) {
      c10::List<double> doubles;
      c10::List<bool> bools;
      for (sym::Expr e : l.v) {
        auto value = arena().as_const(e);
        BRAZE_CHECK(value.has_value(), "a symbolic number in a list of " + call_.name);
        doubles.push_back(*value);
        bools.push_back(*value != 0);
      }
      result_.constant = element_kind() == c10::TypeKind::FloatType ? IValue(doubles) : IValue(bools);
      return;
    }
    result_.kind = Kind::Ints;
    for (sym::Expr e : l.v) result_.slots.push_back(program_.slot(e));
  }
  void fill(const graph::DoubleList& l) {
    if (element_kind() != c10::TypeKind::NumberType) {
      result_.constant = IValue(l.v);
      return;
    }
    c10::impl::GenericList numbers(type_->expectRef<c10::ListType>().getElementType());
    for (double d : l.v) numbers.push_back(d);
    result_.constant = IValue(numbers);
  }
  void fill(const graph::BoolList& l) {
    c10::List<bool> list;
    for (bool b : l.v) list.push_back(b);
    result_.constant = IValue(list);
  }
  void fill(const graph::OpaqueArg& o) {
    BRAZE_CHECK(o.index < constants_.size(), "an argument of " + call_.name + " that the capture did not keep");
    result_.constant = torch::jit::toIValue(constants_[o.index], type_);
  }

  const runtime::Program& program_;
  const loop::ExternCall& call_;
  const std::vector<PyObject*>& constants_;
  c10::TypePtr type_;
  Argument result_;
};

bool is_read(const plan::Plan& plan, loop::BufferId buffer) {
  auto in = [&](const loop::View& v) { return v.buffer == buffer; };
  for (const plan::Step& s : plan.steps) {
    if (auto* l = std::get_if<plan::Launch>(&s))
      if (std::find(l->buffers.begin(), l->buffers.end(), buffer.index) != l->buffers.end()) return true;
    if (auto* e = std::get_if<plan::Extern>(&s))
      if (std::any_of(e->call.views.begin(), e->call.views.end(), in)) return true;
  }
  return std::any_of(plan.outputs.begin(), plan.outputs.end(),
                     [&](const loop::Output& o) { return o.kind == loop::Output::Kind::View && in(o.view); }) ||
         std::any_of(plan.writebacks.begin(), plan.writebacks.end(),
                     [&](const loop::Writeback& w) { return in(w.from); });
}

// Whether the tensor itself is all that others take: then it may be of another kind than was recorded. (Attention's
// random state is on the CPU or on the GPU, depending on what else goes on.)
bool is_handed_on(const runtime::Program& program, loop::BufferId buffer) {
  const plan::Plan& plan = program.plan();
  auto whole = [&](const loop::View& v) { return v.buffer != buffer || ViewSpec(program, v).whole; };
  for (const plan::Step& s : plan.steps) {
    if (auto* l = std::get_if<plan::Launch>(&s))
      if (std::find(l->buffers.begin(), l->buffers.end(), buffer.index) != l->buffers.end()) return false;
    if (auto* e = std::get_if<plan::Extern>(&s))
      if (!std::all_of(e->call.views.begin(), e->call.views.end(), whole)) return false;
  }
  size_t results = 0;
  for (const loop::Output& o : plan.outputs) {
    if (o.kind != loop::Output::Kind::View || o.view.buffer != buffer) continue;
    if (!whole(o.view) || ++results > 1) return false;
  }
  return std::none_of(plan.writebacks.begin(), plan.writebacks.end(),
                      [&](const loop::Writeback& w) { return w.from.buffer == buffer; });
}

// Per view the first one that is the same: it has to be the same tensor too (attention takes self-attention from that).
std::vector<uint32_t> first_of_its_kind(const std::vector<loop::View>& views) {
  std::vector<uint32_t> out;
  for (size_t i = 0; i < views.size(); ++i) {
    auto same = [&](const loop::View& v) {
      return v.buffer == views[i].buffer && v.dtype == views[i].dtype && v.offset == views[i].offset &&
             v.sizes == views[i].sizes && v.strides == views[i].strides;
    };
    out.push_back(static_cast<uint32_t>(std::find_if(views.begin(), views.end(), same) - views.begin()));
  }
  return out;
}

class BoxedCall : public ExternCall {
 public:
  BoxedCall(const runtime::Program& program, const plan::Extern& step, const std::vector<PyObject*>& constants,
            const std::vector<bool>& frozen, const std::shared_ptr<TuningTime>& time)
      : name_(step.call.name),
        keeps_strides_(name_ == trace::kLaunchKernel),
        packed_(PackedWeight::make(program, step, frozen)),
        convolution_(TimedConvolution::make(program.plan(), step, time)),
        mask_(AttentionMask::of(step)) {
    const loop::ExternCall& call = step.call;
    op_ = trace::find_operator(name_);
    BRAZE_CHECK(op_.has_value(), "PyTorch has no operator " + name_);
    if (call.preallocated) {
      const std::string overload = op_->schema().overload_name();
      auto out =
          c10::Dispatcher::singleton().findSchema({op_->schema().name(), overload.empty() ? "out" : overload + "_out"});
      if (out && is_out_variant(out->schema(), call.outputs.size())) {
        op_ = out;
        writes_outputs_ = true;
      }
    }
    preallocated_ = call.preallocated;
    list_sizes_ = call.list_sizes;
    const c10::FunctionSchema& schema = op_->schema();
    size_t formals = schema.arguments().size() - (writes_outputs_ ? call.outputs.size() : 0);
    BRAZE_CHECK(call.args.size() <= formals, "too many arguments for " + name_);
    for (size_t i = 0; i < formals; ++i) {
      const c10::Argument& formal = schema.arguments()[i];
      if (i < call.args.size()) {
        arguments_.push_back(Builder(program, step, constants).argument(formal, call.args[i]));
      } else {
        BRAZE_CHECK(formal.default_value().has_value(), "argument " + formal.name() + " of " + name_ + " is missing");
        arguments_.push_back({.constant = *formal.default_value()});
      }
    }
    note_in_place(program.plan(), call);
    for (size_t i = 0; i < formals && !writes_outputs_; ++i)
      if (trace::is_written(schema.arguments()[i])) written_.push_back(i);
    for (const loop::View& v : call.views) views_.emplace_back(program, v);
    std::vector<uint32_t> same = first_of_its_kind(call.views);
    for (Argument& a : arguments_) {
      if (a.kind == Argument::Kind::View) a.view = same[a.view];
      for (uint32_t& v : a.views)
        if (v != UINT32_MAX) v = same[v];
    }
    for (const loop::View& v : call.outputs) {
      // What nobody reads is dropped as it comes: attention's statistics, say, whose kind depends on the kernel chosen.
      bool dropped = !call.preallocated && v.buffer.valid() && !is_read(program.plan(), v.buffer) &&
                     !defines_symbols(*program.plan().arena, v);
      Output out{dropped ? ViewSpec() : ViewSpec(program, v), {}, false, false};
      out.handed_on = !call.preallocated && out.spec.valid() && is_handed_on(program, v.buffer) &&
                      !defines_symbols(*program.plan().arena, v);
      for (size_t d = 0; out.spec.valid() && d < v.sizes.size(); ++d) {
        const sym::ExprArena& arena = *program.plan().arena;
        bool unbacked = arena.depends_on_data(v.sizes[d]);
        out.depends_on_data |= unbacked;
        bool defines = unbacked && arena.kind(v.sizes[d]) == sym::Kind::Symbol;
        out.binds.push_back(defines ? static_cast<int64_t>(program.symbol_index(v.sizes[d])) : -1);
      }
      outputs_.push_back(std::move(out));
    }
  }

  void run(runtime::Frame& frame, TorchFrame& call, CallFrame& state) const override {
    state.views.resize(views_.size());
    state.outputs.resize(outputs_.size());
    torch::jit::Stack stack;
    stack.reserve(arguments_.size() + outputs_.size());
    for (const Argument& a : arguments_) push(stack, a, frame, call, state);
    if (writes_outputs_)
      for (size_t i = 0; i < outputs_.size(); ++i)
        stack.emplace_back(state.outputs[i].get(outputs_[i].spec, frame, call));
    if (packed_) packed_->replace(stack);
    if (mask_) mask_->leave_out(stack);
    std::vector<at::Tensor> copies = copy_written(stack);
    if (writes_inputs_) note_not_again(true);  // also by an operator that raises then
    if (convolution_)
      convolution_->run(*op_, stack);
    else
      op_->callBoxed(stack);
    if (writes_outputs_) {
      stack.clear();
    } else {
      std::vector<at::Tensor> results = flatten(stack);
      stack.clear();
      const size_t own = results.size();
      std::move(copies.begin(), copies.end(), std::back_inserter(results));
      BRAZE_CHECK(results.size() == outputs_.size(), name_ + " returned " + std::to_string(results.size()) +
                                                         " tensors instead of " + std::to_string(outputs_.size()));
      for (size_t i = 0; i < outputs_.size(); ++i) {
        if (!outputs_[i].spec.valid() || (i >= own && in_place_[i - own])) continue;
        BRAZE_CHECK(results[i].defined(), name_ + " returned no tensor for result " + std::to_string(i));
        if (preallocated_)
          state.outputs[i].get(outputs_[i].spec, frame, call).copy_(results[i]);
        else
          adopt(outputs_[i], std::move(results[i]), frame, call);
      }
    }
    for (WrappedView& v : state.views) v.let_go_if_kept();
  }

  void forget_packed() override {
    if (packed_) packed_->forget();
  }
  void keep_packed() override {
    if (packed_) packed_->keep();
  }
  bool reads(size_t i) const override { return !packed_ || i != graph::kPackedWeight; }

 private:
  struct Output {
    ViewSpec spec;
    // Per dimension: the symbol that its size defines, or -1. Of results whose memory is there before the call, sizes
    // are known before it.
    std::vector<int64_t> binds;
    bool depends_on_data = false;
    bool handed_on = false;  // whatever it is
  };

  static bool is_out_variant(const c10::FunctionSchema& schema, size_t outputs) {
    size_t written = 0;
    for (const c10::Argument& a : schema.arguments())
      if (trace::is_written(a)) {
        if (!a.is_out() || a.type()->kind() != c10::TypeKind::TensorType) return false;
        ++written;
      }
    return written == outputs;
  }

  void push(torch::jit::Stack& stack, const Argument& a, const runtime::Frame& frame, const TorchFrame& call,
            CallFrame& state) const {
    auto tensor = [&](uint32_t v) -> const at::Tensor& { return state.views[v].get(views_[v], frame, call); };
    switch (a.kind) {
      case Argument::Kind::Constant: stack.push_back(a.constant); break;
      case Argument::Kind::View: stack.emplace_back(tensor(a.view)); break;
      case Argument::Kind::Int: stack.emplace_back(frame.value(a.slots[0])); break;
      case Argument::Kind::Float: stack.emplace_back(static_cast<double>(frame.value(a.slots[0]))); break;
      case Argument::Kind::Number: stack.push_back(wrapped_number(frame.value(a.slots[0]))); break;
      case Argument::Kind::Views: {
        c10::List<at::Tensor> list;
        for (uint32_t v : a.views) list.push_back(v == UINT32_MAX ? at::Tensor() : tensor(v));
        stack.emplace_back(std::move(list));
        break;
      }
      case Argument::Kind::OptionalViews: {
        c10::List<std::optional<at::Tensor>> list;
        for (uint32_t v : a.views)
          list.push_back(v == UINT32_MAX ? std::nullopt : std::optional<at::Tensor>(tensor(v)));
        stack.emplace_back(std::move(list));
        break;
      }
      case Argument::Kind::Ints: {
        c10::List<int64_t> list;
        for (runtime::Slot s : a.slots) list.push_back(frame.value(s));
        stack.emplace_back(std::move(list));
        break;
      }
    }
  }

  // Which of the operands that it writes to are its results' own memory.
  void note_in_place(const plan::Plan& plan, const loop::ExternCall& call) {
    std::vector<int32_t> operands = graph::written_operands(call.list_sizes);
    for (size_t i = 0; i < operands.size(); ++i) {
      if (operands[i] < 0) continue;
      BRAZE_CHECK(i < call.outputs.size(), "a copy of an operand is no result of " + name_);
      const loop::View &from = call.views.at(static_cast<size_t>(operands[i])), &to = call.outputs[i];
      bool same = to.buffer == from.buffer;
      if (to.buffer.valid() && !same) {
        const plan::Buffer &a = plan.buffers[from.buffer.index], &b = plan.buffers[to.buffer.index];
        same = a.where == plan::Where::Input && b.where == plan::Where::Input && a.index == b.index;
      }
      in_place_.push_back(same);
      writes_inputs_ |= same && plan.buffers[from.buffer.index].where == plan::Where::Input;
    }
  }

  // What the operator writes to is the graph's: where it is not the results' own memory, it gets copies. Both are
  // results after its own.
  std::vector<at::Tensor> copy_written(torch::jit::Stack& stack) const {
    std::vector<at::Tensor> copies;
    auto copy = [&](const at::Tensor& t) {
      if (in_place_.at(copies.size())) return copies.emplace_back(t);
      if (keeps_strides_) {
        copies.push_back(at::empty_strided(t.sizes(), t.strides(), t.options()));
        return copies.back().copy_(t);
      }
      return copies.emplace_back(
          t.clone(t.is_non_overlapping_and_dense() ? at::MemoryFormat::Preserve : at::MemoryFormat::Contiguous));
    };
    for (size_t i : written_) {
      IValue& v = stack[i];
      if (v.isTensor() && v.toTensor().defined()) {
        v = copy(v.toTensor());
      } else if (v.isTensorList()) {
        c10::List<at::Tensor> list;
        for (const at::Tensor& t : v.toTensorVector()) list.push_back(t.defined() ? copy(t) : t);
        v = std::move(list);
      } else if (v.isOptionalTensorList()) {
        c10::List<std::optional<at::Tensor>> list;
        for (const auto& t : v.toOptionalTensorVector())
          list.push_back(t && t->defined() ? std::optional<at::Tensor>(copy(*t)) : t);
        v = std::move(list);
      }
    }
    return copies;
  }

  // The tensors among the results; a return that is no tensor has list size 0.
  std::vector<at::Tensor> flatten(torch::jit::Stack& stack) const {
    std::vector<at::Tensor> results;
    for (size_t i = 0; i < stack.size(); ++i) {
      if (i < list_sizes_.size() && list_sizes_[i] == 0) continue;
      IValue& v = stack[i];
      if (v.isTensor())
        results.push_back(std::move(v).toTensor());
      else if (v.isTensorList())
        for (const at::Tensor& t : v.toTensorList()) results.push_back(t);
      else if (v.isNone())
        results.emplace_back();
      else
        throw InternalError(name_ + " returned a value that is no tensor");
    }
    return results;
  }

  void adopt(const Output& out, at::Tensor result, runtime::Frame& frame, TorchFrame& call) const {
    const ViewSpec& spec = out.spec;
    if (!is_of_kind(result, spec)) {
      BRAZE_CHECK(out.handed_on, name_ + " returned a tensor of another kind than was recorded");
      call.adopted[spec.buffer] = std::move(result);
      return;
    }
    bool shared = is_held_elsewhere(result) || result.is_conj() || result.is_neg();
    bool fits = true;
    c10::SmallVector<int64_t, 5> strides;
    if (out.depends_on_data) {
      for (size_t d = 0; d < out.binds.size(); ++d)
        if (out.binds[d] >= 0) frame.bind(out.binds[d], result.size(d));
      frame.refresh();
    }
    for (size_t d = 0; d < spec.sizes.size(); ++d) {
      strides.push_back(frame.value(spec.strides[d]));
      BRAZE_CHECK(result.size(d) == frame.value(spec.sizes[d]),
                  name_ + " returned a tensor of another size than was recorded");
      fits &= result.stride(d) == strides[d] || result.size(d) == 1;
    }
    fits |= result.numel() == 0;
    // Kernels on a GPU read vectors.
    bool aligned = result.device().is_cpu() || reinterpret_cast<uintptr_t>(result.const_data_ptr()) % 16 == 0;
    if (shared || !fits || !aligned) {
      at::Tensor own = at::empty_strided(result.sizes(), strides, result.options());
      own.copy_(result);
      result = std::move(own);
    }
    frame.set_pointer(spec.buffer, result.numel() ? result.mutable_data_ptr()
                                                  : stand_in(call.stand_ins[spec.buffer], result.sizes(),
                                                             result.strides(), result.options()));
    call.adopted[spec.buffer] = std::move(result);
  }

  std::string name_;
  std::optional<c10::OperatorHandle> op_;
  std::vector<Argument> arguments_;
  std::vector<ViewSpec> views_;
  std::vector<size_t> written_;  // arguments
  std::vector<Output> outputs_;
  std::vector<int32_t> list_sizes_;
  bool preallocated_ = false, writes_outputs_ = false;
  std::vector<char> in_place_;  // of those written to
  bool writes_inputs_ = false;  // in place
  bool keeps_strides_;          // of what it writes to: it was told them
  std::unique_ptr<PackedWeight> packed_;
  std::unique_ptr<TimedConvolution> convolution_;
  std::optional<AttentionMask> mask_;
};

}  // namespace

bool defines_symbols(const sym::ExprArena& arena, const loop::View& v) {
  return std::any_of(v.sizes.begin(), v.sizes.end(), [&](sym::Expr e) { return arena.depends_on_data(e); });
}

bool waits_for_gpu(const loop::ExternCall& call) {
  const auto op = trace::find_operator(call.name);
  if (!op) return false;
  if (op->hasTag(at::Tag::data_dependent_output) || op->hasTag(at::Tag::cudagraph_unsafe)) return true;
  // Masks among indices: their elements are counted.
  const std::string& name = op->schema().name();
  if (!name.starts_with("aten::index") && !name.starts_with("aten::_index") && !name.starts_with("aten::_unsafe_index"))
    return false;
  for (const loop::ExternArg& arg : call.args)
    if (auto* indices = std::get_if<std::vector<loop::ViewRef>>(&arg))
      for (loop::ViewRef v : *indices)
        if (v.valid() && (call.views[v.index].dtype == DType::Bool || call.views[v.index].dtype == DType::U8))
          return true;
  return false;
}

std::vector<std::unique_ptr<ExternCall>> make_extern_calls(const runtime::Program& program,
                                                           const std::vector<PyObject*>& constants,
                                                           const std::vector<bool>& frozen) {
  const auto time = tuning_time(program.plan());
  std::vector<std::unique_ptr<ExternCall>> calls;
  for (const plan::Step& s : program.plan().steps) {
    auto& call = calls.emplace_back();
    auto* step = std::get_if<plan::Extern>(&s);
    if (!step) continue;
    call = make_scalar_call(program, *step);
    if (!call) call = make_matmul_call(program, *step, time);
    if (!call) call = std::make_unique<BoxedCall>(program, *step, constants, frozen, time);
  }
  return calls;
}

}  // namespace braze::launch
