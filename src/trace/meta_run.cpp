// Result types of operators without a shape rule: PyTorch's Meta kernels, run on plain meta tensors of the same
// geometry.
#include <ATen/EmptyTensor.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <pybind11/pybind11.h>
#include <torch/csrc/Exceptions.h>

#include <algorithm>

#include "base/check.h"
#include "graph/shape.h"
#include "trace/below_tracing.h"
#include "trace/convert.h"
#include "trace/kernel_launches.h"
#include "trace/pytorch/python_kernels.h"
#include "trace/recorder.h"
#include "trace/symnode.h"

namespace braze::trace {
namespace {

constexpr int64_t kMostSize = int64_t{1} << 40;

// Results that the real kernel leaves undefined, where the Meta kernel makes an empty tensor: the attention weights
// that nobody asked for (need_weights, the call's 11th argument).
bool leaves_undefined(const OpInfo& info, const torch::jit::Stack& call, size_t result) {
  return info.name == "aten::_native_multi_head_attention" && result == 1 &&
         !torch::jit::peek(call, 10, info.args.size()).toBool();
}

// The kernel's losses of one sample are a number, where the Meta kernel makes a vector of one.
bool is_one_loss(const OpInfo& info, const torch::jit::Stack& call, size_t result) {
  if (info.name != "aten::multilabel_margin_loss_forward" || result) return false;
  const c10::IValue& input = torch::jit::peek(call, 0, info.args.size());
  return input.isTensor() && input.toTensor().dim() <= 1;
}

// Replaces the tensors and devices of a call by meta ones and remembers the device of the results.
class MetaArgs {
 public:
  // Symbols stay, become the numbers that they have in this call, or those, guarded.
  enum class Sizes { Symbols, Shown, Fixed };
  explicit MetaArgs(Sizes sizes) : sizes_(sizes) {}

  c10::IValue convert(const c10::IValue& value) {
    if (sizes_ != Sizes::Symbols && value.isSymInt()) return number(value.toSymInt());
    if (sizes_ != Sizes::Symbols && value.isSymIntList()) {
      c10::List<int64_t> list;
      for (const c10::SymInt& s : value.toSymIntVector()) list.push_back(number(s));
      return list;
    }
    if (value.isTensor()) return tensor(value.toTensor());
    if (value.isDevice()) {
      device_ = explicit_ = value.toDevice();
      return c10::Device(c10::kMeta);
    }
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& t : value.toTensorVector()) list.push_back(tensor(t));
      return list;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const c10::IValue& item : value.toListRef())
        list.push_back(item.isNone() ? std::nullopt : std::optional<at::Tensor>(tensor(item.toTensor())));
      return list;
    }
    return value;
  }

  // Whether the result is a view of an operand.
  bool owns(const at::Tensor& t) const {
    return std::find(storages_.begin(), storages_.end(), t.storage().unsafeGetStorageImpl()) != storages_.end();
  }
  bool symbolic() const { return symbolic_; }
  c10::Device device() const {
    if (explicit_) return *explicit_;
    return device_ ? *device_ : scalar_device_.value_or(c10::Device(c10::kCPU));
  }

 private:
  at::Tensor tensor(const at::Tensor& t) {
    if (!t.defined() || t.unsafeGetTensorImpl()->is_wrapped_number()) return t;
    // A 0-dim CPU tensor among tensors of another device does not decide.
    if (t.dim() == 0 && t.device().is_cpu())
      scalar_device_ = t.device();
    else if (!device_)
      device_ = t.device();
    symbolic_ |= t.unsafeGetTensorImpl()->has_symbolic_sizes_strides();
    auto numbers = [&](c10::SymIntArrayRef from) {
      c10::SmallVector<int64_t, 5> to;
      for (const c10::SymInt& i : from) to.push_back(number(i));
      return to;
    };
    at::Tensor meta =
        sizes_ == Sizes::Symbols
            ? at::detail::empty_strided_symint_meta(t.sym_sizes(), t.sym_strides(), t.scalar_type())
            : at::detail::empty_strided_meta(numbers(t.sym_sizes()), numbers(t.sym_strides()), t.scalar_type());
    auto offset = t.sym_storage_offset();
    if (sizes_ != Sizes::Symbols)
      meta.unsafeGetTensorImpl()->set_storage_offset(number(offset));
    else if (offset.maybe_as_int() != 0)
      meta.unsafeGetTensorImpl()->set_sizes_and_strides(t.sym_sizes(), t.sym_strides(), offset);
    set_lazy_bits(meta, lazy_bits(t));
    storages_.push_back(meta.storage().unsafeGetStorageImpl());
    return meta;
  }

  int64_t number(const c10::SymInt& s) const {
    return sizes_ == Sizes::Shown ? hint_of(s).value() : s.guard_int(__FILE__, __LINE__);
  }

  c10::SmallVector<const c10::StorageImpl*, 4> storages_;
  Sizes sizes_;
  bool symbolic_ = false;
  std::optional<c10::Device> device_, explicit_, scalar_device_;
};

