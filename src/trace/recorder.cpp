#include "trace/recorder.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/utils/python_symnode.h>

#include "base/check.h"
#include "graph/shape.h"
#include "trace/as_view_of.h"
#include "trace/below_tracing.h"
#include "trace/complex_number.h"
#include "trace/convert.h"
#include "trace/default_dtype.h"
#include "trace/graph_break.h"
#include "trace/number_range.h"
#include "trace/pytorch/names.h"
#include "trace/schema.h"
#include "trace/size_decider.h"
#include "trace/trial.h"

namespace braze::trace {

using graph::Arg;
using graph::ValueId;

namespace {

OpInfo info_of(const char* name) {
  OpInfo info;
  info.name = name;
  info.op = graph::op_from_name(info.name);
  return info;
}

const OpInfo& copy_info() {
  static const OpInfo info = info_of("aten::clone");
  return info;
}

const OpInfo& conjugate_info() {
  static const OpInfo info = info_of("aten::_conj_physical");
  return info;
}

const OpInfo& negative_info() {
  static const OpInfo info = info_of("aten::neg");
  return info;
}

bool is_lazy(const c10::IValue& v) {
  if (v.isTensor()) return v.toTensor().defined() && lazy_bits(v.toTensor()).any();
  if (!v.isTensorList() && !v.isOptionalTensorList()) return false;
  auto list = v.toListRef();
  return std::any_of(list.begin(), list.end(), is_lazy);
}

}  // namespace

bool wrapped_symbol(const at::Tensor& t) {
  return t.scalar_type() == c10::kLong && t.unsafeGetTensorImpl()->pyobj_slot()->load_pyobj();
}

namespace {

// A symbolic size among tensor operands: PyTorch wraps a number that stands for nothing and puts the torch.SymInt on
// the tensor's Python object. nullopt: an ordinary number.
std::optional<sym::Expr> wrapped_size(sym::ExprArena& arena, const at::Tensor& t) {
  if (!wrapped_symbol(t)) return std::nullopt;
  pybind11::gil_scoped_acquire gil;
  auto object = pybind11::reinterpret_steal<pybind11::object>(THPVariable_Wrap(t));
  auto number = pybind11::getattr(object, pytorch::text(pytorch::Attribute::wrapped_number), pybind11::none());
  if (!torch::is_symint(number)) return std::nullopt;
  return expr_of(arena, number.cast<c10::SymInt>());  // a constant by now, perhaps
}

double number(const at::Tensor& t) { return *static_cast<const double*>(t.const_data_ptr()); }

}  // namespace

Recorder::Recorder()
    : graph_(std::make_shared<sym::ExprArena>()), sizes_(std::make_shared<SizeEnv>(graph_.shared_arena())) {
  record_assertions();
}

void Recorder::guarded(const OpInfo& info, const std::function<void()>& calls) {
  try {
    calls();
  } catch (const Unsupported& e) {
    throw_graph_break(e.reason(), info.name + ": " + e.detail());
  } catch (const sym::Undecidable& e) {
    throw_graph_break(Reason::UnbackedDecision, info.name + ": " + sizes_->explain(e.condition));
  } catch (const InternalError& e) {
    // PyTorch would make a RuntimeError of it, which looks like the user's: Tracer::call throws it again.
    failure = e.what();
    throw_graph_break(Reason::TraceFailed, info.name + ": " + e.what());
  }
}

at::Tensor Recorder::lift(const at::Tensor& real, graph::InputKind kind, std::string name, TensorType type) {
  auto slot = static_cast<uint32_t>(slots.size());
  at::Tensor fake = make_fake(shared_from_this(), ValueId(), slot, type);
  slots.push_back(Slot{real, kind, std::move(name), std::move(type), ValueId()});
  return fake;
}

ValueId Recorder::use_slot(uint32_t slot) {
  Slot& s = slots[slot];
  if (!s.value.valid()) {
    s.value = graph_.add_input(s.type, s.kind);
    input_slots.push_back(slot);
  }
  return s.value;
}

ValueId Recorder::value_of(const FakeTensor& fake) {
  return resolved(memory_of(fake), {fake.is_conj(), fake.is_neg()});
}

ValueId Recorder::memory_of(const FakeTensor& fake) {
  if (closed_ || fake.recorder().get() != this)
    throw Unsupported(Reason::TraceFailed, "a fake tensor of another capture");
  return fake.value().valid() ? fake.value() : use_slot(fake.slot());
}

ValueId Recorder::resolved(ValueId memory, LazyBits bits) {
  auto apply = [&](const OpInfo& info) {
    auto [it, fresh] = resolved_.try_emplace({memory.index, info.op != graph::Op::neg});
    if (fresh) {
      std::vector<TensorType> types{graph_.type(memory)};
      if (!graph::is_non_overlapping_and_dense(arena(), types[0]))
        types[0].strides = contiguous_strides(arena(), types[0].sizes);
      types[0].offset = arena().constant(0);
      it->second = as_fake(append(info, {memory}, std::move(types), {-1})[0])->value();
    }
    memory = it->second;
  };
  if (bits.conj) apply(conjugate_info());
  if (bits.neg) apply(negative_info());
  return memory;
}

at::Tensor Recorder::copied_into(const FakeTensor& layout, const FakeTensor& values) {
  static const OpInfo copy = info_of("aten::copy");
  const ValueId like = value_of(layout), from = value_of(values);
  TensorType type = graph_.type(like);
  type.offset = arena().constant(0);
  return append(copy, {like, from, false}, {std::move(type)}, {-1})[0];
}

at::Tensor Recorder::under_bits(const at::Tensor& values, LazyBits bits) {
  ValueId memory = resolved(value_of(*as_fake(values)), bits);
  at::Tensor fake = make_fake(shared_from_this(), memory, FakeTensor::kNoSlot, graph_.type(memory));
  set_lazy_bits(fake, bits);
  return fake;
}

ValueId Recorder::constant(const at::Tensor& real) {
  auto [it, fresh] = constant_slots_.try_emplace(real.unsafeGetTensorImpl(), 0);
  if (fresh) {
    if (real.layout() != c10::kStrided || real.is_quantized() || real.is_conj() || real.is_neg() ||
        real.unsafeGetTensorImpl()->is_python_dispatch()) {
      constant_slots_.erase(it);
      throw Unsupported(Reason::UnsupportedTensor, "a constant that is not a plain strided tensor");
    }
    TensorType type = type_of(arena(), real);
    type.offset = arena().constant(0);
    it->second = static_cast<uint32_t>(slots.size());
    slots.push_back(Slot{real, graph::InputKind::Constant, {}, std::move(type), ValueId()});
  }
  return use_slot(it->second);
}

void Recorder::set_location(const graph::Location* location) {
  pending_location_ = location;
  if (!location) {
    location_ = graph::LocId();
    return;
  }
  // Calls come in the order of lines: most share the line of the one before.
  const graph::Location* last = last_location_.valid() ? &graph_.locations()[last_location_] : nullptr;
  bool same = last && last->line == location->line && last->function == location->function &&
              last->file == location->file && last->text == location->text;
  location_ = same ? last_location_ : graph::LocId();
}

graph::LocId Recorder::location() {
  if (pending_location_ && !location_.valid()) location_ = last_location_ = graph_.add_location(*pending_location_);
  return location_;
}

Arg Recorder::convert_tensor(const at::Tensor& tensor, const OpInfo& info) {
  if (auto* fake = as_fake(tensor)) return value_of(*fake);
  // Only pointwise operators tell a number from a 0-dim tensor; an operator without a row may be one.
  bool wrapped = tensor.unsafeGetTensorImpl()->is_wrapped_number();
  auto size = wrapped ? wrapped_size(arena(), tensor) : std::nullopt;
  bool pointwise = info.op == graph::Op::Extern || graph::op_class(info.op) == graph::OpClass::Pointwise;
  if (size && !pointwise) throw Unsupported(Reason::UnsupportedOp, "a symbolic size where a tensor is expected");
  if (size) return *size;
  if (pointwise && wrapped) {
    switch (tensor.scalar_type()) {
      case c10::kDouble: return number(tensor);
      case c10::kLong: return arena().constant(*static_cast<const int64_t*>(tensor.const_data_ptr()));
      case c10::kBool: return *static_cast<const bool*>(tensor.const_data_ptr());
      default: throw Unsupported(Reason::UnsupportedOp, "a complex number as operand");
    }
  }
  return constant(tensor);
}

Arg Recorder::convert(ArgKind kind, const c10::IValue& value, const OpInfo& info) {
  if (value.isNone()) return graph::NoneArg{};
  auto expr = [&](const c10::IValue& v) {
    return v.isSymInt() ? expr_of(arena(), v.toSymInt()) : arena().constant(v.toInt());
  };
  switch (kind) {
    case ArgKind::Tensor: {
      if (!value.toTensor().defined()) return graph::NoneArg{};
      return convert_tensor(value.toTensor(), info);
    }
    case ArgKind::TensorList: {
      graph::TensorList list;
      for (const c10::IValue& item : value.toListRef()) {
        if (item.isNone() || !item.toTensor().defined()) {
          list.emplace_back();
          continue;
        }
        const at::Tensor& tensor = item.toTensor();
        // A list holds values only: a number among them becomes a constant tensor.
        auto* fake = as_fake(tensor);
        list.push_back(fake ? value_of(*fake) : constant(tensor));
      }
      return list;
    }
    case ArgKind::Int: return expr(value);
    case ArgKind::IntList: {
      graph::IntList list;
      if (value.isIntList()) {
        for (int64_t v : value.toIntVector()) list.v.push_back(arena().constant(v));
      } else if (value.isList()) {
        for (const c10::IValue& item : value.toListRef()) list.v.push_back(expr(item));
      } else {
        list.v.push_back(expr(value));
      }
      return list;
    }
    case ArgKind::Float: return value.toDouble();
    case ArgKind::FloatList: return graph::DoubleList{value.toDoubleVector()};
    case ArgKind::Bool: return value.toBool();
    case ArgKind::BoolList: {
      graph::BoolList list;
      for (bool v : value.toBoolList()) list.v.push_back(v);
      return list;
    }
    case ArgKind::String: return value.toStringRef();
    case ArgKind::ScalarType: {
      auto dtype = dtype_of(value.toScalarType());
      if (!dtype) throw Unsupported(Reason::UnsupportedTensor, "its dtype");
      return *dtype;
    }
    case ArgKind::Layout: {
      if (value.toLayout() != c10::kStrided)
        throw Unsupported(Reason::UnsupportedTensor, "a layout that is not strided");
      return graph::LayoutArg{static_cast<int8_t>(value.toLayout())};
    }
    case ArgKind::MemoryFormat: return graph::MemoryFormatArg{static_cast<int8_t>(value.toMemoryFormat())};
    case ArgKind::Device: {
      auto device = device_of(value.toDevice());
      if (!device) throw Unsupported(Reason::UnsupportedTensor, "its device");
      return *device;
    }
    case ArgKind::Scalar:
      if (value.isBool()) return value.toBool();
      if (value.isDouble()) return value.toDouble();
      if (value.isInt() || value.isSymInt()) return expr(value);
      break;
    case ArgKind::Generator:
    case ArgKind::Other: break;
  }
  throw Unsupported(Reason::UnsupportedOp, "an argument of a kind that graphs do not hold");
}

void Recorder::refresh_sizes(bool arguments) {
  size_t now = sizes_->replacements();
  bool types = now != refreshed_ || (arguments && !sizes_->base().empty());
  refreshed_ = now;
  if (!types && !(now && arguments)) return;
  auto put = [&](std::vector<sym::Expr>& list) {
    for (sym::Expr& e : list) e = sizes_->simplify(e);
  };
  auto type = [&](TensorType& t) {
    put(t.sizes);
    put(t.strides);
    t.offset = sizes_->simplify(t.offset);
  };
  if (types) {
    for (size_t i = 0; i < graph_.values().size(); ++i) type(graph_.value(ValueId(i)).type);
    for (Slot& s : slots) type(s.type);
  }
  if (!arguments) return;
  for (size_t n = 0; n < graph_.nodes().size(); ++n)
    for (Arg& a : graph_.node(graph::NodeId(n)).args) {
      if (auto* e = std::get_if<sym::Expr>(&a)) *e = sizes_->simplify(*e);
      if (auto* l = std::get_if<graph::IntList>(&a)) put(l->v);
    }
}

void Recorder::check_treatment(const OpInfo& info, std::vector<Arg>& args) {
  // (..., running_min, ..., per_row_fake_quant, ...)
  if (info.name == "aten::_fused_moving_avg_obs_fq_helper_functional" && std::get<bool>(args[11]) &&
      arena().is_const(arena().product(graph_.type(std::get<ValueId>(args[3])).sizes), 0))
    throw Unsupported(Reason::DynamicOutput,
                      "an observer of channels that has not seen any yet: it gives its ranges their sizes");
  switch (info.treatment) {
    case Treatment::ReadsValue:
      if (info.name == "aten::_local_scalar_dense" || info.name == "aten::item")
        throw Unsupported(Reason::ScalarFromTensor, "a value is read");
      throw Unsupported(Reason::DataDependentBranch, "its result depends on values");
    case Treatment::DynamicOutput: {
      // repeat_interleave's total may be given.
      if (info.name == "aten::mkldnn_rnn_layer") {
        if (auto* train = std::get_if<bool>(&args.back()); train && !c10::GradMode::is_enabled()) {
          *train = false;  // nobody reads the workspace
          return;
        }
        for (const Arg& a : args)
          if (auto* v = std::get_if<ValueId>(&a); v && v->valid())
            for (sym::Expr s : graph_.type(*v).sizes)
              if (!arena().as_const(s))
                throw Unsupported(Reason::UnsupportedOp, "the size of its workspace is known to its kernel alone");
        return;
      }
      if (info.name == "aten::_ctc_loss") return;  // of the lengths in its arguments
      if (info.name == "aten::repeat_interleave.Tensor" && std::holds_alternative<sym::Expr>(args[1])) return;
      throw Unsupported(Reason::DynamicOutput, "the size of its result depends on values");
    }
    case Treatment::MaskedIndex:
      if (auto* indices = std::get_if<graph::TensorList>(&args[1]))
        for (ValueId index : *indices)
          if (index.valid() && (graph_.type(index).dtype == DType::Bool || graph_.type(index).dtype == DType::U8))
            throw Unsupported(Reason::DynamicOutput, "the size of its result depends on the mask");
      return;
    case Treatment::NormInTraining: {
      // (input, weight, bias, running_mean, running_var, training, ...)
      auto* training = std::get_if<bool>(&args[5]);
      if (training && *training && std::holds_alternative<ValueId>(args[3]))
        throw Unsupported(Reason::UnsupportedMutation, "running statistics are updated");
      return;
    }
    case Treatment::AsStrided: {
      check_extent(args);
      // An explicit offset counts from the start of the storage: for an input that is where its fake starts if it does
      // so itself.
      if (!std::holds_alternative<sym::Expr>(args[3])) return;
      uint32_t slot = root_slot(std::get<ValueId>(args[0]));
      if (slot == FakeTensor::kNoSlot) return;
      if (slots[slot].kind != graph::InputKind::Constant && slots[slot].real.defined() &&
          slots[slot].real.storage_offset() == 0) {
        offset_slots.push_back(slot);
        return;
      }
      throw Unsupported(Reason::UnsupportedOp, "as_strided with an offset into the storage of an input");
    }
    case Treatment::Writes: throw Unsupported(Reason::UnsupportedOp, "a write that is not functional");
    case Treatment::Record:
    case Treatment::Same:
    case Treatment::Conjugates:
    case Treatment::Negates:
    case Treatment::Literal:
    case Treatment::Ignore: return;
  }
}

uint32_t Recorder::root_slot(ValueId value) const {
  while (graph_.value(value).node.valid()) {
    const graph::Node& node = graph_.node(graph_.value(value).node);
    auto* operand = node.args.empty() ? nullptr : std::get_if<ValueId>(&node.args[0]);
    if (graph::op_class(node.op) != graph::OpClass::View || !operand) return FakeTensor::kNoSlot;
    value = *operand;
  }
  return graph_.value(value).index < input_slots.size() ? input_slots[graph_.value(value).index] : FakeTensor::kNoSlot;
}

// The result is the operand's value; but a literal is copied, since the program may write to it or return it.
void Recorder::pass_on(const OpInfo& info, torch::jit::Stack* stack) {
  if (closed_) throw Unsupported(Reason::TraceFailed, "a fake tensor of another capture");
  const at::Tensor operand = stack->back().toTensor();
  torch::jit::drop(*stack, 1);
  auto* fake = as_fake(operand);
  LazyBits bits = lazy_bits(operand);
  bits.conj ^= info.treatment == Treatment::Conjugates;
  bits.neg ^= info.treatment == Treatment::Negates;
  if (!fake) {
    ValueId value = constant(operand);
    if (info.treatment == Treatment::Literal) {
      slots[constant_slots_.at(operand.unsafeGetTensorImpl())].literal = true;
      record(copy_info(), {value, graph::NoneArg{}}, {graph_.type(value)}, {-1}, stack);
      ValueId literal = as_fake(stack->back().toTensor())->value();
      literals_.insert(literal.index);
      if (is_small(operand)) known_.emplace(literal.index, operand);
      return;
    }
    AsViewOf plain(operand);
    stack->emplace_back(make_fake(shared_from_this(), value, FakeTensor::kNoSlot, graph_.type(value)));
    set_lazy_bits(stack->back().toTensor(), bits);
    return;
  }
  AsViewOf plain(operand);
  const TensorType& type = fake->value().valid() ? graph_.type(fake->value()) : slots[fake->slot()].type;
  stack->emplace_back(make_fake(shared_from_this(), fake->value(), fake->slot(), type));
  set_lazy_bits(stack->back().toTensor(), bits);
}

void Recorder::call(const c10::OperatorHandle& op, const OpInfo& info, torch::jit::Stack* stack) {
  switch (info.treatment) {
    case Treatment::Same:
    case Treatment::Conjugates:
    case Treatment::Negates:
    case Treatment::Literal: return pass_on(info, stack);
    default: break;
  }
  if (info.treatment == Treatment::Ignore) return torch::jit::drop(*stack, info.args.size());
  auto known = known_operands(op, info, *stack);
  if (known && info.treatment == Treatment::ReadsValue) {
    BelowTracing below;
    op.callBoxed(*known);
    torch::jit::drop(*stack, info.args.size());
    for (c10::IValue& v : *known) stack->push_back(std::move(v));
    return;
  }
  std::vector<c10::IValue> args;
  if (checkpoints.notes_calls()) args = torch::jit::last(*stack, info.args.size()).vec();
  size_t base = stack->size() - info.args.size(), node = graph_.nodes().size();
  note_call(op, info, stack);
  if (checkpoints.notes_calls())
    checkpoints.note({op,
                      std::move(args),
                      {stack->begin() + static_cast<ptrdiff_t>(base), stack->end()},
                      node,
                      graph_.nodes().size()});
  if (known) compute_known(op, std::move(*known), *stack);
}

// Some Meta kernels (where's) promote floats of a byte with others, which eager refuses: raises as eager does.
static void refuse_float8_mix(const graph::Graph& g, const OpInfo& info, const std::vector<Arg>& args) {
  const graph::ResultRule& rule = graph::op_row(info.op).result;
  const bool list = info.op == graph::Op::cat || info.op == graph::Op::stack;
  if (!list && (rule.family != graph::TypeFamily::Pointwise || rule.dtype == graph::ResultDType::Own)) return;
  const size_t first = info.op == graph::Op::where_self ? 1 : 0;
  std::vector<c10::ScalarType> types;
  bool any = false;
  auto look = [&](ValueId v) {
    if (!v.valid() || g.type(v).dim() == 0) return;
    types.push_back(scalar_type(g.type(v).dtype));
    any = any || float8(g.type(v).dtype);
  };
  for (size_t i = first; i < args.size(); ++i) {
    if (auto* v = std::get_if<ValueId>(&args[i])) look(*v);
    if (auto* l = std::get_if<graph::TensorList>(&args[i])) std::for_each(l->begin(), l->end(), look);
  }
  for (size_t i = 1; any && i < types.size(); ++i) c10::promoteTypes(types[0], types[i]);
}

void Recorder::note_call(const c10::OperatorHandle& op, const OpInfo& info, torch::jit::Stack* stack) {
  auto operands = torch::jit::last(*stack, info.args.size());
  bool lazy = std::any_of(operands.begin(), operands.end(), is_lazy);
  // What is written to a tensor with bits goes to its memory through them, and it keeps them.
  LazyBits of_written;
  if (lazy && info.op == graph::Op::copy) of_written = lazy_bits(operands[0].toTensor());
  note_plain_call(op, info, stack, lazy);
  if (of_written.any()) stack->back() = under_bits(stack->back().toTensor(), of_written);
}

void Recorder::note_plain_call(const c10::OperatorHandle& op, const OpInfo& info, torch::jit::Stack* stack, bool lazy) {
  size_t base = stack->size() - info.args.size();
  unwrap_complex_numbers(stack->data() + base, info.args.size());
  std::vector<Arg> args;
  args.reserve(info.args.size());
  bool of_memory = lazy && graph::op_class(info.op) == graph::OpClass::View;
  for (size_t i = 0; i < info.args.size(); ++i) {
    auto* viewed = of_memory && i == 0 ? as_fake((*stack)[base].toTensor()) : nullptr;
    args.push_back(viewed ? Arg(memory_of(*viewed)) : convert(info.args[i], (*stack)[base + i], info));
  }
  bool depends = info.treatment == Treatment::ReadsValue || info.treatment == Treatment::DynamicOutput ||
                 info.treatment == Treatment::MaskedIndex;
  try {
    check_treatment(info, args);
  } catch (const Unsupported&) {
    if (!depends || !call_data_dependent(info, args, stack)) throw;
    return;
  }

  // A view in another dtype is made anew, as the mode asks.
  std::optional<AsViewOf> kind;
  bool is_view = graph::op_class(info.op) == graph::OpClass::View && info.op != graph::Op::view_dtype;
  if (is_view && (*stack)[base].isTensor()) kind.emplace((*stack)[base].toTensor());

  // PyTorch's kernels of views say which bits the result has.
  if (!of_memory && info.op != graph::Op::Extern && info.only_tensors && info.tensor_lists <= 1 &&
      !info.tensor_results.empty()) {
    refresh_sizes();
    auto lookup = [&](ValueId v) { return graph::Operand{&graph_.type(v), false}; };
    graph::ShapeContext context{graph::OperandLookup(lookup), arena(),
                                *dtype_of(c10::get_default_dtype_as_scalartype())};
    bool refused = false;
    context.refused = &refused;
    auto types = graph::infer(info.op, args, context);
    if (!types && (!sizes_->base().empty() || sizes_->has_unbacked())) {
      // What is not provable is decided as it is in this call, with a guard, or left to the run.
      SizeDecider decider(*sizes_);
      context.decide = &decider;
      size_t learnt = sizes_->replacements();
      refused = false;
      types = graph::infer(info.op, args, context);
      if (learnt != sizes_->replacements()) {
        refresh_sizes(true);
        for (Arg& a : args) {
          if (auto* e = std::get_if<sym::Expr>(&a)) *e = sizes_->simplify(*e);
          if (auto* l = std::get_if<graph::IntList>(&a))
            for (sym::Expr& e : l->v) e = sizes_->simplify(e);
        }
        types = graph::infer(info.op, args, context);
      }
      if (types) decider.commit();
    }
    if (!types && refused) throw Unsupported(Reason::RaisedException, "eager PyTorch refuses these arguments");
    if (types) {
      std::vector<int32_t> list_sizes;
      if (info.tensor_lists == 1) {
        auto in_list = static_cast<int32_t>(types->size() - (info.tensor_results.size() - 1));
        for (bool list : info.list_results) list_sizes.push_back(list ? in_list : -1);
      } else {
        list_sizes.assign(info.tensor_results.size(), -1);
      }
      torch::jit::drop(*stack, info.args.size());
      return record(info, std::move(args), std::move(*types), list_sizes, stack);
    }
  }
  refuse_float8_mix(graph_, info, args);
  run_meta(op, info, std::move(args), stack);
}

std::vector<at::Tensor> Recorder::call_writing(const c10::OperatorHandle& op, const OpInfo& info,
                                               torch::jit::Stack* stack) {
  size_t base = stack->size() - info.args.size();
  std::vector<Arg> args;
  std::vector<ValueId> written;
  for (size_t i = 0; i < info.args.size(); ++i) {
    if (is_lazy((*stack)[base + i]))
      throw Unsupported(Reason::UnsupportedMutation,
                        "a lazily conjugated or negated tensor beside one that is written");
    args.push_back(convert(info.args[i], (*stack)[base + i], info));
    if (!is_written(op.schema().arguments()[i])) continue;
    if (auto* v = std::get_if<ValueId>(&args.back())) written.push_back(*v);
    if (auto* l = std::get_if<graph::TensorList>(&args.back())) written.insert(written.end(), l->begin(), l->end());
  }
  std::erase_if(written, [](ValueId v) { return !v.valid(); });
  return run_meta(op, info, std::move(args), stack, written);
}

std::vector<at::Tensor> Recorder::append(const OpInfo& info, std::vector<Arg> args, std::vector<TensorType> types,
                                         std::vector<int32_t> list_sizes) {
  std::vector<bool> defined;
  for (const TensorType& type : types) defined.push_back(type.dtype != DType::Opaque);
  std::erase_if(types, [](const TensorType& type) { return type.dtype == DType::Opaque; });
  if (types.size() == 1 && c10::get_default_dtype_as_scalartype() != default_dtype_) name_dtype(info, args, types[0]);
  if (!types.empty()) refuse_out_of_range(arena(), info.op, args, types[0].dtype);
  assume_sizes(types);
  graph::NodeId node = graph_.add_node(info.op, std::move(args), std::move(types), origin(),
                                       info.op == graph::Op::Extern ? info.name : std::string(), std::move(list_sizes));
  std::vector<at::Tensor> results(defined.size());
  std::vector<ValueId> outputs(defined.size());
  size_t next = 0;
  auto self = shared_from_this();
  for (size_t i = 0; i < defined.size(); ++i) {
    if (!defined[i]) continue;
    ValueId value = outputs[i] = graph_.node(node).outputs[next++];
    graph_.value(value).index = static_cast<uint32_t>(i);
    results[i] = make_fake(self, value, FakeTensor::kNoSlot, graph_.type(value));
  }
  graph_.node(node).outputs = std::move(outputs);
  return results;
}

void Recorder::record(const OpInfo& info, std::vector<Arg> args, std::vector<TensorType> types,
                      const std::vector<int32_t>& list_sizes, torch::jit::Stack* stack) {
  std::vector<at::Tensor> results = append(info, std::move(args), std::move(types), list_sizes);
  auto at = results.begin();
  for (int32_t n : list_sizes) {
    if (n < 0) {
      stack->emplace_back(std::move(*at++));
    } else {
      stack->emplace_back(std::vector<at::Tensor>(at, at + n));
      at += n;
    }
  }
}

}  // namespace braze::trace