at::Tensor made(const at::Tensor& like, c10::SymIntArrayRef sizes) {
  return at::detail::empty_symint_meta(sizes, like.scalar_type(), std::nullopt, std::nullopt, std::nullopt,
                                       std::nullopt);
}

// The results of operators without a Meta kernel, all dense; nullopt: another.
std::optional<torch::jit::Stack> results_by_rule(const OpInfo& info, const torch::jit::Stack& meta) {
  static constexpr const char* kLikeSecond[] = {
      "aten::multi_margin_loss_backward", "aten::multilabel_margin_loss_backward",
      "aten::fractional_max_pool3d_backward", "aten::_ctc_loss_backward", "aten::_ctc_loss_backward.Tensor"};
  for (const char* name : kLikeSecond)
    if (info.name == name && meta.size() > 1 && meta[1].isTensor())
      return torch::jit::Stack{made(meta[1].toTensor(), meta[1].toTensor().sym_sizes())};
  // PyTorch 2.11 has no Meta kernel for it.
  if (info.name == "aten::_transformer_encoder_layer_fwd")
    return torch::jit::Stack{made(meta[0].toTensor(), meta[0].toTensor().sym_sizes())};
  if (info.name == "aten::_ctc_loss") {  // (log_probs, targets, input_lengths, target_lengths, ...)
    const at::Tensor& probabilities = meta[0].toTensor();
    TORCH_CHECK(probabilities.dim() == 3, "log_probs has to be of 3 dimensions");
    int64_t longest = 0;
    for (int64_t n : meta[3].toIntVector()) longest = std::max(longest, n);
    c10::SymInt steps = probabilities.sym_size(0), batch = probabilities.sym_size(1);
    return torch::jit::Stack{made(probabilities, {batch}), made(probabilities, {batch, steps, 2 * longest + 1})};
  }
  if (info.name == "aten::cudnn_grid_sampler") {  // (images, grid)
    const at::Tensor &images = meta[0].toTensor(), &grid = meta[1].toTensor();
    return torch::jit::Stack{
        made(images, {images.sym_size(0), images.sym_size(1), grid.sym_size(1), grid.sym_size(2)})};
  }
  if (info.name == "aten::cudnn_grid_sampler_backward")  // of both
    return torch::jit::Stack{made(meta[0].toTensor(), meta[0].toTensor().sym_sizes()),
                             made(meta[1].toTensor(), meta[1].toTensor().sym_sizes())};
  if (info.name == "aten::histogram.bin_ct") {
    c10::SymInt bins = meta[1].isSymInt() ? meta[1].toSymInt() : c10::SymInt(meta[1].toInt());
    return torch::jit::Stack{made(meta[0].toTensor(), {bins}), made(meta[0].toTensor(), {bins + 1})};
  }
  if (info.name == "aten::histogram.bins_tensor" && meta[1].toTensor().dim() == 1) {
    c10::SymInt edges = meta[1].toTensor().sym_size(0);
    return torch::jit::Stack{made(meta[0].toTensor(), {edges - 1}), made(meta[0].toTensor(), {edges})};
  }
  return std::nullopt;
}

// Whether images can be sampled at a grid of as many dimensions, which eager refuses otherwise: guarded, as kernels of
// ours don't look.
bool fit(const at::Tensor& images, const at::Tensor& grid) {
  for (const at::Tensor& t : {images, grid})
    for (const c10::SymInt& s : t.sym_sizes())
      if (!hint_of(s)) return false;
  auto holds = [](const c10::SymBool& condition) { return condition.guard_bool(__FILE__, __LINE__); };
  bool right = holds(images.sym_size(0).sym_eq(grid.sym_size(0))) && holds(grid.sym_size(-1).sym_eq(images.dim() - 2));
  for (int64_t d = 2; right && d < images.dim(); ++d) right = holds(images.sym_size(d).sym_gt(0));
  return right;
}

// Results whose sizes neither a Meta kernel nor a decomposition finds from symbols, where the operands are as they
// should be: all dense.
std::optional<torch::jit::Stack> results_of_symbols(const OpInfo& info, const torch::jit::Stack& meta) {
  if (info.name == "aten::grid_sampler_2d" || info.name == "aten::grid_sampler_3d") {  // (images, grid, ...)
    const at::Tensor &images = meta[0].toTensor(), &grid = meta[1].toTensor();
    if (images.dim() != grid.dim() || !fit(images, grid)) return std::nullopt;
    std::vector<c10::SymInt> sizes = images.sym_sizes().slice(0, 2).vec();
    for (int64_t d = 1; d + 1 < grid.dim(); ++d) sizes.push_back(grid.sym_size(d));
    return torch::jit::Stack{made(images, sizes)};
  }
  const std::string_view name = info.name;
  const bool resamples = name.starts_with("aten::upsample_") || name.starts_with("aten::_upsample_");
  if (resamples && name.ends_with("_backward") && meta[2].isSymIntList())  // (gradient, its sizes, sizes...)
    return torch::jit::Stack{made(meta[0].toTensor(), meta[2].toSymIntVector())};
  if (info.name == "aten::grid_sampler_2d_backward" || info.name == "aten::grid_sampler_3d_backward") {
    torch::jit::Stack out;  // (gradient, images, grid, ..., which)
    for (size_t i : {1, 2}) {
      const at::Tensor& of = meta[i].toTensor();
      const bool asked = i == 2 || meta.back().toBoolList().get(0);
      out.emplace_back(asked ? made(of, of.sym_sizes()) : at::Tensor());
    }
    return out;
  }
  return std::nullopt;
}

// Whether results of symbolic sizes are in this call what the Meta kernel gives: not every decomposition lays them out
// as the kernel does.
bool agree(const torch::jit::Stack& symbolic, const torch::jit::Stack& numbers) {
  if (symbolic.size() != numbers.size()) return false;
  for (size_t i = 0; i < symbolic.size(); ++i) {
    if (symbolic[i].isTensor() != numbers[i].isTensor()) return false;
    if (!symbolic[i].isTensor()) continue;
    const at::Tensor &a = symbolic[i].toTensor(), &b = numbers[i].toTensor();
    if (a.defined() != b.defined()) return false;
    if (!a.defined()) continue;
    if (a.dim() != b.dim() || a.scalar_type() != b.scalar_type()) return false;
    for (int64_t d = 0; d < a.dim(); ++d) {
      if (hint_of(a.sym_size(d)) != b.size(d)) return false;
      if (b.numel() && b.size(d) != 1 && hint_of(a.sym_stride(d)) != b.stride(d)) return false;
    }
  }
  return true;
}

// Whether what computes an operator of the program's may refuse what its Meta kernel took, and a graph would not say
// so: not of views, nor of those by which functionalisation writes parts of memory back.
bool may_be_refused(graph::Op op) {
  const std::string_view name = graph::op_name(op);
  const graph::OpClass c = graph::op_class(op);
  return op != graph::Op::Extern && c != graph::OpClass::View && c != graph::OpClass::Random &&
         !name.ends_with("_scatter") && !name.ends_with("_copy");
}

// c10::MemoryFormat of a dense tensor that lies channels-last; 0 of others.
int8_t dense_format(sym::ExprArena& arena, const TensorType& t) {
  if ((t.dim() != 4 && t.dim() != 5) || is_contiguous(arena, t)) return 0;
  const int8_t format = t.dim() == 4 ? 2 : 3;
  const std::vector<sym::Expr> wanted = graph::format_strides(arena, t.sizes, format);
  for (size_t d = 0; d < t.dim(); ++d)
    if (t.strides[d] != wanted[d] && !arena.is_const(t.sizes[d], 1)) return 0;
  return format;
}

// Where the kernel of the CPU lays out its result as its operand lies, and its Meta kernel row by row: the result's
// format.
int8_t format_of_result(const graph::Graph& g, const OpInfo& info, const std::vector<graph::Arg>& args) {
  static constexpr std::string_view kFollowing[] = {
      "aten::pixel_shuffle",    "aten::pixel_unshuffle",   "aten::channel_shuffle",  "aten::reflection_pad2d",
      "aten::reflection_pad3d", "aten::replication_pad2d", "aten::replication_pad3d"};
  std::string_view name = info.name;
  constexpr std::string_view kBackward = "_backward";  // (gradient, operand, ...)
  const size_t operand = name.ends_with(kBackward) ? 1 : 0;
  if (operand) name.remove_suffix(kBackward.size());
  if (std::ranges::find(kFollowing, name) == std::end(kFollowing)) return 0;
  auto* v = args.size() > operand ? std::get_if<graph::ValueId>(&args[operand]) : nullptr;
  if (!v || !v->valid() || g.type(*v).device.type != DeviceType::CPU) return 0;
  return dense_format(g.arena(), g.type(*v));
}

// The workspace of a recurrent layer has a size that its kernel chooses: it is asked, on tensors like the operands.
at::Tensor rnn_workspace(const c10::OperatorHandle& op, const torch::jit::Stack& meta) {
  torch::jit::Stack real;
  for (const c10::IValue& v : meta) {
    if (!v.isTensor()) {
      real.push_back(v);
      continue;
    }
    const at::Tensor& t = v.toTensor();
    real.emplace_back(at::detail::empty_strided_cpu(t.sizes(), t.strides(), t.scalar_type()).zero_());
  }
  op.callBoxed(&real);
  const at::Tensor& workspace = real.back().toTensor();
  return at::detail::empty_strided_meta(workspace.sizes(), workspace.strides(), workspace.scalar_type());
}

}  // namespace

std::vector<at::Tensor> Recorder::run_meta(const c10::OperatorHandle& op, const OpInfo& info,
                                           std::vector<graph::Arg> args, torch::jit::Stack* stack,
                                           const std::vector<graph::ValueId>& written) {
  MetaArgs convert(MetaArgs::Sizes::Symbols);
  torch::jit::Stack meta;
  auto prepare = [&] {
    meta.clear();
    meta.reserve(info.args.size());
    for (const c10::IValue& value : torch::jit::last(*stack, info.args.size())) meta.push_back(convert.convert(value));
    for (size_t i = 0; i < info.args.size();
         ++i)  // a factory's device that is not given is still not that of real memory
      if (info.args[i] == ArgKind::Device && meta[i].isNone()) meta[i] = c10::Device(c10::kMeta);
  };
  // Of what a kernel in Python says depends on values.
  int64_t number = 0;
  auto new_size = [&](int64_t least, std::optional<int64_t> most) {
    if (!open_results_) throw Unsupported(Reason::DynamicOutput, "the size of its result depends on values");
    std::string what = "size " + std::to_string(number++) + " of the result of " + info.name;
    return sym_int(sizes_, unbacked_symbol(what, args, {least, std::min(most.value_or(kMostSize), kMostSize)}));
  };
  auto call = [&] {
    BelowTracing below;
    number = 0;
    if (auto results = results_by_rule(info, meta)) {
      meta = std::move(*results);
    } else if (!pytorch::run_fake_kernel(op, info, meta, new_size, convert.device().is_cpu())) {
      torch::jit::Stack operands =
          info.name == "aten::mkldnn_rnn_layer" && c10::GradMode::is_enabled() && !convert.symbolic()
              ? meta
              : torch::jit::Stack();
      op.callBoxed(&meta);
      if (!operands.empty()) meta.back() = rnn_workspace(op, operands);
    }
  };
  // Of the results on the stack; where the kernel does not say so, `otherwise`.
  auto agree_with_kernel = [&](bool otherwise) {
    MetaArgs symbols = convert;
    torch::jit::Stack results = meta;
    convert = MetaArgs(MetaArgs::Sizes::Shown);
    bool right = otherwise;
    try {
      prepare();
      call();
      right = agree(results, meta);
    } catch (const std::bad_optional_access&) {
    } catch (const c10::Error&) {
    } catch (const pybind11::error_already_set&) {
    }
    convert = std::move(symbols);
    meta = std::move(results);
    return right;
  };
  prepare();
  bool nothing_asked = !written.empty() &&
                       std::none_of(info.tensor_results.begin(), info.tensor_results.end(), [](bool b) { return b; });
  bool symbolic = convert.symbolic() || std::any_of(meta.begin(), meta.end(), [](const c10::IValue& v) {
                    return v.isSymInt() || v.isSymIntList();
                  });
  try {
    bool done = nothing_asked;
    if (done) meta.assign(info.tensor_results.size(), c10::IValue());
    if (symbolic && !done) {
      // PyTorch's kernels take symbols only in part; its decompositions in Python take more; what is left gets plain
      // numbers.
      try {
        NumbersRefused takes_symbols(pytorch::kKernelsAskBeforeTheyFail);
        call();
        done = true;
      } catch (const c10::Error&) {
      } catch (const pybind11::error_already_set&) {  // a question about sizes that went to Python
      }
      if (!done) {
        convert = MetaArgs(MetaArgs::Sizes::Symbols);
        prepare();
        auto results = results_of_symbols(info, meta);
        if (results) meta = std::move(*results);
        done = results && agree_with_kernel(false);
      }
      if (!done) {
        convert = MetaArgs(MetaArgs::Sizes::Symbols);
        prepare();
        BelowTracing below;
        // Of those that lay out their result in another way than the kernel does.
        done =
            info.name != "aten::max_unpool2d" && pytorch::run_decomposition(op, info, meta) && agree_with_kernel(true);
      }
      if (!done) {
        convert = MetaArgs(MetaArgs::Sizes::Fixed);
        prepare();
      }
    }
    if (!done) call();
  } catch (const c10::NotImplementedError&) {
    throw Unsupported(Reason::UnsupportedOp, "no Meta kernel gives its result's size");
  } catch (const python_error&) {
    python_kernel_raised = true;
    throw;
  } catch (const pybind11::error_already_set&) {
    python_kernel_raised = true;
    throw;
  }
  if (symbolic) {
    refresh_sizes();
    for (graph::Arg& a : args) {
      if (auto* e = std::get_if<sym::Expr>(&a)) *e = sizes_->simplify(*e);
      if (auto* l = std::get_if<graph::IntList>(&a))
        for (sym::Expr& e : l->v) e = sizes_->simplify(e);
    }
  }

  const int8_t format = format_of_result(graph_, info, args);
  auto device = device_of(convert.device());
  if (!device) throw Unsupported(Reason::UnsupportedTensor, "its device");
  std::vector<TensorType> types;
  std::vector<LazyBits> bits;
  std::vector<int32_t> list_sizes;
  bool any = false;
  auto note = [&](const at::Tensor& t) {
    if (!t.defined() || leaves_undefined(info, *stack, types.size())) {
      types.emplace_back().dtype = DType::Opaque;
      bits.emplace_back();
      return;
    }
    any = true;
    bits.push_back(lazy_bits(t));
    if (bits.back().any() && graph::op_class(info.op) != graph::OpClass::View)
      throw Unsupported(Reason::UnsupportedTensor, "a result that is lazily conjugated or negated");
    if (t.layout() != c10::kStrided) throw Unsupported(Reason::UnsupportedTensor, "a result that is not strided");
    types.push_back(type_of(arena(), t));
    types.back().device = *device;
    if (is_one_loss(info, *stack, types.size() - 1)) types.back().sizes = types.back().strides = {};
    if (!convert.owns(t)) types.back().offset = arena().constant(0);  // fresh memory, wherever the kernel put it
    // PyTorch's Meta kernel is its decomposition, which leaves what it was given in the order that it had.
    if (info.op == graph::Op::im2col) types.back().strides = contiguous_strides(arena(), types.back().sizes);
    if (format && types.size() == 1) types.back().strides = graph::format_strides(arena(), types.back().sizes, format);
  };
  for (const c10::IValue& value : meta) {
    if (value.isTensor()) {
      note(value.toTensor());
      list_sizes.push_back(-1);
    } else if (value.isTensorList()) {
      auto list = value.toTensorVector();
      for (const at::Tensor& t : list) note(t);
      list_sizes.push_back(static_cast<int32_t>(list.size()));
    } else {
      list_sizes.push_back(0);
    }
  }
  if (!any && written.empty()) {
    // Questions about metadata are answered, not recorded; what has no result is there for its effect (a check).
    if (meta.empty()) append(info, std::move(args), {}, {});
    torch::jit::drop(*stack, info.args.size());
    for (c10::IValue& value : meta) stack->push_back(std::move(value));
    return {};
  }
  std::vector<graph::ValueId> operands;
  for (const graph::Arg& a : args) {
    if (auto* v = std::get_if<graph::ValueId>(&a)) operands.push_back(*v);
    if (auto* l = std::get_if<graph::TensorList>(&a))
      std::copy_if(l->begin(), l->end(), std::back_inserter(operands), [](graph::ValueId v) { return v.valid(); });
  }
  for (graph::ValueId v : written) {
    TensorType type = graph_.type(v);
    if (info.name == kLaunchKernel) {
      // The program passes strides as numbers.
      for (size_t d = 0; d < type.sizes.size(); ++d)
        if (arena().is_const(type.strides[d], 0) && !arena().is_const(type.sizes[d], 1))
          throw Unsupported(Reason::UnsupportedMutation, "an expanded tensor is written");
    } else if (!graph::is_non_overlapping_and_dense(arena(), type)) {
      type.strides = contiguous_strides(arena(), type.sizes);
    }
    type.offset = arena().constant(0);
    types.push_back(std::move(type));
    auto at = std::find(operands.begin(), operands.end(), v) - operands.begin();
    list_sizes.push_back(-2 - static_cast<int32_t>(at));
  }

  if (written.empty() && may_be_refused(info.op))
    typed_by_kernels.push_back(graph::NodeId(static_cast<uint32_t>(graph_.nodes().size())));
  std::vector<at::Tensor> results = append(info, std::move(args), std::move(types), list_sizes);
  for (size_t i = 0; i < bits.size(); ++i)
    if (results[i].defined()) set_lazy_bits(results[i], bits[i]);
  torch::jit::drop(*stack, info.args.size());
  size_t at = 0;
  for (size_t i = 0; i < meta.size(); ++i) {
    if (list_sizes[i] < 0) {
      stack->emplace_back(std::move(results[at++]));
    } else if (meta[i].isTensorList()) {
      stack->emplace_back(std::vector<at::Tensor>(results.begin() + static_cast<ptrdiff_t>(at),
                                                  results.begin() + static_cast<ptrdiff_t>(at + list_sizes[i])));
      at += static_cast<size_t>(list_sizes[i]);
    } else {
      stack->push_back(std::move(meta[i]));
    }
  }
  return {results.begin() + static_cast<ptrdiff_t>(at), results.end()};
}

}  // namespace braze::trace
